"""Nobody else has the store open: asked before the work, and again under the exclusive lock.

Invariant: content is replaced only when both scans find no holder, and the second one allows it (`lockowners.verdict`):
no process that could have the file open stays unseen. Not for: damaged WALs. The gate's own doors refuse those; here
they are what is being replaced, and they were kept aside.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from maintenance.gate import refusals
from maintenance.gate.doors import Scanner, look

if TYPE_CHECKING:
    from hermes_state.engine.replace import Replacement
    from maintenance.gate.rows import GateRow
    from maintenance.replacement.where import Where


def require_nobody(ctx: Where, row: GateRow, db: Path, scanner: Scanner | None) -> None:
    """Raise `StoreHeld` or `GenerationLost` when a process has the store open now."""
    if not db.exists():
        return  # there is nothing that could be open under this name, but for deleted files, which the lock finds
    scan = (scanner or look)(db)
    if any(holder.stale for holder in scan.holders):
        raise refusals.split(db, row, scan, profile=ctx.profile)
    if scan.holders:
        raise refusals.held(db, row, scan, profile=ctx.profile)


def require_alone(ctx: Where, row: GateRow, store: Replacement, scanner: Scanner | None) -> None:
    """The same under the lock, and raise when a process that cannot be seen could have it open."""
    from lockowners import verdict

    scan = scanner(store.path) if scanner else look(store.path, store.descriptors)
    if any(holder.stale for holder in scan.holders):
        raise refusals.split(store.path, row, scan, profile=ctx.profile)
    found = verdict(scan, exclusive_obtained=True, replaces_content=True)
    if not found.allowed:
        notes = (refusals.ROLLBACK_NOTE,) if store.journal_mode != "wal" else ()
        raise refusals.not_proven(store.path, row, scan, found, profile=ctx.profile, notes=notes)
