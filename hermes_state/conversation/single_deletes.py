"""Deleting single messages.

Invariant: what is deleted leaves a record of who, when, why and which; its id and its number are never used again, so
nothing that refers to them can come to mean another message; a body goes with the last message that uses it, and with
any of them the summaries that it is in.

Not for: deleting sessions (see `removal`), nor for proving that the bytes are gone from free pages (scrub does).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hermes_state import deletions
from hermes_state.changes import record
from hermes_state.conversation import bodies
from hermes_state.conversation.lineage import reaches, segments
from hermes_state.conversation.session_rows import left_over, session_no, valid_number
from hermes_state.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from hermes_state.engine.transaction import Transaction


MOST = 1000  # ids in one call: about 25 ms of the write lock, one row of the feed each


def checked(message_ids: Iterable[int]) -> list[int]:
    """The ids, sorted, each once. Raises `InvalidInput` for what is no id, and for more than `MOST`."""
    wanted = {valid_number("message_ids", message_id) for message_id in message_ids}
    if len(wanted) > MOST:
        raise InvalidInput(
            f"At most {MOST} messages are deleted in one call, not {len(wanted)}.",
            hint="Delete them in several calls, with a pause in between.", argument="message_ids",
        )
    return sorted(wanted)


def delete_messages(
    tx: Transaction, session_id: str, message_ids: Iterable[int], *, reason: str, actor: str, at: float
) -> int:
    """Delete messages of one session, all or none; returns how many. See `Messages.delete`.

    What is shown as the session's is its own, and what is kept for it of sessions that were deleted.
    """
    no = session_no(tx, session_id)
    wanted = checked(message_ids)
    shares = segments(tx, no)
    kept = {one for (one,) in tx.rows(
        f"SELECT no FROM sessions s WHERE no IN (SELECT value FROM json_each(?)) AND {left_over('s')}",
        (json.dumps([part.session_no for part in shares]),),
    )}
    own = {
        part.session_no: last for part, last in zip(shares, reaches(shares), strict=True)
        if part.session_no == no or part.session_no in kept
    }
    found: list[tuple[int, int, int | None, int]] = []
    for some in bodies.batches(wanted):
        marks = ",".join("?" * len(some))
        found += [
            row for row in tx.rows(f"SELECT id, seq, body_no, session_no FROM messages WHERE id IN ({marks})", some)
            if row[3] in own and ((last := own[row[3]]) is None or row[1] <= last)
        ]
    if len(found) != len(wanted):
        absent = sorted(set(wanted) - {row[0] for row in found})
        raise NotFound(
            f"Session {session_id!r} of {tx.path} has no message {absent[0]}; nothing was deleted.",
            hint="Delete messages by the ids that history shows.", path=tx.path, session_id=session_id,
            message_ids=tuple(absent),
        )
    if not found:
        return 0
    for some in bodies.batches(wanted):
        tx.execute(f"DELETE FROM messages WHERE id IN ({','.join('?' * len(some))})", some)
    freed = bodies.free(tx, [row[2] for row in found if row[2] is not None])
    if tx.row("SELECT 1 FROM compactions LIMIT 1") is not None:
        from hermes_state.compaction.generations.deleting import messages_deleted

        messages_deleted(tx, [(row[3], row[1]) for row in found], at)
    tx.execute("UPDATE store SET message_floor = max(message_floor, ?)", (wanted[-1],))
    # Deleted at the end, a number is not yet missing from the count of the newest row; see `append.end_of`.
    for one in sorted({row[3] for row in found}):
        tx.execute(
            "UPDATE sessions SET seq_floor = max(seq_floor, ?1), deleted_messages ="
            " coalesce((SELECT max(seq) FROM messages WHERE session_no = ?2), 0)"
            " - (SELECT count(*) FROM messages WHERE session_no = ?2) WHERE no = ?2",
            (max(row[1] for row in found if row[3] == one), one),
        )
    deletions.record(
        tx, actor=actor, reason=reason, kind="message", keys=[str(message_id) for message_id in wanted],
        rows=len(wanted), at=at, detail={"session_id": session_id, "messages": len(wanted), "bodies": freed},
    )
    for message_id in wanted:
        record(tx, "messages", str(message_id), "delete", at)
    return len(wanted)
