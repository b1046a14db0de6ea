"""Reports of jobs that fired at another time than they said: T3.22, and 167 to 170 of `user-reports.md`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from cron_store.schedule import CronExpression, Once, from_json, host_zone, next_slots, parse, slots, to_json
from tests.support.children import PROJECT

DAY = 86_400
START = 1_767_225_600  # 2026


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def local(found: list[int], zone: str) -> set[str]:
    return {datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%H:%M") for at in found}


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"])
def test_report_167_a_daily_job_keeps_its_wall_time_across_both_changes(zone: str) -> None:
    found = slots(
        CronExpression(expression="0 9 * * *", zone=zone), utc("2026-01-01T12:00"), utc("2027-01-01T12:00")
    )
    assert len(found) == 365
    assert local(found, zone) == {"09:00"}


def test_report_168_a_time_of_another_season_uses_the_rules_of_its_date() -> None:
    """Made in winter (-05:00), due in summer (-04:00)."""
    made = datetime(2026, 1, 15, tzinfo=UTC).timestamp()
    once = parse("2026-07-01T09:00", zone="America/New_York", now=made)
    assert next_slots(once, made, 1) == [utc("2026-07-01T13:00")]


def test_report_168_the_hosts_zone_is_a_name_and_not_the_offset_of_now(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    assert host_zone({}, tmp_path) is None
    (etc / "timezone").write_text("America/New_York\n")
    assert host_zone({}, tmp_path) == "America/New_York"
    (etc / "localtime").symlink_to("../usr/share/zoneinfo/Europe/Warsaw")
    assert host_zone({}, tmp_path) == "Europe/Warsaw"
    assert host_zone({"TZ": ":Asia/Tokyo"}, tmp_path) == "Asia/Tokyo"
    assert host_zone({"TZ": ""}, tmp_path) == "UTC"
    # A rule without a name, an abbreviation, a file of one's own: somebody has to be asked.
    for without_a_name in ("CET-1CEST,M3.5.0,M10.5.0/3", "/home/me/zone", "local"):
        assert host_zone({"TZ": without_a_name}, tmp_path) is None


def test_report_169_what_is_read_back_after_a_manual_run_is_the_same_instant() -> None:
    """The next time is an instant in UTC seconds; no wall clock is stored that could be read as another zone's."""
    stored = to_json(parse("0 9 * * *", zone="Europe/Warsaw", now=0.0))
    manual_run = utc("2026-07-01T12:34") + 17
    assert next_slots(from_json(stored), manual_run, 1) == [utc("2026-07-02T07:00")]


def test_report_170_two_processes_in_different_zones_read_one_job_alike(child) -> None:
    stored = to_json(parse("0 21 * * *", zone="Asia/Shanghai", now=0.0))
    code = f"""
    from cron_store.schedule import from_json, next_slots
    print(next_slots(from_json({stored!r}), {utc("2026-07-01")}, 3))
    """
    there = [child(code, env={"TZ": zone}).finish() for zone in ("America/Los_Angeles", "Asia/Shanghai")]
    assert there == [f"{[utc('2026-07-01T13:00') + day * DAY for day in range(3)]}\n"] * 2


def test_t3_22_a_job_whose_stored_offsets_differ_fires_once_at_local_21() -> None:
    """T3.22: the same instant written as 21:00+10:00 and as 13:00+02:00 is one slot; a zone change makes a new one."""
    written = {next_slots(parse(text, zone="Australia/Brisbane", now=0.0), utc("2026-01-01"), 1)[0] for text in (
        "2026-07-01T21:00+10:00", "2026-07-01T13:00+02:00",
    )}
    assert written == {utc("2026-07-01T11:00")}
    daily = CronExpression(expression="0 21 * * *", zone="Australia/Brisbane")
    assert next_slots(daily, utc("2026-07-01"), 1) == [utc("2026-07-01T11:00")]
    moved = CronExpression(expression="0 21 * * *", zone="Europe/Berlin")
    assert next_slots(moved, utc("2026-07-01T11:00"), 2) == [utc("2026-07-01T19:00"), utc("2026-07-02T19:00")]


def test_t3_22_the_skip_of_a_change_is_a_declared_policy_and_nothing_else_is_lost() -> None:
    """Every day of ten years has exactly one 02:30, but for the day without one, which fires at 03:00 or not at all."""
    low = datetime(2020, 1, 1, 12, tzinfo=UTC)
    zone = ZoneInfo("Europe/Berlin")
    found = slots(
        CronExpression(expression="30 2 * * *", zone="Europe/Berlin"), low.timestamp(),
        (low + timedelta(days=3653)).timestamp(), limit=10_000,
    )
    shown = [datetime.fromtimestamp(at, zone) for at in found]
    assert len({moment.date() for moment in shown}) == len(shown) == 3653
    assert sorted({moment.strftime("%H:%M") for moment in shown}) == ["02:30", "03:00"]
    assert sum(moment.hour == 3 for moment in shown) == 10


def test_once_in_wall_time_moves_with_the_rules_and_an_instant_does_not() -> None:
    wall, instant = Once(wall="2026-07-01T09:00:00", zone="Africa/Cairo"), Once(at=utc("2026-07-01T06:00"))
    assert next_slots(wall, START, 1) == next_slots(instant, START, 1) == [utc("2026-07-01T06:00")]


def test_the_page_of_schedules_names_every_alias_and_policy() -> None:
    page = (PROJECT / "docs" / "cron-schedules.md").read_text(encoding="utf-8")
    for word in ("@hourly", "@midnight", "@annually", "`next`", "`first`", "`both`", "`skip`", "*/24", "L5", "15W"):
        assert word in page
