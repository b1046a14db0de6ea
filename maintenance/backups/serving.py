"""Who would be put out by a restore, counted before it is done.

Invariant: it is done with the same rules as then (`replacement.serving`) in the private copy of the backup, and rolled
back: that copy and the store stay as they are. A copy that has no tables yet takes what the store has.

Not for: obligations (`owing`). A reader in the place of the writer, as for those, was rejected: what becomes of a turn
follows from what was written of its instance before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.engine import open_exclusive
from hermes_state.errors import StateError
from maintenance.backups.owing import with_old
from maintenance.dialects.native import serving
from maintenance.dialects.native.shape import native_identity
from maintenance.output.text import plural
from maintenance.replacement.old import Old
from maintenance.replacement.serving import carry_over, old_serving

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Reader


class _Counted(Exception):
    """What undoes the transaction that was only counted."""


def foresee(store: Path, copy: Path, *, hidden: bool, clock: Clock) -> serving.Brought:
    """Count it. `copy` is the private database out of a backup; `hidden`: commits may stand in the WAL beside the store
    that SQLite does not see."""
    with open_exclusive(copy, foreign=True, clock=clock) as new:
        return with_old(store, clock, lambda live: _foresee(live, new, hidden, clock))


def _foresee(live: Reader | None, new: ExclusiveStore, hidden: bool, clock: Clock) -> serving.Brought:
    old = Old(ask=new.rows, there=False, whole=False) if live is None else old_serving(live.rows, hidden=hidden)
    if not serving.has_instances(new.rows):
        rows = old.ask("SELECT count(*) FROM gateway_instances")[0][0] if old.there else 0
        return serving.Brought(instances=int(rows))
    try:
        mine, theirs = (None if live is None else native_identity(live)), native_identity(new)
    except StateError:
        mine = theirs = None
    same = mine is not None and theirs is not None and mine.store_id == theirs.store_id
    brought = serving.Brought()
    try:
        with new.transaction() as tx:
            brought = carry_over(tx, old, same_store=same, at=clock.now())
            raise _Counted
    except _Counted:
        return brought


def sentence(revoked: int, *, done: bool) -> str:
    """Who has to be enrolled again; empty when nobody has."""
    if not revoked:
        return ""
    are = ("is" if revoked == 1 else "are") if done else "would be"
    return (
        f"{plural(revoked, 'gateway instance')} {are} revoked, since nobody knows whether that happened after the "
        "backup: enroll those again that are yours, with `hermes-state instances enroll`"
    )
