"""The end of a ticker.

Invariant: nothing new is begun; what no thread has begun is due again at once, for whoever ticks next; a run whose
thread goes on stays ours and is named, and its home is let go of only when that thread is over.

Not for: one home that is not served any more (see `ticking.leave`). Taking a claim from a thread that lives was
rejected: its job would run beside it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cron_store.ticker import ticking
from cron_store.ticker.pools import Wedged
from cron_store.ticker.ticking import Problem, Rules

if TYPE_CHECKING:
    from cron_store.ticker.publishing import Publishing
    from cron_store.ticker.seats import Seat


@dataclass(frozen=True, kw_only=True)
class Drained:
    """How a drain went."""

    wedged: tuple[Wedged, ...] = ()  # what is still at it, longest first
    unsettled: tuple[tuple[str, str, int], ...] = ()  # home, job, fence: over, and its verdict cannot be written now

    @property
    def is_complete(self) -> bool:
        """Whether nothing of this process is left anywhere."""
        return not self.wedged and not self.unsettled


def drain(
    seats: dict[str, Seat], rules: Rules, publishing: Publishing, *, seconds: float, interrupt: str | None
) -> Drained:
    """As `CronTicker.drain`, once no tick goes on."""
    deadline = time.monotonic() + seconds  # of the machine: threads do not run on a clock that tests move
    for seat in seats.values():
        _step(seat, rules)
        if interrupt is not None:
            _interrupt(seat, rules, interrupt)
    wedged: list[Wedged] = []
    for seat in list(seats.values()):
        seat.pool.wait_idle(max(0.0, deadline - time.monotonic()))
        now = rules.clock.monotonic()
        wedged += [
            Wedged(home=seat.home, job_id=task.job_id, fence=task.fence, thread=thread, seconds=now - task.began)
            for task, thread in seat.pool.running()
        ]
        if _step(seat, rules):
            del seats[seat.home]
    unsettled = [(seat.home, owed.claim.job_id, owed.claim.fence) for seat in seats.values() for owed in seat.owed]
    publishing.retract()
    return Drained(wedged=tuple(sorted(wedged, key=lambda one: -one.seconds)), unsettled=tuple(unsettled))


def _step(seat: Seat, rules: Rules) -> bool:
    try:
        return ticking.leave(seat, rules)
    except Exception as error:  # of one home: the others are let go of all the same
        rules.tell(Problem(home=seat.home, error=error))
        return False


def _interrupt(seat: Seat, rules: Rules, why: str) -> None:
    with seat.lock:
        runs = list(seat.runs.values())
    try:
        for job_id in {running.claim.job_id for running in runs}:
            with rules.openings.use(seat) as cron:
                cron.interrupt(job_id, reason=why)  # before it is stopped: what it says then is not believed
    except Exception as error:
        rules.tell(Problem(home=seat.home, error=error))
    for running in runs:
        running.end(why)
