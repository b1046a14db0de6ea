"""The oracle of schedules: every minute of UTC, one after another, with the policies applied to what the clock shows.

It shares nothing with `cron_store`: the wall times of an expression come from cronsim on a naive clock, the wall time
of an instant from `datetime.fromtimestamp`, and gaps and folds are what the walk sees. Minutes are counted from 1970.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import compress
from zoneinfo import ZoneInfo

from cronsim import CronSim

EPOCH = datetime(1970, 1, 1)
POLICIES = tuple((gap, fold) for gap in ("next", "skip") for fold in ("first", "both", "skip"))


def minute_of(*date: int) -> int:
    """A UTC date in minutes."""
    return int(datetime(*date, tzinfo=UTC).timestamp()) // 60  # type: ignore[misc,arg-type]


def naive_fires(expression: str, low: datetime, high: datetime) -> Iterator[datetime]:
    """What cronsim names with low < fire < high."""
    for fire in CronSim(expression, low):
        if fire >= high:
            return
        yield fire


class Table:
    """Which wall minutes an expression names, as one byte a minute."""

    def __init__(self, expression: str, low: int, high: int) -> None:
        self.expression = expression
        self.low = low
        self.hits = bytearray(high - low)
        if expression == "* * * * *":
            self.hits = bytearray(b"\x01") * (high - low)
            return
        start = EPOCH + timedelta(minutes=low - 1)
        for fire in naive_fires(expression, start, EPOCH + timedelta(minutes=high)):
            self.hits[(fire - EPOCH) // timedelta(minutes=1) - low] = 1

    @property
    def elapsed(self) -> bool:
        """As the issue says it: the hour field is * or */n."""
        return self.expression.split()[1].startswith("*")


class Walk:
    """A zone from one minute to another: what its clock shows, what it leaves out, what it shows twice."""

    def __init__(self, zone: str, low: int, high: int, table_low: int) -> None:
        rules = ZoneInfo(zone)
        self.low, self.high, self.table_low = low, high, table_low
        walls = array("i")
        for minute in range(low, high):
            shown = datetime.fromtimestamp(minute * 60, rules)
            walls.append(((shown.toordinal() - 719163) * 24 + shown.hour) * 60 + shown.minute - table_low)
        self.walls = walls
        # instant -> the wall minutes left out just before it
        self.gaps: dict[int, range] = {}
        self.firsts: set[int] = set()
        self.seconds: set[int] = set()
        self.folds: list[range] = []
        previous = walls[0] - 1
        for index, wall in enumerate(walls):
            if wall != previous + 1:
                if wall > previous:
                    self.gaps[low + index] = range(previous + 1, wall)
                else:
                    length = previous + 1 - wall
                    self.folds.append(range(low + index - length, low + index + length))
                    self.firsts.update(range(low + index - length, low + index))
                    self.seconds.update(range(low + index, low + index + length))
            previous = wall

    def shown(self, table: Table) -> list[int]:
        """The minutes at which the clock shows a time of the expression."""
        return list(compress(range(self.low, self.high), map(table.hits.__getitem__, self.walls)))

    def fires(self, table: Table, gap: str, fold: str, shown: list[int] | None = None) -> list[int]:
        """The instants in seconds, by the policies."""
        shown = self.shown(table) if shown is None else shown
        if table.elapsed:
            return [minute * 60 for minute in shown]
        dropped = {"first": self.seconds, "both": frozenset[int](), "skip": self.firsts | self.seconds}[fold]
        found = {minute for minute in shown if minute not in dropped}
        if gap == "next":
            found |= {
                minute for minute, missing in self.gaps.items() if any(table.hits[wall] for wall in missing)
            }
        return [minute * 60 for minute in sorted(found)]


def after(fires: list[int], instant: int, count: int) -> list[int]:
    """The first fires that are strictly later."""
    at = bisect_right(fires, instant)
    return fires[at: at + count]
