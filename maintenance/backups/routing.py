"""What would become of chats and of who is paired by a restore, counted before it is done.

Invariant: it is done with the same rules as then (`replacement.routing`) in the private copy of the backup, and rolled
back: that copy and the store stay as they are. A copy that has no tables yet takes what the store has.

Not for: obligations (`owing`), nor gateways (`serving`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_state.engine import open_exclusive
from hermes_state.errors import StateError, StorageError
from maintenance.backups.owing import with_old
from maintenance.dialects.native import routed
from maintenance.dialects.native.shape import native_identity
from maintenance.output.text import plural
from maintenance.replacement.old import Old
from maintenance.replacement.routing import carry_over, old_routing

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Reader


class _Counted(Exception):
    """What undoes the transaction that was only counted."""


def foresee(store: Path, copy: Path, *, hidden: bool, clock: Clock) -> routed.Moved:
    """Count it. `copy` is the private database out of a backup; `hidden`: commits may stand in the WAL beside the store
    that SQLite does not see."""
    with open_exclusive(copy, foreign=True, clock=clock) as new:
        return with_old(store, clock, lambda live: _foresee(live, new, hidden, clock))


def _foresee(live: Reader | None, new: ExclusiveStore, hidden: bool, clock: Clock) -> routed.Moved:
    try:
        mine, theirs = (None if live is None else native_identity(live)), native_identity(new)
    except StateError:
        mine = theirs = None
    if theirs is None:
        return routed.Moved()  # a file of hermes-agent: its routing tables are rows of its own
    old = Old(ask=new.rows, there=False, whole=False) if live is None else old_routing(live.rows, hidden=hidden)
    same = mine is not None and mine.store_id == theirs.store_id
    if not routed.has_routing(new.rows):
        return _into_none(old, new, same=same, readable=live is not None)
    moved = routed.Moved()
    try:
        with new.transaction() as tx:
            moved = carry_over(tx, old, same_store=same, readable=live is not None, at=clock.now())
            raise _Counted
    except _Counted:
        return moved


def _into_none(old: Old, new: ExclusiveStore, *, same: bool, readable: bool) -> routed.Moved:
    """What the store brings into a copy from before routing."""
    if not old.there:
        return routed.Moved(generation=0 if readable else routed.GENERATION_LEAP)
    try:
        highest = routed.highest_generation(old.ask)
        if not same:
            return routed.Moved(generation=highest + routed.GENERATION_LEAP if routed.any_routing(old.ask) else 0)
        entries = [
            row for row in routed.rows_of(old.ask, routed.ENTRIES) if old.whole or not routed.problem_of(row)
        ]
        return routed.Moved(
            routes=len(entries), paired=len(routed.rows_of(old.ask, "pairing_users")) if old.whole else 0,
            stopped=sum(
                row["state"] not in routed.STOPPED and not routed.has_session(new, row["session_id"])
                for row in entries
            ),
            removed=bool(routed.rows_of(old.ask, "routing_home", "removed_at IS NOT NULL")),
            generation=highest if old.whole else highest + routed.GENERATION_LEAP,
        )
    except StorageError:
        return routed.Moved(generation=routed.GENERATION_LEAP)  # the rest is told once it is done


def sentences(moved: routed.Moved, *, done: bool) -> Iterator[str]:
    """What becomes of chats and people, or became, one line for each kind of change; nothing where nothing does."""

    def are(count: int) -> str:
        return (("is" if count == 1 else "are") if done else "would be")

    need = "need" if done else "would need"
    if moved.routes:
        yield (
            f"{plural(moved.routes, 'chat')} {are(moved.routes)} routed as the store has "
            f"{'it' if moved.routes == 1 else 'them'}, not as then"
        )
    if moved.stopped:
        yield (
            f"{plural(moved.stopped, 'chat')} {need} a new session: the one that "
            f"{'it goes' if moved.stopped == 1 else 'they go'} on in is not in both"
        )
    if moved.forgotten:
        yield f"{plural(moved.forgotten, 'chat')} that {'was' if moved.forgotten == 1 else 'were'} forgotten stay so"
    if moved.unpaired:
        yield (
            f"{plural(moved.unpaired, 'person', 'people')} {are(moved.unpaired)} not paired any more, since that was "
            "taken back after the backup or nobody knows whether it was: pair those again who may write"
        )
    if moved.paired:
        yield f"{plural(moved.paired, 'person', 'people')} paired since {'stays' if moved.paired == 1 else 'stay'} so"
    if moved.codes:
        yield f"{plural(moved.codes, 'pairing code')} {'opens' if moved.codes == 1 else 'open'} nothing any more"
    if moved.generation:
        yield (
            f"every conversation {'is' if done else 'would be'} of a generation above {moved.generation:,}; no turn is "
            "taken up, and a chat that names no bot names none"
        )
    if moved.removed:
        yield "the home is marked as removed and stays so: nothing is written for it"
