"""Runs that lost their owner: found, and given back or ended.

Invariant: what is taken is what was judged: the row is compared again inside the transaction. A run whose owner is
provably dead is taken at once; one of another boot or namespace once it was seen silent for its term and a margin; one
whose owner runs never, however old it is. A claim is due again; a run that had begun is interrupted, and due again only
where its effect is idempotent. No wall time is compared, so a claim that is dated in the future blocks nobody.

By the stated rule an owner itself lets go of what has no thread any more: once it is older than its allowance, or is
dated in the future. The other half of the rule in the facts, that a terminal row of the claim frees it, needs no code:
the row is the claim.

Not for: owners that let go by themselves (see `ending`). A time to live by the wall clock was rejected: one step of the
clock makes every claim of a home stale, or blocks it for ever.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cron_store import events
from cron_store.jobs import rows as job_rows
from cron_store.occurrences import rows as slot_rows
from cron_store.records import Interrupted, Reaped, Run
from cron_store.runs import rows
from cron_store.runs.ending import end
from cron_store.states import RunState, SlotState
from hermes_state.clock import Clock
from hermes_state.errors import StatementFailed
from hermes_state.leases.judging import Judging
from hermes_state.leases.rows import LeaseRow
from hermes_state.leases.states import ACQUIRE, Outcome, Standing
from hermes_state.owners import provably_dead

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

# How long a worker may take to adopt what was handed to it (facts section 3.3).
HAND_OFF_SECONDS = 30.0
# How far a wall clock may differ between two processes before a date counts as the future's.
MOST_SKEW_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A run that is to be taken, as it was judged."""

    seen: LeaseRow
    job_id: str
    because: str
    forced: bool = False


class Watch:
    """What one process remembers of owners of runs in one store. Safe for threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._judging = Judging(core)

    def lost(self, reader: Reader, *, own: str, job_id: str | None = None) -> list[Lost]:
        """Open runs whose owner is gone. It looks into lock files: not in a transaction."""
        clock = self._core.clock
        judged: dict[tuple[str | None, Standing], tuple[bool, str]] = {}
        found = []
        for run, lease, handed_off in rows.leases(reader):
            if lease.owner == own or (job_id is not None and run.job_id != job_id):
                continue
            if _starts(lease, handed_off, clock):
                continue
            taken, because = self._judge(lease, judged)
            if taken:
                found.append(Lost(seen=lease, job_id=run.job_id, because=because))
        return found

    def _judge(
        self, lease: LeaseRow, judged: dict[tuple[str | None, Standing], tuple[bool, str]]
    ) -> tuple[bool, str]:
        standing, verdict = self._judging.judge(lease)
        if standing is Standing.RUN_OUT:
            # It did not renew: its owner may hang, and what hangs may go on. Only a proof of its life saves it.
            known = judged.get((lease.owner, standing))
            if known is not None:
                return known
            owner = lease.identity
            alive = owner is not None and provably_dead(
                owner, self._core.path.parent, clock=self._core.clock
            ).runs
            return judged.setdefault((lease.owner, standing), (not alive, "its term ran out and its owner is not seen"))
        if ACQUIRE[standing] is not Outcome.TAKE:
            return False, ""
        if standing is Standing.DEAD:
            return True, f"its owner is dead: {verdict.because}"
        return True, "its owner, by another clock, was silent for its term and a margin"


def forced(reader: Reader, *, own: str, living: Container[int], clock: Clock) -> list[Lost]:
    """Open runs of this very process that have no thread any more and are old enough, or dated in the future."""
    found = []
    for run, lease, handed_off in rows.leases(reader):
        if lease.owner != own or run.fence in living or _starts(lease, handed_off, clock):
            continue
        age = clock.boottime() - lease.acquired_boottime
        if run.claimed_at > clock.now() + MOST_SKEW_SECONDS:
            because = "it has no thread and is dated in the future"
        elif run.allowance_seconds is not None and age > run.allowance_seconds:
            because = f"it has no thread and is {age:.0f} s old"
        else:
            continue
        found.append(Lost(seen=lease, job_id=run.job_id, because=because, forced=True))
    return found


def _starts(lease: LeaseRow, handed_off: float | None, clock: Clock) -> bool:
    """Whether a worker was given the run just now, and may be about to adopt it."""
    return handed_off is not None and lease.domain.comparable(clock.domain()) and (
        0 <= clock.boottime() - handed_off < HAND_OFF_SECONDS
    )


def take(tx: Transaction, lost: Sequence[Lost], *, at: float) -> list[Reaped]:
    """End what was judged lost, unless its row has changed since; gives what was done.

    Raises `LedgerUnreadable`, with its `job_id`, for one that cannot be ended: what was written goes with it.
    """
    done = []
    for one in lost:
        fence = one.seen.fence
        if rows.lease(tx, fence) != one.seen:
            continue
        run = rows.read(tx, fence)
        assert run is not None
        try:
            done.append(_take_one(tx, run, one, at=at))
        except StatementFailed as error:
            raise job_rows.unreadable(tx, run.job_id, error.message) from error
    return done


def _take_one(tx: Transaction, run: Run, lost: Lost, *, at: float) -> Reaped:
    job = job_rows.read(tx, run.job_id)
    effect = "once" if job is None else job.policies.effect
    began = run.state is RunState.RUNNING
    end(
        tx, run, Interrupted(why=lost.because) if began else None, at=at, forced=lost.forced, effect=effect, again=True
    )
    ended = rows.read(tx, run.fence)
    assert ended is not None
    slot = None if run.slot is None else slot_rows.of_slot(tx, run.job_id, run.slot)
    again = slot is not None and slot.state is SlotState.DUE
    events.record(
        tx, "forced_release" if lost.forced else "owner_lost", at=at, job_id=run.job_id, fence=run.fence,
        slot=run.slot, run_id=run.run_id, to=str(ended.state), again=again, because=lost.because,
    )
    return Reaped(
        fence=run.fence, job_id=run.job_id, slot=run.slot, to=ended.state, again=again, because=lost.because,
        forced=lost.forced,
    )
