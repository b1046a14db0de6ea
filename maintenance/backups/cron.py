"""What would become of cron by a restore, counted before it is done.

Invariant: it is done with the same rules as then (`replacement.cron`) in the private copy of the backup, and rolled
back: that copy and the store stay as they are. A copy that has no tables yet takes what the store has.

Not for: obligations (`owing`), nor gateways (`serving`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_state.engine import open_exclusive
from hermes_state.errors import StateError, StorageError
from maintenance.backups.owing import with_old
from maintenance.dialects.native import scheduled
from maintenance.dialects.native.shape import native_identity
from maintenance.output.text import plural, safe_text
from maintenance.replacement.cron import carry_over, old_cron
from maintenance.replacement.old import Old

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Reader

EXAMPLES = 5


class _Counted(Exception):
    """What undoes the transaction that was only counted."""


def foresee(store: Path, copy: Path, *, hidden: bool, clock: Clock) -> scheduled.Kept:
    """Count it. `copy` is the private database out of a backup; `hidden`: commits may stand in the WAL beside the store
    that SQLite does not see."""
    with open_exclusive(copy, foreign=True, clock=clock) as new:
        return with_old(store, clock, lambda live: _foresee(live, new, hidden, clock))


def _foresee(live: Reader | None, new: ExclusiveStore, hidden: bool, clock: Clock) -> scheduled.Kept:
    try:
        mine, theirs = (None if live is None else native_identity(live)), native_identity(new)
    except StateError:
        mine = theirs = None
    if theirs is None:
        return scheduled.Kept()  # a file of hermes-agent, which keeps its jobs elsewhere
    old = Old(ask=new.rows, there=False, whole=False) if live is None else old_cron(live.rows, hidden=hidden)
    same = mine is not None and mine.store_id == theirs.store_id
    if not scheduled.has_cron(new.rows):
        return _into_none(old, same=same)
    kept = scheduled.Kept()
    try:
        with new.transaction() as tx:
            kept = carry_over(tx, old, same_store=same, at=clock.now())
            raise _Counted
    except _Counted:
        return kept


def _into_none(old: Old, *, same: bool) -> scheduled.Kept:
    """What the store brings into a copy from before cron."""
    if not old.there or not same:
        return scheduled.Kept()
    try:
        jobs = [str(job_id) for (job_id,) in old.ask("SELECT job_id FROM cron_jobs NOT INDEXED")]
        (runs,) = old.ask("SELECT count(*) FROM cron_executions NOT INDEXED")[0]
        return scheduled.Kept(jobs=len(jobs), runs=int(runs), paused=[] if old.whole else jobs)
    except StorageError:
        return scheduled.Kept()  # the rest is told once it is done


def sentences(kept: scheduled.Kept, *, done: bool) -> Iterator[str]:
    """What becomes of jobs and slots, or became, one line for each kind of change; nothing where nothing does."""

    def are(count: int) -> str:
        return ("is" if count == 1 else "are") if done else "would be"

    if kept.jobs:
        yield (
            f"{plural(kept.jobs, 'cron job')} {are(kept.jobs)} as the store has {'it' if kept.jobs == 1 else 'them'}, "
            "not as then: what ran since does not run again"
        )
    if kept.runs:
        yield f"{plural(kept.runs, 'cron run')} made since {'stays' if kept.runs == 1 else 'stay'} in the history"
    if kept.removed:
        yield f"{plural(kept.removed, 'cron job')} that {'was' if kept.removed == 1 else 'were'} removed stay so"
    if kept.ended:
        yield f"{plural(kept.ended, 'cron run')} in flight {are(kept.ended)} ended by it"
    if kept.doubted:
        yield f"{plural(kept.doubted, 'slot')} of cron may have run since, and never {'runs' if done else 'run'} again"
    if kept.paused:
        named = ", ".join(sorted(kept.paused)[:EXAMPLES]) + (", …" if len(kept.paused) > EXAMPLES else "")
        yield safe_text(
            f"{plural(len(kept.paused), 'cron job')} {are(len(kept.paused))} paused, since nobody knows what became of "
            f"{'it' if len(kept.paused) == 1 else 'them'} since: resume those that are wanted, with `hermes-state cron "
            f"resume` ({named})"
        )
    if kept.sessions:
        yield f"{plural(kept.sessions, 'cron job')} {'begins' if kept.sessions == 1 else 'begin'} a new session"
