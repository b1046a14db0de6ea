"""`hermes cron calendar`: days behind, days ahead, as text, as data and as a page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.looking import Looking
from cron_store.records import Failed, Succeeded
from cron_store.schedule import CronExpression, Interval
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from maintenance.cron_calendar.days import Calendar, calendar_of
from maintenance.cron_calendar.page import page
from maintenance.cron_calendar.text import lines
from tests.cron_store.conftest import HandClock
from tests.support.cli import RunCli

NOW = 1_800_000_000  # 2027-01-15T08:00:00Z, a Friday
EVIL = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


@pytest.fixture(name="db")
def week(tmp_path: Path, clock: HandClock) -> Path:
    """A week in which one job succeeded, one was off from Tuesday on, and one is called badly."""
    db = tmp_path / "state.db"
    with open_store(path=db, clock=clock, durability="process") as store:
        cron = Cron(store)
        cron.add("daily", CronExpression(expression="0 7 * * *", zone="UTC"), name="Brief")
        cron.add("often", Interval(seconds=600, anchor=NOW), name=EVIL)
        cron.add("quiet", CronExpression(expression="0 12 * * *", zone="UTC"))
        cron.pause("quiet", reason="on <b>holiday</b>")
        for day in range(7):
            clock.advance(86_400)
            for claim in cron.take(None, room=10).claims:
                cron.start(claim)
                cron.settle(claim, Succeeded() if day % 3 else Failed(error="x"))
        cron.resume("quiet")
    return db


def calendar(db: Path, clock: HandClock, *, zone: str = "UTC", behind: int = 7, ahead: int = 7) -> Calendar:
    with open_store(path=db, clock=clock, read_only=True) as store:
        cron = Looking(store)
        return calendar_of(cron, cron.jobs(), zone, days_behind=behind, days_ahead=ahead)


def test_every_slot_of_the_week_stands_on_its_day(db: Path, clock: HandClock) -> None:
    drawn = calendar(db, clock)
    daily, often, quiet = drawn.rows
    assert (str(drawn.days[0]), str(drawn.days[drawn.today]), len(drawn.days)) == ("2027-01-15", "2027-01-22", 15)
    assert [cell.outcomes for cell in daily.cells[:9]] == [
        {}, {"failed": 1}, {"succeeded": 1}, {"succeeded": 1}, {"failed": 1}, {"succeeded": 1}, {"succeeded": 1},
        {"failed": 1}, {},
    ]
    assert [sum(cell.outcomes.values()) for cell in often.cells[:8]] == [95, 144, 144, 144, 144, 144, 144, 49]
    assert drawn.totals == {"failed": 6, "succeeded": 8, "missed": 7 * 143, "skipped": 7}
    assert [cell.outcomes for cell in quiet.cells[:8]] == [{"skipped": 1}] * 7 + [{}], "a range is spread over its days"


def test_what_comes_is_said_one_by_one_or_counted(db: Path, clock: HandClock) -> None:
    drawn = calendar(db, clock, ahead=1)
    daily, often, quiet = (row.cells[drawn.today + 1] for row in drawn.rows)
    assert (daily.coming, len(daily.times), often.coming, often.times, quiet.coming) == (1, 1, 144, (), 1)
    assert list(lines(drawn))[-8:] == [
        "The next 1 day",
        "Fri 2027-01-22  today",
        "  12:00  quiet",
        "  95 times, 08:10 to 23:50  often (<script>alert(1)</script>\u241b[31m), every 10m",
        "Sat 2027-01-23",
        "  07:00  daily (Brief)",
        "  12:00  quiet",
        "  144 times, 00:00 to 23:50  often (<script>alert(1)</script>\u241b[31m), every 10m",
    ]


def test_a_day_on_which_the_clock_changes_has_as_many_slots_as_hours(tmp_path: Path, clock: HandClock) -> None:
    clock.advance(71 * 86_400)  # to Saturday, 2027-03-27
    with open_store(path=tmp_path / "state.db", clock=clock) as store:
        cron = Cron(store)
        cron.add("hourly", CronExpression(expression="0 * * * *", zone="Europe/Berlin"))
        cron.add("night", CronExpression(expression="30 2 * * *", zone="Europe/Berlin"))
        drawn = calendar_of(cron, cron.jobs(), "Europe/Berlin", days_behind=1, days_ahead=2)
    hourly, night = drawn.rows
    assert [cell.coming for cell in hourly.cells[2:]] == [23, 24]
    assert "  03:00  night" in list(lines(drawn)), "the first instant after the gap"
    assert night.cells[2].coming == 1


class Seen(HTMLParser):
    """What a browser would load or run, and the text that it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loads: list[Any] = []
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [attr for attr in attrs if attr[0] in ("src", "href", "action") or attr[0].startswith("on")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_loads_nothing_and_shows_names_as_text(db: Path, clock: HandClock) -> None:
    drawn = page(calendar(db, clock))
    seen = Seen()
    seen.feed(drawn)
    seen.close()
    assert (seen.open, seen.loads) == ([], [])
    assert not seen.tags & {"script", "b", "img", "link", "iframe", "object"}
    assert "<script>alert(1)</script>" in seen.text and "\x1b" not in drawn
    assert "default-src 'none'; style-src 'unsafe-inline'" in drawn
    assert "url(" not in drawn and "@import" not in drawn and "http" not in drawn.replace("http-equiv", "")
    assert "144 times, 00:00 to 23:50" in seen.text and "143 missed" in seen.text


def test_a_home_without_jobs_has_a_page_too(tmp_path: Path, clock: HandClock) -> None:
    with open_store(path=tmp_path / "state.db", clock=clock) as store:
        drawn = page(calendar_of(Looking(store), [], "UTC", days_behind=7, days_ahead=7))
    assert "There is no job." in drawn


@pytest.mark.slow
def test_the_verb_writes_text_data_and_the_page(
    db: Path, run_cli: RunCli, tmp_path: Path, fake_clock: FakeClock
) -> None:
    fake_clock.advance(7 * 86_400)
    told = run_cli("cron", "calendar", "--db", db, "--zone", "UTC").stdout
    assert told.startswith(f"The last 7 days of {tmp_path}, in UTC\nFri 2027-01-15\n")
    shown = run_cli("cron", "calendar", "--db", db, "--job", "daily", "--days", "1", "--json").json
    assert [(day["day"], day["outcomes"], day["coming"]) for day in shown["jobs"][0]["days"]] == [
        ("2027-01-21", {"succeeded": 1}, 0), ("2027-01-22", {"failed": 1}, 0), ("2027-01-23", {}, 1)
    ]
    where = tmp_path / "week.html"
    done = run_cli("cron", "calendar", "--db", db, "--html", "--output", where)
    assert (done.exit_code, done.stdout) == (0, "")
    assert where.read_text() == run_cli("cron", "calendar", "--db", db, "--html").stdout
