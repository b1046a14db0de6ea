"""Cron expressions on a naive clock: which wall minutes they name. The only place that knows croniter.

Invariant: an expression is five fields; what croniter reads differently from version to version, at random, or with
another meaning than the words suggest, is refused with the reason. Days come from croniter on naive dates, kept by
month; hours and minutes are a product. Wall times are seconds since 1970-01-01 of a clock without a zone.

Not for: zones (see `walls`). croniter with a zone was rejected: it keeps the offset of its base (09:00 became 10:00
after autumn). Asking it for every slot was rejected: 28 us each, where a list of a month's days is made once.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple

from cron_store.schedule.spelling import FIELDS, NEAREST, refused, spelled

DAY = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
EVERY_STEP = re.compile(r"\*(/\d+)?")


class Days(NamedTuple):
    """The day fields of an expression, as text. Expressions that share them share their months.

    A tuple, because it is a key that is looked up for every slot.
    """

    day: str
    month: str
    weekday: str
    either: bool
    """Whether a day that satisfies one of `day` and `weekday` is enough (neither begins with `*`)."""

    @property
    def all(self) -> bool:
        """Whether every day is one."""
        return self.day == self.month == self.weekday == "*"


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A parsed expression. Ranges are half open: `low` <= wall time < `high`."""

    text: str
    """Five fields with single spaces, upper case."""
    times: tuple[int, ...]
    """Seconds of the day, sorted."""
    days: Days
    elapsed: bool
    """Whether the hour field is `*` or `*/n` and names more than one hour: `*/24` is a time of day."""

    def between(self, low: int, high: int) -> Iterator[int]:
        """The wall times in order."""
        for day in self._days(low // DAY, -(-high // DAY)):
            base = day * DAY
            if base >= low and base + DAY <= high:
                for time in self.times:
                    yield base + time
            else:
                for time in self.times[bisect_left(self.times, low - base): bisect_left(self.times, high - base)]:
                    yield base + time

    def count(self, low: int, high: int) -> int:
        """How many there are; the cost is that of the months, not of the wall times."""
        if low >= high:
            return 0
        first, last = low // DAY, (high - 1) // DAY
        if first == last:
            return self._within(first, low, high)
        whole = self._day_count(first + 1, last) * len(self.times)
        return self._within(first, low, high) + whole + self._within(last, low, high)

    def last(self, low: int, high: int) -> int | None:
        """The latest one."""
        for day in self._days_backwards(low // DAY, -(-high // DAY)):
            base = day * DAY
            at = bisect_left(self.times, high - base)
            if at and base + self.times[at - 1] >= low:
                return base + self.times[at - 1]
        return None

    def _within(self, day: int, low: int, high: int) -> int:
        if not self._day_count(day, day + 1):
            return 0
        base = day * DAY
        return bisect_left(self.times, high - base) - bisect_left(self.times, low - base)

    def _day_count(self, first: int, end: int) -> int:
        if self.days.all:
            return max(0, end - first)
        months = (month_days(self.days, index) for index in range(_month_of(first), _month_of(end) + 1))
        return sum(bisect_left(days, end) - bisect_left(days, first) for days in months)

    def _days(self, first: int, end: int) -> Iterator[int]:
        if self.days.all:
            yield from range(first, end)
            return
        for index in range(_month_of(first), _month_of(end) + 1):
            for day in month_days(self.days, index):
                if first <= day < end:
                    yield day

    def _days_backwards(self, first: int, end: int) -> Iterator[int]:
        if self.days.all:
            yield from range(end - 1, first - 1, -1)
            return
        for index in range(_month_of(end), _month_of(first) - 1, -1):
            for day in reversed(month_days(self.days, index)):
                if first <= day < end:
                    yield day


@functools.lru_cache(maxsize=16_384)
def expression(text: str) -> Expression:
    """Parse five fields or an alias; `ScheduleRefused` with the reason for anything else."""
    said, (minute, hour, day, month, weekday) = spelled(text)
    nearest = NEAREST.fullmatch(day)
    if nearest is not None:
        if weekday != "*":
            raise refused(text, f"{day} (nearest weekday) goes with a day of week of *, not {weekday}")
        if not 1 <= int(nearest[1]) <= 31:
            raise refused(text, f"{day} is no day of a month")
    minutes, hours = _expanded(text, minute, hour, "*" if nearest else day, month, weekday)
    return Expression(
        text=said,
        times=tuple(h * 3600 + m * 60 for h in hours for m in minutes),
        days=Days(
            day=day, month=month, weekday=weekday, either=not (day.startswith("*") or weekday.startswith("*")),
        ),
        elapsed=EVERY_STEP.fullmatch(hour) is not None and len(hours) > 1,
    )


def _expanded(
    text: str, minute: str, hour: str, day: str, month: str, weekday: str
) -> tuple[list[int], list[int]]:
    """Minutes and hours as croniter reads them; it also checks the other fields."""
    fields = []
    for index, field in enumerate((minute, hour, day, month, weekday)):
        try:
            fields.append(_field(index, field))
        # ValueError and others too: what a library raises for text that it does not foresee is still a refusal.
        except (_croniter_error(), ValueError, KeyError, IndexError, TypeError) as error:
            raise refused(text, f"{field} is nothing that a {FIELDS[index]} field can be") from error
    return _numbers(fields[0], 60), _numbers(fields[1], 24)


def _croniter_error() -> type[Exception]:
    from croniter import CroniterError

    found: type[Exception] = CroniterError
    return found


@functools.lru_cache(maxsize=4_096)
def _field(index: int, field: str) -> tuple[int | str, ...]:
    """One field as croniter reads it; few are different, however many expressions there are."""
    from croniter import croniter

    expanded, _ = croniter.expand(" ".join(field if place == index else "*" for place in range(5)))
    return tuple(expanded[index])


def _numbers(field: tuple[int | str, ...], size: int) -> list[int]:
    return list(range(size)) if "*" in field else sorted(int(number) for number in field)


def _month_of(day: int) -> int:
    """Months since year 0 of a day since 1970."""
    found = date.fromordinal(day + EPOCH_ORDINAL)
    return found.year * 12 + found.month - 1


@functools.lru_cache(maxsize=16_384)
def month_days(days: Days, index: int) -> tuple[int, ...]:
    """The days of one month, as days since 1970; shared by all expressions with these day fields."""
    year, month = index // 12, index % 12 + 1
    nearest = NEAREST.fullmatch(days.day)
    if nearest is not None:
        if not _croniter_days("*", days.month, "*", year, month):
            return ()
        return _nearest_weekday(year, month, int(nearest[1]))
    if days.day == "*":
        return _croniter_days("*", days.month, days.weekday, year, month)
    # L apart: croniter counts it as a day, and 2-31,L has then as many as every day has.
    parts = days.day.split(",")
    alone = ["L"] if "L" in parts else []
    numbers = ",".join(part for part in parts if part != "L")
    by_day = {
        found for part in (*alone, numbers) if part for found in _croniter_days(part, days.month, "*", year, month)
    }
    if days.weekday == "*":
        return tuple(sorted(by_day))
    # Joined here: croniter joins them in another way when the weekday has a number (8 and 5#1), or a step (*/2).
    by_weekday = set(_croniter_days("*", days.month, days.weekday, year, month))
    return tuple(sorted(by_day | by_weekday if days.either else by_day & by_weekday))


def _croniter_days(day: str, month_field: str, weekday: str, year: int, month: int) -> tuple[int, ...]:
    from croniter import CroniterBadDateError, croniter

    here = datetime(year, month, 1) - timedelta(minutes=1)
    # One year is enough to see the end of the month; a longer search would be for a day outside of it.
    dates = croniter(f"0 0 {day} {month_field} {weekday}", here, max_years_between_matches=1)
    found = []
    while True:
        try:
            here = dates.get_next(datetime)
        except CroniterBadDateError:
            break
        if (here.year, here.month) != (year, month):
            break
        found.append(here.toordinal() - EPOCH_ORDINAL)
    return tuple(found)


def _nearest_weekday(year: int, month: int, day: int) -> tuple[int, ...]:
    """croniter has W from 7 on only; done here, a schedule means the same beside 6 and 7. As in 7, a day that a month
    does not have is its last one."""
    length = monthrange(year, month)[1]
    day = min(day, length)
    weekday = date(year, month, day).weekday()
    if weekday == 5:
        day += 2 if day == 1 else -1
    elif weekday == 6:
        day += -2 if day == length else 1
    return (date(year, month, day).toordinal() - EPOCH_ORDINAL,)
