"""Whether a message with a key is one that is here already.

Invariant: a key stands for one message of a conversation. The same message again gives the id of the first; another
one under the same key is a conflict, never a silent second row and never a silent loss. A conversation is the session
with those it continues, so a platform that delivers once more after a compression is answered from before it.

A platform id names a message together with its role, since some bridges give the answer the id of the question. When
the person took the message back (rewind), what the platform sends under the old id next is a new message, whether it
was edited or not. A caller's own key is one row for ever: what was taken back under it is a conflict that says so.

Not for: comparing texts without a key, which was rejected: people do say "yes" twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from hermes_state.conversation.fields import Encoded
from hermes_state.conversation.row_check import check_of, named_texts
from hermes_state.errors import IdempotencyConflict

if TYPE_CHECKING:
    from hermes_state.engine.transaction import Transaction


class Reads(Protocol):
    """A reader or a transaction."""

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...


# One step: the messages of a session with the key, and the session it continues, which has no id. One statement, as
# most sessions continue none: a recursive one cost 40 microseconds an append.
_STEP = (
    "SELECT id, session_no, seq, platform_message_id, client_key, created_at, row_check FROM messages"
    " WHERE session_no = ?1 AND {} UNION ALL SELECT NULL, parent_no, NULL, NULL, NULL, NULL, NULL FROM sessions"
    " WHERE no = ?1 AND relation = 'continuation'"
)
_BY_KEY = _STEP.format("client_key = ?2")
_BY_PLATFORM_ID = _STEP.format("platform_message_id = ?2 AND role = ?3")
_BY_PLATFORM_ID_ONLY = _STEP.format("platform_message_id = ?2")


_KEYS = (
    "SELECT 1, m.client_key FROM json_each(?2) k CROSS JOIN messages m ON m.session_no = ?1 AND m.client_key = k.value"
    " UNION ALL SELECT 1, m.platform_message_id FROM json_each(?2) k"
    " CROSS JOIN messages m ON m.session_no = ?1 AND m.platform_message_id = k.value"
    " UNION ALL SELECT 0, parent_no FROM sessions WHERE no = ?1 AND relation = 'continuation'"
)


def earlier(tx: Transaction, session_id: str, no: int, new: Encoded) -> int | None:
    """The id of the row that `new` repeats, None when it is new. Raises `IdempotencyConflict`."""
    if new.client_key is not None:
        for row in _found(tx, _BY_KEY, no, new.client_key):
            # The platform's id may have been unknown then or be unknown now; two that differ are two messages.
            if (new.platform_message_id is None or row[3] in (None, new.platform_message_id)) and _same(new, row):
                if _taken_back(tx, row[1], row[2]):
                    raise _was_taken_back(tx, session_id, new.client_key, row[0])
                return int(row[0])
            raise _conflict(tx, session_id, "client_key", new.client_key, row[0])
    if new.platform_message_id is not None:
        live: int | None = None
        before: int | None = None
        for row in _found(tx, _BY_PLATFORM_ID, no, new.platform_message_id, new.role):
            same = _same(new, row)
            if _taken_back(tx, row[1], row[2]):
                before = int(row[0]) if same else before
            elif same:
                return int(row[0])
            else:
                live = row[0] if live is None else live
        if live is not None and before is not None:
            return before  # delivered once more, late: what took its place is here already
        if live is not None:
            raise _conflict(tx, session_id, "platform_message_id", new.platform_message_id, live)
    return None


def known_keys(tx: Transaction, no: int, news: Sequence[Encoded]) -> set[str]:
    """The keys of `news` that `earlier` must look at: those that are stored, and those that come twice in `news`.

    A key of one kind is also reported for the other; that costs a look and nothing else.
    """
    keys = [key for new in news for key in (new.client_key, new.platform_message_id) if key is not None]
    if not keys:
        return set()
    found, seen = {key for key, count in Counter(keys).items() if count > 1}, set[int]()
    wanted = json.dumps(keys)
    here: int | None = no
    while here is not None and here not in seen:
        seen.add(here)
        above: int | None = None
        for kind, value in tx.rows(_KEYS, (here, wanted)):
            if kind:
                found.add(value)
            else:
                above = value
        here = above
    return found


def find_platform_id(reader: Reads, no: int, platform_message_id: str) -> int | None:
    """The newest message of the conversation with this platform id, of any role; None when there is none."""
    found = [int(row[0]) for row in _found(reader, _BY_PLATFORM_ID_ONLY, no, platform_message_id)]
    return max(found, default=None)


def _found(reader: Reads, sql: str, no: int | None, *key: str) -> Iterator[tuple[Any, ...]]:
    """The messages with the key in the session and in those it continues, nearest session first."""
    seen: set[int] = set()
    while no is not None and no not in seen:
        seen.add(no)
        here, no = no, None
        for row in reader.rows(sql, (here, *key)):
            if row[0] is None:
                no = row[1]
            else:
                yield row


def _same(new: Encoded, row: tuple[Any, ...]) -> bool:
    """True when the stored row says what `new` says, its time and keys aside."""
    _id, no, _seq, platform_message_id, client_key, created_at, check = row
    named = named_texts(
        new.tool_name, new.tool_call_id, new.tool_calls, new.finish_reason, new.reasoning, platform_message_id,
        client_key, new.extra,
    )
    return check_of(no, new.role, new.content_type, new.content, named, new.token_count, created_at) == int(check)


def _taken_back(tx: Transaction, no: int, seq: int) -> bool:
    return bool(tx.rows(
        "SELECT 1 FROM view_edits e WHERE session_no = ? AND action = 'rewind' AND ? BETWEEN from_seq AND to_seq"
        " AND NOT EXISTS (SELECT 1 FROM view_edits r WHERE r.undoes = e.id) LIMIT 1",
        (no, seq),
    ))


def _conflict(tx: Transaction, session_id: str, kind: str, key: str, existing_id: int) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"Message {existing_id} of session {session_id!r} in {tx.path} has the {kind} {key!r} and says something else.",
        hint="Use a new key for a new message; messages that are stored never change.",
        path=tx.path, session_id=session_id, key=key, existing_id=existing_id, taken_back=False,
    )


def _was_taken_back(tx: Transaction, session_id: str, key: str, existing_id: int) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"Message {existing_id} of session {session_id!r} in {tx.path} has the client_key {key!r} and was taken back by"
        " a rewind.",
        hint="Use a new key to say it again, or restore what was taken back.",
        path=tx.path, session_id=session_id, key=key, existing_id=existing_id, taken_back=True,
    )
