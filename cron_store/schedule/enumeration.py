"""The slots of a schedule: pure functions of the schedule, two instants and the rules of its zone.

Invariant: slots are whole seconds UTC, sorted, each once, strictly greater than `after` and not greater than `until`;
two calls that share a border never give a slot twice and never lose one. `limit` bounds what one call gives: go on
from the last slot. What only needs to be counted costs nothing for each slot (`span`).

Not for: what was done about a slot (see the occurrences of a job). A generator was rejected as the face: a claim needs
the list within one transaction, and a generator that is left open keeps rules that were replaced meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from math import floor

from cron_store.schedule.describing import instant_text
from cron_store.schedule.expressions import DAY, Expression, expression
from cron_store.schedule.kinds import CronExpression, Interval, Once, Schedule, Span
from cron_store.schedule.walls import MARGIN, Stretch, instant_of, stretches
from cron_store.schedule.zones import rules_of
from hermes_state.errors import ScheduleRefused

YEARS_AHEAD = 8
"""A leap day is at most 8 years away (1896 to 1904, 2096 to 2104)."""
FIRE_HORIZON_SECONDS = YEARS_AHEAD * 366 * DAY
# A list is made piece by piece, so that a limit is reached without looking at years: first a short piece, then longer.
FIRST_PIECE, NEXT_PIECE = 8 * DAY, 370 * DAY
EPOCH = datetime(1970, 1, 1)


def slots(schedule: Schedule, after: float, until: float, *, limit: int = 1000) -> list[int]:
    """The slots with `after` < slot <= `until`, at most `limit`: the earliest ones.

    A list as long as `limit` may not be all: call again with its last element as `after`.
    """
    return list(islice(_each(schedule, floor(after), floor(until)), limit))


def next_slot(schedule: Schedule, after: float) -> int | None:
    """The first slot after an instant; None when there is none within 8 years."""
    return next(_each(schedule, floor(after), floor(after) + FIRE_HORIZON_SECONDS), None)


def next_slots(schedule: Schedule, after: float, count: int) -> list[int]:
    """The first `count` slots after an instant, as far as they are within 8 years."""
    return slots(schedule, after, floor(after) + FIRE_HORIZON_SECONDS, limit=count)


def span(schedule: Schedule, after: float, until: float) -> Span | None:
    """First, last and number of the slots with `after` < slot <= `until`; None when there are none.

    The cost is that of the days between, of intervals that of one division: never that of the slots.
    """
    low, high = floor(after), floor(until)
    if isinstance(schedule, CronExpression):
        return _expression_span(schedule, low, high)
    if isinstance(schedule, Interval) and not schedule.after_finish:
        first, last = _grid(schedule, low, high)
        if first > last:
            return None
        return Span(
            first=schedule.anchor + first * schedule.seconds, last=schedule.anchor + last * schedule.seconds,
            count=last - first + 1,
        )
    one = next(_each(schedule, low, high), None)
    return None if one is None else Span(first=one, last=one, count=1)


def has_fire_within(schedule: Schedule, after: float, seconds: float = FIRE_HORIZON_SECONDS) -> bool:
    """Whether there is a slot with `after` < slot <= `after` + `seconds`."""
    return next(_each(schedule, floor(after), floor(after + seconds)), None) is not None


def require_fire(schedule: Schedule, after: float) -> int:
    """The first slot after an instant; `ScheduleRefused` when there is none within 8 years."""
    first = next_slot(schedule, after)
    if first is not None:
        return first
    if isinstance(schedule, CronExpression):
        said, reason = schedule.expression, f"it has no fire within {YEARS_AHEAD} years"
        hint = "Look at the day of month, the month and the day of week together: 30 February does not come."
    elif isinstance(schedule, Once) and schedule.wall is not None and (
        after < _wall(schedule.wall) < after + FIRE_HORIZON_SECONDS and _once(schedule, _wall(schedule.wall)) is None
    ):
        said = schedule.wall
        reason = f"that time does not exist, or exists twice, in {schedule.zone}, and the policy is to skip it"
        hint = "Give a time with its offset from UTC, such as 2027-03-28T03:30:00+02:00."
    else:
        said, reason = _once_text(schedule), f"it is in the past, or more than {YEARS_AHEAD} years away"
        hint = "Give a time in the future."
    raise ScheduleRefused(f"The schedule {said!r} is refused: {reason}.", text=said, reason=reason, hint=hint)


def finished(schedule: Schedule, at: float) -> Schedule:
    """The schedule as it stands when a run has ended: only an interval `after_finish` moves."""
    if isinstance(schedule, Interval) and schedule.after_finish:
        return replace(schedule, anchor=floor(at))
    return schedule


def _each(schedule: Schedule, after: int, until: int) -> Iterator[int]:
    if isinstance(schedule, CronExpression):
        yield from _expression_slots(schedule, after, until)
    elif isinstance(schedule, Interval) and not schedule.after_finish:
        first, last = _grid(schedule, after, until)
        yield from range(
            schedule.anchor + first * schedule.seconds, schedule.anchor + last * schedule.seconds + 1, schedule.seconds
        )
    else:
        slot = schedule.anchor + schedule.seconds if isinstance(schedule, Interval) else _once(schedule, until)
        if slot is not None and after < slot <= until:
            yield slot


def _grid(schedule: Interval, after: int, until: int) -> tuple[int, int]:
    """The first and the last k of anchor + k x seconds; the first is greater when there is none."""
    return max(0, (after - schedule.anchor) // schedule.seconds + 1), (until - schedule.anchor) // schedule.seconds


def _once(schedule: Once, until: int) -> int | None:
    """Its slot; None: it has none, or that is after `until`: the rules of far years are not gone through for it."""
    if schedule.wall is None:
        return schedule.at
    wall = _wall(schedule.wall)
    if wall > until + MARGIN:
        return None
    return instant_of(rules_of(schedule.zone), wall, schedule.gap, schedule.fold)


def _wall(text: str) -> int:
    wall = datetime.fromisoformat(text) - EPOCH
    return wall.days * DAY + wall.seconds


def _once_text(schedule: Schedule) -> str:
    assert isinstance(schedule, Once | Interval)
    if isinstance(schedule, Interval):
        return f"every {schedule.seconds} s"
    return schedule.wall if schedule.wall is not None else instant_text(schedule.at or 0)


def _stretches(schedule: CronExpression, table: Expression, after: int, until: int) -> Iterator[Stretch]:
    policies = (None, None) if table.elapsed else (schedule.gap, schedule.fold)
    return stretches(rules_of(schedule.zone), after, until, *policies)


def _pieces(after: int, until: int) -> Iterator[tuple[int, int]]:
    length = FIRST_PIECE
    while after < until:
        end = min(after + length, until)
        yield after, end
        after, length = end, NEXT_PIECE


def _expression_slots(schedule: CronExpression, after: int, until: int) -> Iterator[int]:
    table = expression(schedule.expression)
    for low, high in _pieces(after, until):
        for stretch in _stretches(schedule, table, low, high):
            start = stretch.low
            if _fires_in_gap(table, stretch):
                yield stretch.gap_high - stretch.offset
                # The gap ends where the stretch begins: a slot at that very second is the same one.
                start = stretch.gap_high + 1
            for wall in table.between(start, stretch.high):
                yield wall - stretch.offset


def _expression_span(schedule: CronExpression, after: int, until: int) -> Span | None:
    table = expression(schedule.expression)
    first = last = None
    count = 0
    for stretch in _stretches(schedule, table, after, until):
        start = stretch.low
        if _fires_in_gap(table, stretch):
            last = stretch.gap_high - stretch.offset
            first = last if first is None else first
            count += 1
            start = stretch.gap_high + 1
        number = table.count(start, stretch.high)
        if number:
            if first is None:
                first = next(table.between(start, stretch.high)) - stretch.offset
            latest = table.last(start, stretch.high)
            assert latest is not None
            last = latest - stretch.offset
            count += number
    return None if first is None or last is None else Span(first=first, last=last, count=count)


def _fires_in_gap(table: Expression, stretch: Stretch) -> bool:
    return next(table.between(stretch.gap_low, stretch.gap_high), None) is not None
