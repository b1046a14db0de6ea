"""What a person writes, what is stored, and what is shown of it."""

from __future__ import annotations

import pytest

from cron_store.schedule import (
    CronExpression,
    Fold,
    Gap,
    Interval,
    Once,
    Schedule,
    describe,
    from_json,
    parse,
    to_json,
)
from hermes_state.errors import ScheduleRefused, UnknownZone

NOW = 1_796_040_000.9  # 2026-11-30 12:00:00.9 UTC
ZONE = "Europe/Warsaw"
HINT = "Write 30m (once), every 30m, 0 9 * * 1-5, @daily, or a time such as 2027-01-31T09:00."


def once(at: int, delay: int | None = None) -> Once:
    return Once(at=at, delay=delay, zone=ZONE)


@pytest.mark.parametrize("text, expected, shown", [
    ("30m", once(1_796_041_800, 1800), "once at 2026-11-30T12:30:00Z"),
    ("90 seconds", once(1_796_040_090, 90), "once at 2026-11-30T12:01:30Z"),
    ("1h 30m", once(1_796_045_400, 5400), "once at 2026-11-30T13:30:00Z"),
    ("2 Days", once(1_796_212_800, 172_800), "once at 2026-12-02T12:00:00Z"),
    ("every 30m", Interval(seconds=1800, anchor=1_796_040_000, zone=ZONE), "every 30m"),
    ("Every  2h", Interval(seconds=7200, anchor=1_796_040_000, zone=ZONE), "every 2h"),
    ("every 1h30m", Interval(seconds=5400, anchor=1_796_040_000, zone=ZONE), "every 90m"),
    ("every 1w", Interval(seconds=604_800, anchor=1_796_040_000, zone=ZONE), "every 7d"),
    ("0 9 * * mon-fri", CronExpression(expression="0 9 * * MON-FRI", zone=ZONE), "0 9 * * MON-FRI (Europe/Warsaw)"),
    ("@daily", CronExpression(expression="0 0 * * *", zone=ZONE), "0 0 * * * (Europe/Warsaw)"),
    (
        "2027-01-31T09:00", Once(wall="2027-01-31T09:00:00", zone=ZONE), "once at 2027-01-31T09:00:00 (Europe/Warsaw)",
    ),
    (
        "2027-01-31 09:00:05.5", Once(wall="2027-01-31T09:00:05", zone=ZONE),
        "once at 2027-01-31T09:00:05 (Europe/Warsaw)",
    ),
    ("2027-01-31", Once(wall="2027-01-31T00:00:00", zone=ZONE), "once at 2027-01-31T00:00:00 (Europe/Warsaw)"),
    ("2027-01-31T09:00+01:00", once(1_801_382_400), "once at 2027-01-31T08:00:00Z"),
    ("2027-01-31T08:00:00Z", once(1_801_382_400), "once at 2027-01-31T08:00:00Z"),
])
def test_a_text_is_read_as_one_kind_and_comes_back_from_its_row(text: str, expected: Schedule, shown: str) -> None:
    found = parse(text, zone=ZONE, now=NOW)
    assert (found, describe(found)) == (expected, shown)
    assert from_json(to_json(found)) == found


def test_policies_are_part_of_the_schedule() -> None:
    found = parse("30 2 * * *", zone=ZONE, now=NOW, gap=Gap.SKIP, fold=Fold.BOTH)
    assert found == CronExpression(expression="30 2 * * *", zone=ZONE, gap=Gap.SKIP, fold=Fold.BOTH)
    assert describe(found) == "30 2 * * * (Europe/Warsaw, gap skip, fold both)"
    assert to_json(found) == (
        '{"expression":"30 2 * * *","fold":"both","gap":"skip","kind":"cron","zone":"Europe/Warsaw"}'
    )
    assert from_json(to_json(found)) == found
    waiting = parse("every 10m", zone=ZONE, now=NOW, after_finish=True)
    assert describe(waiting) == "every 10m, each after the end of the one before"
    assert from_json(to_json(waiting)) == waiting


