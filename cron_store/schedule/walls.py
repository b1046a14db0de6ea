"""From instants to wall time: the stretches of a zone's wall clock that a stretch of time covers.

Invariant: inside one stretch the offset does not change, so a wall time is an instant by subtraction; what happens at
the changes is decided here, once, by cutting the stretches. Stretches come in order of time and never overlap in UTC.
Everything is an integer of seconds.

Not for: which wall times a job names (see `expressions`). Comparing aware datetimes was rejected: `fold=0 == fold=1` in
Python, so that the two 02:30 of a night are equal, and one key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cron_store.schedule.kinds import Fold, Gap
from cron_store.schedule.zones import DAY, Rules

# No change of a zone moves its clocks by more than a day (Samoa and Kwajalein left out a whole one).
MARGIN = 2 * DAY


class Stretch(NamedTuple):
    """Wall times `low` <= w < `high`; the instant of each is w - `offset`."""

    low: int
    high: int
    offset: int
    gap_low: int
    """The wall times that do not exist just before: `gap_low` <= w < `gap_high`; equal when there are none."""
    gap_high: int


def stretches(rules: Rules, after: int, until: int, gap: Gap | None, fold: Fold | None) -> Iterator[Stretch]:
    """Cover `after` < t <= `until`. With None for both policies every instant is taken as it is (elapsed time).

    A gap is given only when the policy is `next` and its end is within the two instants: its instant is then
    `gap_high` - `offset`, the first of this stretch.
    """
    low, high = after + 1, until + 1
    timeline = rules.timeline(low - MARGIN, high + MARGIN)
    starts, offsets = timeline.starts, timeline.offsets
    count = len(starts)
    for index in range(timeline.at(low), count):
        start = starts[index]
        if start >= high:
            return
        offset = offsets[index]
        ends = index + 1 < count
        wall_low = max(start, low) + offset
        wall_high = (min(starts[index + 1], high) if ends else high) + offset
        gap_low = gap_high = 0
        if index and gap is not None:
            before = offsets[index - 1]
            if before > offset and fold is not Fold.BOTH:
                # From here to start + before these wall times come for the second time.
                wall_low = max(wall_low, start + before)
            elif before < offset and gap is Gap.NEXT and start >= low:
                gap_low, gap_high = start + before, start + offset
        if fold is Fold.SKIP and gap is not None and ends and offsets[index + 1] < offset:
            wall_high = min(wall_high, starts[index + 1] + offsets[index + 1])
        yield Stretch(wall_low, wall_high, offset, gap_low, gap_high)


def instant_of(rules: Rules, wall: int, gap: Gap, fold: Fold) -> int | None:
    """The one instant of a wall time; None when the policy skips it. `both` gives the earlier one."""
    single = Fold.FIRST if fold is Fold.BOTH else fold
    for stretch in stretches(rules, wall - MARGIN, wall + MARGIN, gap, single):
        if stretch.gap_low <= wall < stretch.gap_high:
            return stretch.gap_high - stretch.offset
        if stretch.low <= wall < stretch.high:
            return wall - stretch.offset
    return None
