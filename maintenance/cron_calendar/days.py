"""What was and what will be, by job and by day of one zone.

Invariant: slots are counted and never listed beyond a bound, so a job of every minute costs no more than a daily one. A
day is a calendar day of one zone, 23 or 25 hours long where the clock changes. A range is spread over its days by the
schedule that the job has; where that gives another count, it was another one, and the range stands on its first day.

Not for: drawing (see `text` and `page`). Cells of equal hours were rejected: a day on which the clock changes has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from cron_store.schedule import describe, slots, span
from cron_store.states import JobState

if TYPE_CHECKING:
    from cron_store.looking import Looking
    from cron_store.records import Job, Occurrence

MOST_TIMES = 6  # slots of a day that are said one by one; more are a count
MOST_RECORDS = 10_000


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One job on one day."""

    outcomes: dict[str, int] = field(default_factory=dict)  # state -> slots; of days behind, and of today so far
    coming: int = 0  # slots ahead
    times: tuple[int, ...] = ()  # of those, when there are few
    first: int | None = None  # of those, when they are many
    last: int | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One job."""

    job_id: str
    name: str
    schedule: str
    state: str
    reason: str
    cells: tuple[Cell, ...]  # one a day


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """Some days of all jobs of a home."""

    home: str
    zone: str
    now: float
    days: tuple[date, ...]
    today: int  # which of them is today
    rows: tuple[Row, ...]

    @property
    def totals(self) -> dict[str, int]:
        """Slots behind by state."""
        found: dict[str, int] = {}
        for row in self.rows:
            for cell in row.cells:
                for state, count in cell.outcomes.items():
                    found[state] = found.get(state, 0) + count
        return found


def calendar_of(cron: Looking, jobs: Sequence[Job], zone: str, *, days_behind: int, days_ahead: int) -> Calendar:
    """The days around today. Raises what reading a ledger raises."""
    info, now = ZoneInfo(zone), cron.now()
    today = datetime.fromtimestamp(now, info).date()
    days = tuple(today + timedelta(days=number) for number in range(-days_behind, days_ahead + 1))
    starts = [_start(day, info) for day in [*days, days[-1] + timedelta(days=1)]]
    return Calendar(
        home=str(cron.home.path), zone=zone, now=now, days=days, today=days_behind,
        rows=tuple(_row(cron, job, starts, now) for job in jobs),
    )


def _start(day: date, zone: ZoneInfo) -> int:
    """The first second of a day there. Where midnight is left out, it is the first one after it."""
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())


def _row(cron: Looking, job: Job, starts: list[int], now: float) -> Row:
    outcomes: list[dict[str, int]] = [{} for _ in starts[1:]]
    for one in cron.slots(job.job_id, after=starts[0] - 1, until=starts[-1] - 1, limit=MOST_RECORDS):
        for index, count in _spread(job, one, starts):
            outcomes[index][str(one.state)] = outcomes[index].get(str(one.state), 0) + count
    ahead = [_ahead(job, max(start - 1, int(now), job.settled_through), end - 1) for start, end in pairwise(starts)]
    cells = tuple(
        Cell(outcomes=one, coming=coming.coming, times=coming.times, first=coming.first, last=coming.last)
        for one, coming in zip(outcomes, ahead, strict=True)
    )
    return Row(
        job_id=job.job_id, name=job.name, schedule=describe(job.schedule), state=str(job.state),
        reason=job.state_reason, cells=cells,
    )


def _spread(job: Job, one: Occurrence, starts: list[int]) -> list[tuple[int, int]]:
    """(day, slots) of a record, of the days that are shown."""
    first = next((number for number, start in enumerate(starts[1:]) if one.slot < start), None)
    if first is None:
        return []
    if not one.is_range:
        return [(first, one.count)]
    bounds = list(pairwise(starts))
    parts = [_slots_within(job, max(one.slot, low), min(one.last_slot, high - 1)) for low, high in bounds]
    outside = _slots_within(job, one.slot, starts[0] - 1) + _slots_within(job, starts[-1], one.last_slot)
    if sum(parts) + outside != one.count:
        return [(first, one.count)]
    return [(number, count) for number, count in enumerate(parts) if count]


def _slots_within(job: Job, first: int, last: int) -> int:
    found = span(job.schedule, first - 1, last) if first <= last else None
    return 0 if found is None else found.count


def _ahead(job: Job, after: int, until: int) -> Cell:
    """The slots of a job within a part of a day. A paused or completed one has none."""
    if not job.active or job.state is JobState.COMPLETED or after >= until:
        return Cell()
    if job.waiting_slot is not None:
        one = (job.waiting_slot,) if after < job.waiting_slot <= until else ()
        return Cell(coming=len(one), times=one)
    whole = span(job.schedule, after, until)
    if whole is None:
        return Cell()
    few = tuple(slots(job.schedule, after, until, limit=MOST_TIMES)) if whole.count <= MOST_TIMES else ()
    return Cell(coming=whole.count, times=few, first=whole.first, last=whole.last)