@pytest.mark.parametrize("text, reason", [
    ("", "it is empty"),
    ("every 30s", "an interval is at least a minute: a tick looks once a minute"),
    ("0m", "a duration is more than nothing and at most 100 years"),
    ("999999999d", "a duration is more than nothing and at most 100 years"),
    ("every day at 9", "'day at 9' is no duration, no expression of 5 fields and no ISO time"),
    ("tomorrow", "'tomorrow' is no duration, no expression of 5 fields and no ISO time"),
    ("-30m", "'-30m' is no duration, no expression of 5 fields and no ISO time"),
    ("1.5h", "'1.5h' is no duration, no expression of 5 fields and no ISO time"),
    ("30", "'30' is no duration, no expression of 5 fields and no ISO time"),
    ("2027-02-30T09:00", "it begins like an ISO time, and is none (day is out of range for month)"),
])
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ScheduleRefused) as refused:
        parse(text, zone=ZONE, now=NOW)
    assert (str(refused.value), refused.value.hint) == (f"The schedule {text!r} is refused: {reason}.", HINT)
    assert (refused.value.code, refused.value.exit_code) == ("schedule_refused", 2)


def test_only_an_interval_counts_from_the_end_of_a_run() -> None:
    with pytest.raises(ScheduleRefused) as refused:
        parse("@daily", zone=ZONE, now=NOW, after_finish=True)
    assert str(refused.value) == (
        "The schedule '@daily' is refused: only an interval can count from the end of a run."
    )


def test_a_zone_is_an_iana_name_whatever_the_kind() -> None:
    for text in ("30m", "every 30m", "@daily", "2027-01-31T09:00Z"):
        with pytest.raises(UnknownZone):
            parse(text, zone="local", now=NOW)


@pytest.mark.parametrize("text, reason", [
    ("{", "it is no JSON"),
    ("[]", "its kind is none of once, interval, cron"),
    ('{"kind":"yearly"}', "its kind is none of once, interval, cron"),
    ('{"kind":"interval","seconds":true,"anchor":0}', "seconds = True is not part of a schedule"),
    ('{"kind":"interval","seconds":60.0,"anchor":0}', "seconds = 60.0 is not part of a schedule"),
    ('{"kind":"interval","seconds":1,"anchor":0}', "An interval of 1 s is below 60 s."),
    ('{"kind":"cron","expression":"0 9 * * *","zone":"UTC","jitter":5}', "jitter = 5 is not part of a schedule"),
    ('{"kind":"cron","expression":"0 9 * * *","zone":"UTC","gap":"before"}', "'before' is not a valid Gap"),
])
def test_a_row_that_is_no_schedule_is_an_error_and_not_a_guess(text: str, reason: str) -> None:
    with pytest.raises(ScheduleRefused) as refused:
        from_json(text)
    assert str(refused.value) == f"The stored schedule {text!r} cannot be read: {reason.removesuffix('.')}."
    assert refused.value.hint == "Give the job a new schedule: it does not fire with this one."


def test_a_stored_expression_that_this_version_refuses_says_why() -> None:
    with pytest.raises(ScheduleRefused, match="has 5 fields, not 6"):
        from_json('{"kind":"cron","expression":"0 0 9 * * *","zone":"UTC"}')


def test_looking_at_schedules_loads_croniter_only_when_an_expression_is_read(child) -> None:
    code = """
    import sys, cron_store, cron_store.schedule as s
    s.next_slot(s.parse("every 30m", zone="UTC", now=0.0), 0.0)
    before = [name for name in ("croniter", "watchfiles", "click", "apsw") if name in sys.modules]
    s.parse("@daily", zone="UTC", now=0.0)
    print(before, "croniter" in sys.modules)
    """
    assert child(code).finish() == "[] True\n"
