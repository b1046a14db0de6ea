"""Slots as pure functions: borders, limits, policies, and what a span says of them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from cron_store.schedule import (
    CronExpression,
    Fold,
    Gap,
    Interval,
    Once,
    Schedule,
    Span,
    finished,
    has_fire_within,
    next_slot,
    next_slots,
    require_fire,
    slots,
    span,
)
from hermes_state.errors import InvalidInput, ScheduleRefused

DAY = 86_400


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def texts(found: list[int]) -> list[str]:
    return [datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M") for at in found]


def cron(text: str, zone: str = "UTC", gap: Gap = Gap.NEXT, fold: Fold = Fold.FIRST) -> CronExpression:
    return CronExpression(expression=text, zone=zone, gap=gap, fold=fold)


SCHEDULES: list[Schedule] = [
    cron("*/20 * * * *", "America/New_York"), cron("30 2 * * *", "Europe/Berlin", fold=Fold.BOTH),
    cron("0,30 1-2 * * *", "Australia/Lord_Howe"), cron("0 9 1 * *", "Asia/Kolkata", gap=Gap.SKIP),
    Interval(seconds=5400, anchor=utc("2026-01-01") + 17), Once(at=utc("2026-10-25T01:00")),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_pieces_of_any_size_give_each_slot_once(schedule: Schedule) -> None:
    low, high = utc("2026-10-20"), utc("2026-11-03")
    whole = slots(schedule, low, high, limit=10_000)
    assert all(before < after for before, after in pairwise(whole))
    for size in (3_600, 7_777, DAY, 3 * DAY):
        found: list[int] = []
        for start in range(low, high, size):
            found += slots(schedule, start, min(start + size, high))
        assert found == whole


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_limit_gives_the_earliest_and_the_last_one_goes_on(schedule: Schedule) -> None:
    low, high = utc("2026-10-20"), utc("2026-11-03")
    whole, found, after = slots(schedule, low, high, limit=10_000), [], low
    while piece := slots(schedule, after, high, limit=7):
        found += piece
        after = piece[-1]
    assert found == whole
    assert slots(schedule, low, high, limit=0) == []


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_span_says_what_the_list_would(schedule: Schedule) -> None:
    low = utc("2026-10-20")
    for length in (0, 59, 3600, 5 * DAY, 6 * DAY + 4321, 40 * DAY, 400 * DAY):
        for start in (low, low + 5 * DAY + 1800, low + 90 * DAY + 7):
            found = slots(schedule, start, start + length, limit=100_000)
            expected = Span(first=found[0], last=found[-1], count=len(found)) if found else None
            assert span(schedule, start, start + length) == expected


def test_a_slot_is_after_the_one_border_and_up_to_the_other() -> None:
    hourly, at = cron("0 * * * *"), utc("2026-05-01T10:00")
    assert slots(hourly, at, at) == []
    assert slots(hourly, at - 1, at) == [at]
    assert slots(hourly, at - 0.5, at + 0.5) == [at]
    assert slots(hourly, at + 0.5, at + 3600) == [at + 3600]
    assert slots(hourly, at, at + 3599.9) == []


@pytest.mark.parametrize("fold, expected", [
    (Fold.FIRST, ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),
    (Fold.BOTH, ["10-24 00:30", "10-25 00:30", "10-25 01:30", "10-26 01:30"]),
    (Fold.SKIP, ["10-24 00:30", "10-26 01:30"]),
])
def test_a_time_that_comes_twice_follows_the_fold_policy(fold: Fold, expected: list[str]) -> None:
    found = slots(cron("30 2 * * *", "Europe/Berlin", fold=fold), utc("2026-10-23T12:00"), utc("2026-10-26T12:00"))
    assert texts(found) == expected


@pytest.mark.parametrize("gap, expected", [
    (Gap.NEXT, ["03-28 01:30", "03-29 01:00", "03-30 00:30"]), (Gap.SKIP, ["03-28 01:30", "03-30 00:30"]),
])
def test_a_time_that_does_not_come_follows_the_gap_policy(gap: Gap, expected: list[str]) -> None:
    found = slots(cron("30 2 * * *", "Europe/Berlin", gap=gap), utc("2026-03-27T12:00"), utc("2026-03-30T12:00"))
    assert texts(found) == expected


def test_several_slots_of_a_gap_and_one_at_its_end_are_one() -> None:
    found = slots(cron("0,20,40 2,3 * * *", "Europe/Berlin"), utc("2026-03-28T12:00"), utc("2026-03-29T12:00"))
    assert texts(found) == ["03-29 01:00", "03-29 01:20", "03-29 01:40"]


def test_a_whole_day_that_a_zone_left_out_is_one_slot() -> None:
    """Samoa had no 30 December 2011."""
    found = slots(cron("0 6,12 * * *", "Pacific/Apia"), utc("2011-12-29T12:00"), utc("2011-12-31"))
    assert texts(found) == ["12-29 16:00", "12-29 22:00", "12-30 10:00", "12-30 16:00", "12-30 22:00"]


@pytest.mark.parametrize("text, expected", [
    ("*/30 * * * *", ["00:00", "00:30", "01:00", "01:30", "02:00"]), ("0 */2 * * *", ["00:00", "01:00"]),
])
def test_every_hour_and_every_nth_follow_elapsed_time_whatever_the_policies(text: str, expected: list[str]) -> None:
    """Berlin, 25 October: 02:00 comes at 00:00 and at 01:00 UTC, 03:00 at 02:00."""
    for gap in Gap:
        for fold in Fold:
            found = slots(
                cron(text, "Europe/Berlin", gap, fold), utc("2026-10-24T23:59"), utc("2026-10-25T02:00")
            )
            assert [text[6:] for text in texts(found)] == expected


def test_a_base_between_the_two_passes_gives_no_slot_again() -> None:
    daily = cron("30 2 * * *", "Europe/Berlin")
    first, next_day = utc("2026-10-25T00:30"), utc("2026-10-26T01:30")
    for base in range(first, utc("2026-10-25T02:00"), 60):
        assert next_slot(daily, base) == next_day


def test_an_interval_is_a_grid_that_a_late_look_does_not_move() -> None:
    grid = Interval(seconds=1800, anchor=1_000_007)
    assert next_slots(grid, 1_000_007, 3) == [1_001_807, 1_003_607, 1_005_407]
    assert next_slots(grid, 1_002_999.5, 2) == [1_003_607, 1_005_407]
    assert next_slots(grid, 0, 1) == [1_000_007]
    assert span(grid, 1_000_007, 1_000_007 + 10_000_000 * 1800) == Span(
        first=1_001_807, last=1_000_007 + 10_000_000 * 1800, count=10_000_000
    )
    assert span(grid, 0, 1_000_006) is None


def test_an_interval_after_the_finish_has_one_slot_until_a_run_ends() -> None:
    waiting = Interval(seconds=600, anchor=1_000, after_finish=True)
    assert next_slots(waiting, 1_000, 5) == [1_600]
    assert span(waiting, 0, 10_000) == Span(first=1_600, last=1_600, count=1)
    moved = finished(waiting, 4_321.9)
    assert (next_slot(moved, 1_600), next_slot(moved, 4_921)) == (4_921, None)
    grid = Interval(seconds=600, anchor=1_000)
    assert finished(grid, 4_321.9) is grid


def test_an_interval_below_a_minute_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        Interval(seconds=59, anchor=0)
    assert str(refused.value) == "An interval of 59 s is below 60 s."


@pytest.mark.parametrize("wall, gap, fold, expected", [
    ("2026-07-01T09:00:00", Gap.NEXT, Fold.FIRST, "2026-07-01T07:00"),
    ("2026-03-29T02:30:00", Gap.NEXT, Fold.FIRST, "2026-03-29T01:00"),
    ("2026-03-29T02:30:00", Gap.SKIP, Fold.FIRST, None),
    ("2026-10-25T02:30:00", Gap.NEXT, Fold.FIRST, "2026-10-25T00:30"),
    ("2026-10-25T02:30:00", Gap.NEXT, Fold.BOTH, "2026-10-25T00:30"),
    ("2026-10-25T02:30:00", Gap.NEXT, Fold.SKIP, None),
    ("2026-10-25T03:00:00", Gap.SKIP, Fold.SKIP, "2026-10-25T02:00"),
])
def test_once_is_one_instant_by_the_policies(wall: str, gap: Gap, fold: Fold, expected: str | None) -> None:
    once = Once(wall=wall, zone="Europe/Berlin", gap=gap, fold=fold)
    found = slots(once, utc("2026-01-01"), utc("2027-01-01"))
    assert found == ([] if expected is None else [utc(expected)])


def test_once_is_given_by_exactly_one_of_its_two_times() -> None:
    for wrong in ({}, {"wall": "2026-07-01T09:00:00", "at": 5}):
        with pytest.raises(InvalidInput) as refused:
            Once(**wrong)
        assert str(refused.value) == "Once has exactly one of wall and at."


NOW = utc("2026-11-30")
IMPOSSIBLE = "Look at the day of month, the month and the day of week together: 30 February does not come."
FUTURE = "Give a time in the future."
OFFSET = "Give a time with its offset from UTC, such as 2027-03-28T03:30:00+02:00."


@pytest.mark.parametrize("schedule, said, reason, hint", [
    (cron("0 0 31 2 *"), "0 0 31 2 *", "it has no fire within 8 years", IMPOSSIBLE),
    (cron("0 0 31 4,6,9,11 *", "Europe/Berlin"), "0 0 31 4,6,9,11 *", "it has no fire within 8 years", IMPOSSIBLE),
    (Once(at=NOW), "2026-11-30T00:00:00Z", "it is in the past, or more than 8 years away", FUTURE),
    (
        Once(wall="2040-01-01T00:00:00"), "2040-01-01T00:00:00", "it is in the past, or more than 8 years away", FUTURE,
    ),
    (
        Interval(seconds=9 * 366 * DAY, anchor=NOW), f"every {9 * 366 * DAY} s",
        "it is in the past, or more than 8 years away", FUTURE,
    ),
    (
        Once(wall="2027-03-28T02:30:00", zone="Europe/Berlin", gap=Gap.SKIP), "2027-03-28T02:30:00",
        "that time does not exist, or exists twice, in Europe/Berlin, and the policy is to skip it", OFFSET,
    ),
])
def test_what_never_fires_within_8_years_is_refused(schedule: Schedule, said: str, reason: str, hint: str) -> None:
    assert not has_fire_within(schedule, NOW)
    with pytest.raises(ScheduleRefused) as refused:
        require_fire(schedule, NOW)
    assert (str(refused.value), refused.value.hint) == (f"The schedule {said!r} is refused: {reason}.", hint)


def test_a_leap_day_is_within_8_years_even_around_a_century_without_one() -> None:
    leap = cron("0 0 29 2 *")
    assert require_fire(leap, utc("2096-03-01")) == utc("2104-02-29")
    assert not has_fire_within(leap, utc("2096-03-01"), 7 * 365 * DAY)
