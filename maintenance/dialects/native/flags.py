"""Archive, pin and title of a native store.

Invariant: setting what is set already changes nothing; every row that changed is in the feed of changes, in the same
transaction. Titles follow the library's own rules. Not for: whole conversations (`removal.marking` names every
segment).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hermes_state import changes
from hermes_state.clock import SYSTEM
from hermes_state.errors import NotFound
from maintenance.dialects.base import Deed
from maintenance.dialects.cells import chunks, key_bytes, key_list

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


def unsigned() -> Deed:
    """For a caller that names nobody: now, and this process."""
    return Deed(at=SYSTEM.now(), actor=f"hermes-state, PID {os.getpid()}", reason="maintenance")


def set_archived(tx: Transaction, ids: Sequence[str], archived: bool, deed: Deed | None) -> int:
    """Hide sessions, or show them again; returns the rows that changed."""
    deed = deed or unsigned()
    return _set(
        tx, ids, deed, where="archived_at IS NULL" if archived else "archived_at IS NOT NULL",
        to="archived_at = ?, auto_archived = 0", value=deed.at if archived else None,
    )


def set_pinned(tx: Transaction, ids: Sequence[str], pinned: bool, deed: Deed | None) -> int:
    """Protect sessions from sweeps, or no longer; returns the rows that changed."""
    deed = deed or unsigned()
    return _set(
        tx, ids, deed, where="pinned_at IS NULL" if pinned else "pinned_at IS NOT NULL", to="pinned_at = ?",
        value=deed.at if pinned else None,
    )


def set_title(tx: Transaction, session_id: str, title: str | None, deed: Deed | None) -> str | None:
    """Title a session as a person's choice; returns the title as stored. Raises TitleTaken, InvalidInput, NotFound."""
    from hermes_state.conversation.titles import give, sanitize

    wanted = sanitize(title)
    row = tx.row("SELECT no FROM sessions WHERE id = CAST(? AS TEXT)", (key_bytes(session_id),))
    if row is None:
        raise NotFound(f"No session {session_id!r} in {tx.path}.", session_id=session_id)
    give(tx, int(row[0]), wanted, "user")
    changes.record(tx, "sessions", session_id, "update", (deed or unsigned()).at)
    return wanted


def _set(tx: Transaction, ids: Sequence[str], deed: Deed, *, where: str, to: str, value: float | None) -> int:
    changed = 0
    for part in chunks(ids):
        named = [
            (int(no), str(key))
            for no, key in tx.rows(
                f"SELECT no, id FROM sessions WHERE id IN {key_list(len(part))} AND {where}",
                [key_bytes(key) for key in part],
            )
        ]
        for no, key in named:
            changed += tx.execute(f"UPDATE sessions SET {to} WHERE no = ?", (value, no))
            changes.record(tx, "sessions", key, "update", deed.at)
    return changed
