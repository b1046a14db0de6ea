"""What is wrong with one job stays with that job: others run, and its own rows can still be changed and told of."""

from __future__ import annotations

import subprocess
import sys
import zoneinfo
from collections.abc import Callable
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.records import Succeeded
from cron_store.schedule import CronExpression, Interval, zones
from cron_store.states import JobState
from hermes_state.clock import FakeClock
from hermes_state.errors import LedgerUnreadable, UnknownZone
from hermes_state.owners import Presence
from hermes_state.store import Store
from tests.cron_store.conftest import NOW, Jobs

Another = Callable[[], tuple[Cron, Presence]]
BERLIN = "Europe/Berlin"


def force(store: Store, *statements: str) -> None:
    """Let rows say what nothing here wrote."""
    def work(tx: object) -> None:
        for statement in statements:
            tx.execute(statement)  # type: ignore[attr-defined]

    store.core.write(work)


# --- after_finish and a clock that is set back ---------------------------------------------------------------------


def test_a_clock_set_back_during_a_run_stops_no_job_that_counts_from_its_end(
    jobs: Jobs, cron: Cron, fake_clock: FakeClock
) -> None:
    cron.add("finishes", Interval(seconds=60, anchor=NOW, after_finish=True))
    jobs.every("other", 300)
    [claim] = jobs.after(60)
    cron.start(claim)
    fake_clock.step_wall(-100)
    cron.settle(claim, Succeeded())
    assert cron.job("finishes").waiting_slot == NOW + 120
    ran = []
    for _ in range(10):
        for claim in jobs.after(60):
            ran.append(claim.job_id)
            jobs.fire(claim)
    assert (ran.count("finishes"), ran.count("other")) == (8, 1)
    assert cron.edit("finishes", name="Still here").name == "Still here"


def test_a_waiting_slot_that_was_accounted_for_is_moved_after_the_mark(jobs: Jobs, cron: Cron, store: Store) -> None:
    """As an older version may have left it."""
    cron.add("finishes", Interval(seconds=60, anchor=NOW, after_finish=True))
    force(store, f"UPDATE cron_runtime SET settled_through = {NOW + 100}, next_slot = {NOW + 60}")
    assert jobs.after(60) == []
    assert cron.job("finishes").waiting_slot == NOW + 160
    assert [claim.slot for claim in jobs.after(100)] == [NOW + 160]


def test_rows_of_a_job_that_do_not_go_together_stop_no_other(jobs: Jobs, cron: Cron, store: Store) -> None:
    """What a constraint refuses is that job's."""
    jobs.every("bad")
    jobs.every("good")
    force(store, "CREATE TRIGGER damaged BEFORE INSERT ON cron_occurrences WHEN new.job_id = 'bad'"
          " BEGIN SELECT RAISE(ABORT, 'no'); END")
    jobs.clock.advance(60)
    taken = cron.take(None, room=9)
    assert [claim.job_id for claim in taken.claims] == ["good"]
    assert isinstance(taken.unreadable["bad"], LedgerUnreadable)


# --- runs of dead owners -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [
    "UPDATE cron_jobs SET fields = '[1]' WHERE job_id = 'a'", "DELETE FROM cron_schedules WHERE job_id = 'a'",
    "DELETE FROM cron_occurrences WHERE job_id = 'a'",
])
def test_a_run_of_a_job_that_cannot_be_read_keeps_no_other_in_flight(
    jobs: Jobs, cron: Cron, store: Store, another: Another, damage: str
) -> None:
    """Its owner died: it stays open and is told of; those of others are taken, and others run."""
    for job_id in ("a", "b", "c"):
        jobs.every(job_id)
    jobs.clock.advance(60)
    other, presence = another()
    for claim in other.take(None, room=9).claims:
        if claim.job_id != "c":
            other.start(claim)
        else:
            other.release(claim)
    presence.end()
    force(store, damage)
    assert [one.job_id for one in cron.reap()] == ["b"]
    taken = cron.take(None, room=9)
    assert [claim.job_id for claim in taken.claims] == ["c"]
    assert isinstance(taken.unreadable["a"], LedgerUnreadable)
    assert [run.job_id for run in cron.in_flight()] == ["a", "c"]
    assert [event.job_id for event in cron.events(kind="ledger_unreadable")] == ["a"]


