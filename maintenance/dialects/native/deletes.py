"""Deleting sessions of a native store, by the steps that the library itself takes.

Invariant: the transaction that takes the ids out of the store writes the ledger of deletions, the tombstones and the
feed of changes; what is left of large sessions has no id that anybody knows, and goes in later short transactions
(`drain`), also those of a run that was killed. Messages that a branch shares stay for it.

Not for: choosing what to delete and comparing it with the plan (`removal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from maintenance.dialects.base import Deed, DeleteCounts
from maintenance.dialects.cells import chunks, key_bytes, key_list
from maintenance.dialects.native.compactions import count
from maintenance.dialects.native.flags import unsigned

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


def delete_sessions(tx: Transaction, ids: Sequence[str], deed: Deed | None, limit: int) -> DeleteCounts:
    """Take these sessions out, and up to `limit` of their messages with them; what is left goes with `drain`."""
    from hermes_state.conversation.removal_steps import take_out

    deed = deed or unsigned()
    compacted = count(tx, ids)
    done = take_out(tx, _numbers(tx, ids), actor=deed.actor, reason=deed.reason, at=deed.at, limit=limit)
    asked = set(ids)
    others = {"messages kept for branches": done.kept_messages, "compactions": compacted}
    return DeleteCounts(
        sessions=len(done.sessions),
        messages=done.messages,
        others={name: rows for name, rows in others.items() if rows},
        detached=sum(key not in asked for key in done.detached),
    )


def drain(tx: Transaction, limit: int) -> bool:
    """Remove up to `limit` rows that deletions left behind; True when there is more to do."""
    from hermes_state.conversation.removal_steps import remove_left_behind

    return remove_left_behind(tx, limit)


def _numbers(reader: Reader, ids: Sequence[str]) -> list[int]:
    """Their numbers, delegates and later segments first: what hangs on a session goes before it."""
    found: dict[str, int] = {}
    for part in chunks(ids):
        rows = reader.rows(
            f"SELECT id, no FROM sessions WHERE id IN {key_list(len(part))}", [key_bytes(key) for key in part]
        )
        found.update((str(key), int(no)) for key, no in rows)
    return [found[key] for key in reversed(list(dict.fromkeys(ids))) if key in found]
