"""Expressions on a naive clock: W and L5 against tables written by hand, refusals with their reasons, and cronsim."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from cron_store.schedule.expressions import Expression, expression
from hermes_state.errors import ScheduleRefused

EPOCH = datetime(1970, 1, 1)
HINT = "Five fields: minute, hour, day of month, month, day of week, such as 0 9 * * 1-5; or an alias: @daily."


def wall(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)


def days_of(text: str, year: int) -> list[str]:
    found = expression(text).between(wall(datetime(year, 1, 1)), wall(datetime(year + 1, 1, 1)))
    return [(EPOCH + timedelta(seconds=at)).strftime("%m-%d") for at in found]


# Written by hand from the calendars of 2026 and 2028 (a leap year).
@pytest.mark.parametrize("text, year, expected", [
    # 15 February, March and November 2026 are Sundays: Monday. 15 August is a Saturday: Friday.
    ("0 0 15W * *", 2026, "01-15 02-16 03-16 04-15 05-15 06-15 07-15 08-14 09-15 10-15 11-16 12-15"),
    # Never back over the start of a month: Saturday the 1st becomes Monday the 3rd.
    ("0 0 1W * *", 2026, "01-01 02-02 03-02 04-01 05-01 06-01 07-01 08-03 09-01 10-01 11-02 12-01"),
    # Never over its end; a month without the day: its last one.
    ("0 0 31W * *", 2026, "01-30 02-27 03-31 04-30 05-29 06-30 07-31 08-31 09-30 10-30 11-30 12-31"),
    ("0 0 29W 2 *", 2028, "02-29"),
    ("0 0 15W 3,8 *", 2026, "03-16 08-14"),
    ("0 0 * * L5", 2026, "01-30 02-27 03-27 04-24 05-29 06-26 07-31 08-28 09-25 10-30 11-27 12-25"),
    ("0 0 * * L0", 2026, "01-25 02-22 03-29 04-26 05-31 06-28 07-26 08-30 09-27 10-25 11-29 12-27"),
    ("0 0 L * *", 2028, "01-31 02-29 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31"),
    ("0 0 * * 5#5", 2026, "01-30 05-29 07-31 10-30"),
    # Both restricted: either. One begins with *: both.
    ("0 0 13 3,11 5", 2026, "03-06 03-13 03-20 03-27 11-06 11-13 11-20 11-27"),
    ("0 0 */10 3 1", 2026, ""),
    ("0 0 */15 6 1", 2026, "06-01"),
    ("0 0 2-31,L 2 *", 2026, " ".join(f"02-{day:02}" for day in range(2, 29))),
])
def test_days_are_those_of_a_calendar(text: str, year: int, expected: str) -> None:
    assert days_of(text, year) == expected.split()


@pytest.mark.parametrize("alias, text", [
    ("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@Weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"),
])
def test_an_alias_is_written_out(alias: str, text: str) -> None:
    assert expression(alias).text == text


@pytest.mark.parametrize("text, reason", [
    ("* * * *", "an expression has 5 fields, not 4"),
    ("0 0 9 * * 1", "an expression has 5 fields, not 6: seconds and years are not supported"),
    ("0 0 9 * * 1 2027", "an expression has 5 fields, not 7: seconds and years are not supported"),
    (
        "@reboot",
        "the alias @reboot is none of @annually, @daily, @hourly, @midnight, @monthly, @weekly, @yearly",
    ),
    ("60 * * * *", "60 is nothing that a minute field can be"),
    ("0 24 * * *", "24 is nothing that a hour field can be"),
    ("0 0 0 * *", "0 is nothing that a day of month field can be"),
    ("0 0 * 13 *", "13 is nothing that a month field can be"),
    ("0 0 * * 8", "8 is nothing that a day of week field can be"),
    ("0 0 * * 1#6", "1#6 is nothing that a day of week field can be"),
    ("1,,2 * * * *", "1,,2 is nothing that a minute field can be"),
    ("0 9 * * fun", "FUN is nothing that a day of week field can be"),
    ("R 9 * * *", "R in the minute field is a random or hashed value: write the number"),
    ("0 H * * *", "H in the hour field is a random or hashed value: write the number"),
    ("? 9 * * *", "? in the minute field: ? stands alone, for a day"),
    ("0 9 1-5W * *", "1-5W in the day of month field: W follows one day, as in 15W"),
    ("0 9 LW * *", "LW in the day of month field: W follows one day, as in 15W"),
    ("0 9 15W * 1", "15W (nearest weekday) goes with a day of week of *, not 1"),
    ("0 9 32W * *", "32W is no day of a month"),
    ("0 9 * * 1,5#2", "1,5#2 in the day of week field mixes every such day with one of the month (# or L)"),
    ("*,5 9 * * *", "*,5 in the minute field: a list with * in it is *"),
    ("0 9 * * 1/2", "1/2 in the day of week field has no end: write it as a range with a step"),
    ("0 9 * jan/2 *", "JAN/2 in the month field has no end: write it as a range with a step"),
    ("4-4/2 * * * *", "4-4/2 in the minute field is a step through one value"),
    ("*/90 * * * *", "the step of */90 does not fit the minute field, which has 60 values"),
    ("*/0 * * * *", "the step of */0 does not fit the minute field, which has 60 values"),
])
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ScheduleRefused) as refused:
        expression(text)
    assert (str(refused.value), refused.value.hint) == (f"The cron expression {text!r} is refused: {reason}.", HINT)
    assert refused.value.facts == {"text": text, "reason": reason}


@pytest.mark.parametrize("hour, elapsed", [
    ("*", True), ("*/2", True), ("*/5", True), ("*/24", False), ("0-23", False), ("3", False), ("*/6,7", False),
])
def test_an_hour_field_of_every_hour_or_every_nth_follows_elapsed_time(hour: str, elapsed: bool) -> None:
    """*/24 names one hour of the day: a daily job, which a zone that skips midnight must not lose."""
    assert expression(f"0 {hour} * * *").elapsed is elapsed


@pytest.mark.parametrize("odd, plain", [
    ("4-4 * * * *", "4 * * * *"), ("0 23/7 * * *", "0 23 * * *"), ("10/20 * * * *", "10,30,50 * * * *"),
    ("0 0 ? * ?", "0 0 * * *"), ("0 9 * * MON-fri", "0 9 * * 1-5"), ("0 9 * * 7", "0 9 * * 0"),
    ("0 22-1 * * *", "0 22,23,0,1 * * *"),
])
def test_two_spellings_of_one_thing_name_the_same_times(odd: str, plain: str) -> None:
    low, high = wall(datetime(2026, 1, 1)), wall(datetime(2026, 3, 1))
    assert list(expression(odd).between(low, high)) == list(expression(plain).between(low, high))


def field(low: int, high: int, *, names: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ordered = st.tuples(number, number).map(sorted)
    one = st.one_of(
        number.map(str), st.sampled_from((*names, *more, "*", str(low))),
        ordered.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(ordered, st.integers(1, high + 1)).map(lambda given: f"{given[0][0]}-{given[0][1]}/{given[1]}"),
        st.integers(1, high + 2).map(lambda step: f"*/{step}"),
        st.tuples(number, st.integers(1, high)).map(lambda given: f"{given[0]}/{given[1]}"),
    )
    return st.one_of(st.just("*"), st.lists(one, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(
    field(0, 59), field(0, 23), field(1, 31, more=("L",)), field(1, 12, names=("JAN", "JUN", "DEC")),
    field(0, 7, names=("SUN", "WED", "SAT"), more=("5#2", "0#1", "7#5")),
).map(" ".join)


def compare(text: str, base: datetime) -> bool:
    """Whether both accept the text; then the first 40 fires within 800 days must be equal."""
    try:
        table: Expression = expression(text)
        oracle = CronSim(text, base)
    except (ScheduleRefused, CronSimError):
        return False
    end = base + timedelta(days=800)
    expected: list[int] = []
    for fire in oracle:
        if fire >= end or len(expected) == 40:
            break
        expected.append(wall(fire))
    found: list[int] = []
    for at in table.between(wall(base) + 60, wall(end)):
        if len(found) == 40:
            break
        found.append(at)
    assert found == expected, text
    low, high = wall(base) + 60, (expected[-1] + 1 if len(expected) == 40 else wall(end))
    assert table.count(low, high) == len(expected)
    assert table.last(low, high) == (expected[-1] if expected else None)
    return True


BASES = st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1)).map(lambda at: at.replace(second=0, microsecond=0))


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=EXPRESSIONS, base=BASES)
def test_fires_on_a_naive_clock_are_those_of_cronsim(text: str, base: datetime) -> None:
    compare(text, base)


@pytest.mark.campaign
def test_fires_of_many_expressions_are_those_of_cronsim() -> None:
    both = 0

    @seed(int(os.environ.get("HERMES_STATE_SEED", "0")))
    @settings(
        max_examples=int(os.environ.get("HERMES_STATE_ROUNDS", "20000")), deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(text=EXPRESSIONS, base=BASES)
    def run(text: str, base: datetime) -> None:
        nonlocal both
        both += compare(text, base)

    run()
    print(f"{both:,} expressions that both accept: equal")