def test_jobs_are_listed_without_the_one_that_cannot_be_read(jobs: Jobs, cron: Cron, store: Store) -> None:
    for job_id in ("a", "b", "c", "d"):
        jobs.every(job_id)
    force(store, "UPDATE cron_jobs SET fields = '[1]' WHERE job_id IN ('a', 'c')")
    with pytest.raises(LedgerUnreadable):
        cron.jobs()
    bad: dict[str, Exception] = {}
    assert [job.job_id for job in cron.jobs(unreadable=bad, limit=2)] == ["b", "d"]
    assert sorted(bad) == ["a", "c"]
    assert cron.recompute() == 0


# --- zones ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where zones are looked up first; nothing of them is known yet."""
    content = zones._find(BERLIN)
    assert content is not None
    place = tmp_path / "zoneinfo" / BERLIN
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path / "zoneinfo"),))
    monkeypatch.setattr(zones, "_rules", {})
    return place


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that was just started."""
    monkeypatch.setattr(zones, "_rules", {})


@pytest.mark.parametrize("cut", [4, 30, 44, 500, -8, -1])
def test_a_zone_file_that_is_cut_short_stops_the_jobs_of_that_zone_only(
    jobs: Jobs, cron: Cron, database: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    jobs.cron_expression("berlin", "* * * * *", zone=BERLIN)
    jobs.every("utc")
    whole = database.read_bytes()
    database.write_bytes(whole[:cut])
    forget(monkeypatch)
    assert [claim.job_id for claim in jobs.after(60)] == ["utc"]
    job = cron.job("berlin")
    assert (job.state, job.state_reason) == (
        JobState.ERROR,
        f"The rules of time zone 'Europe/Berlin' cannot be read: {database} is cut short or damaged.",
    )
    database.write_bytes(whole)
    assert [claim.job_id for claim in jobs.after(300) if claim.job_id == "berlin"] == ["berlin"]


def test_a_zone_file_that_is_whole_and_says_what_no_zone_can_is_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = database.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n")
    database.write_bytes(whole[:last] + b"\nnonsense\n")
    with pytest.raises(UnknownZone) as refused:
        zones.check_zone(BERLIN)
    assert str(refused.value).startswith("The rules of time zone 'Europe/Berlin' cannot be read: ")


def test_a_fresh_process_returns_from_a_file_that_is_cut_in_its_last_line(database: Path) -> None:
    """Python's own reader never does."""
    database.write_bytes(database.read_bytes()[:-1])
    code = (
        "import sys, zoneinfo; zoneinfo.reset_tzpath([sys.argv[1]])\n"
        "from cron_store.schedule import check_zone\n"
        "try: check_zone('Europe/Berlin')\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(database.parents[1])], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "UnknownZone\n"


def test_a_job_whose_zone_is_gone_can_be_given_another_paused_and_removed(
    jobs: Jobs, cron: Cron, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which slots came due meanwhile, nobody can tell: no record is made of them."""
    for job_id in ("edited", "paused", "removed"):
        jobs.cron_expression(job_id, "* * * * *", zone=BERLIN)
    database.write_bytes(b"TZif")
    forget(monkeypatch)
    jobs.after(120)
    with pytest.raises(UnknownZone):
        cron.edit("edited", name="Another")
    assert cron.edit("edited", schedule=CronExpression(expression="* * * * *", zone="UTC")).state is JobState.SCHEDULED
    assert cron.pause("paused", reason="no zone").state is JobState.PAUSED
    cron.remove("removed", actor="me", reason="no zone")
    assert [(claim.job_id, claim.slot) for claim in jobs.after(60)] == [("edited", NOW + 180)]


def test_numbers_that_no_calendar_has_stop_no_other_job(jobs: Jobs, store: Store) -> None:
    jobs.every("good")
    jobs.every("bad")
    force(
        store, "DROP TRIGGER cron_schedules_never_change",
        "UPDATE cron_schedules SET schedule = '{\"kind\":\"once\",\"wall\":\"soon\",\"zone\":\"UTC\"}'"
        " WHERE job_id = 'bad'",
    )
    assert [claim.job_id for claim in jobs.after(60)] == ["good"]
    assert jobs.cron.job("bad").state is JobState.ERROR
