"""`hermes cron`: what each verb declares, shows, changes and refuses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.records import Failed, Succeeded
from cron_store.schedule import Interval
from hermes_state.clock import FakeClock
from hermes_state.host import host_folder, open_host
from hermes_state.host.ticking import Ticking, TickStanding, record
from hermes_state.owners.presence import presence_of
from hermes_state.store import open_store
from tests.support.cli import Result, RunCli

pytestmark = pytest.mark.slow
NOW = 1_800_000_000  # 2027-01-15T08:00:00Z, a Friday


@pytest.fixture(name="db")
def store_path(tmp_path: Path, fake_clock: FakeClock) -> Path:
    with open_store(path=tmp_path / "state.db"):
        pass
    return tmp_path / "state.db"


class Calls:
    """`hermes-state cron ... --json` on one store."""

    def __init__(self, run_cli: RunCli, db: Path) -> None:
        self._run = run_cli
        self._db = db

    def __call__(self, *words: str) -> Any:
        ran = self.ran(*words, "--json")
        assert ran.exit_code == 0, ran.stderr
        return ran.json

    def ran(self, *words: str) -> Result:
        return self._run("cron", *words, "--db", self._db)

    def refused(self, *words: str) -> tuple[int, str]:
        ran = self.ran(*words, "--json")
        assert ran.stdout == ""
        return ran.exit_code, ran.json_error["error"]["code"]


@pytest.fixture(name="cron")
def calls(run_cli: RunCli, db: Path) -> Calls:
    return Calls(run_cli, db)


def test_the_life_of_a_job_on_the_command_line(cron: Calls, db: Path, fake_clock: FakeClock) -> None:
    planned = cron("add", "brief", "0 9 * * 1-5", "--zone", "Europe/Berlin", "--prompt", "News?", "--dry-run")
    assert (planned["job"], planned["next_at"][0]) == (None, "2027-01-18T08:00:00.000Z")
    assert cron("list")["jobs"] == []
    added = cron(
        "add", "brief", "0 9 * * 1-5", "--zone", "Europe/Berlin", "--prompt", "News?", "--name", "Brief",
        "--set-json", "skills=[1]", "--misfire", "run_all", "--most-late", "3", "--session-reuse",
    )["job"]
    assert (added["state"], added["zone"], added["due_at"]) == ("scheduled", "Europe/Berlin", planned["next_at"][0])
    assert (added["policies"]["most_late"], added["policies"]["session_reuse"]) == (3, True)
    assert cron.refused("add", "brief", "30m") == (1, "job_exists")
    assert cron("add", "brief", "every 30m", "--zone", "UTC", "--replace")["job"]["version"] == 2
    assert cron("add", "brief", "0 9 * * 1-5", "--zone", "Europe/Berlin", "--replace", "--name", "Brief",
                "--set", "prompt=News?", "--set", "model=a", "--misfire", "skip")["job"]["misfire"] == "skip"
    edited = cron("edit", "Brief", "--prompt", "What is new?", "--unset", "model", "--reset", "misfire")
    assert [change["name"] for change in edited["changes"]] == ["field prompt", "field model", "misfire"]
    shown = cron("show", "brief")
    assert (shown["fields"], shown["misfire"]) == ({"prompt": "What is new?"}, "coalesce")
    assert shown["schedule_text"] == "0 9 * * 1-5 (Europe/Berlin)", "what is not named stays"
    assert cron.refused("edit", "brief", "--name", "x", "--if-version", "1") == (1, "job_moved")
    assert cron("edit", "brief", "--zone", "America/New_York", "--dry-run")["changes"] == [
        {"name": "schedule", "before": "0 9 * * 1-5 (Europe/Berlin)", "after": "0 9 * * 1-5 (America/New_York)"}
    ]
    assert cron("pause", "brief", "--reason", "holiday")["already_done"] == []
    assert cron("pause", "brief", "--reason", "again") ["already_done"] == ["brief"]
    assert cron("list", "--state", "paused")["jobs"][0]["state_reason"] == "holiday"
    fake_clock.advance(7 * 86_400)
    resumed = cron("resume", "brief")["jobs"][0]
    assert (resumed["state"], resumed["due_at"]) == ("scheduled", "2027-01-25T08:00:00.000Z")
    records = cron("history", "--job", "brief", "--slots", "--since-days", "30")["slots"]
    assert [(one["state"], one["reason"], one["count"]) for one in records] == [("skipped", "paused", 5)]
    asked = cron.ran("remove", "brief", "--reason", "over")
    assert (asked.exit_code, asked.stdout) == (1, "") and "there is no terminal to ask on" in asked.stderr
    assert cron("remove", "brief", "--reason", "over", "--yes")["in_flight"] == []
    assert cron.refused("show", "brief") == (1, "entombed")
    assert cron.refused("add", "brief", "30m", "--zone", "UTC") == (1, "entombed")
    assert cron("history", "--job", "brief", "--slots", "--since-days", "30")["slots"] == records


def test_the_next_slots_stand_in_the_zone_of_the_job_across_a_change_of_the_clock(cron: Calls) -> None:
    cron("add", "daily", "0 9 * * *", "--zone", "Europe/Berlin")
    slots = cron("next", "daily", "--count", "75")["slots"]
    assert {one["wall"].split()[2] for one in slots} == {"09:00"}
    assert [one["wall"] for one in slots if one["slot_at"][:10] in ("2027-03-27", "2027-03-28")] == [
        "Sat 2027-03-27 09:00 +0100", "Sun 2027-03-28 09:00 +0200",
    ]
    cron("add", "soon", "every 30m", "--zone", "UTC")
    assert [one["job_id"] for one in cron("next")["slots"]] == ["soon", "daily"]
    moved = cron.ran("add", "gap", "2027-03-28T02:30", "--zone", "Europe/Berlin", "--paused", "x", "--dry-run")
    assert moved.stderr == (
        "2027-03-28T02:30:00 does not come in Europe/Berlin: the clock leaves it out. It runs Sun 2027-03-28 03:00"
        " +0200; --gap skip would refuse it.\n"
    )
    cron("pause", "daily", "--reason", "x")
    assert [one["job_id"] for one in cron("next")["slots"]] == ["soon"]
    assert "are skipped" in cron.ran("next", "daily").stderr


def test_what_is_no_schedule_or_has_no_zone_is_said_and_nothing_is_written(
    cron: Calls, run_cli: RunCli, db: Path, tmp_path: Path
) -> None:
    assert cron.refused("add", "x", "0 0 30 2 *", "--zone", "UTC") == (2, "schedule_refused")
    assert cron.refused("add", "x", "next friday", "--zone", "UTC") == (2, "schedule_refused")
    assert cron.refused("add", "x", "30m", "--zone", "Mars/Base") == (2, "unknown_zone")
    assert cron.refused("show", "nobody") == (1, "job_not_found")
    ran = run_cli("cron", "add", "x", "30m", "--db", db, "--json", env={"TZ": "CET-1CEST"})
    assert ran.exit_code == 2
    assert ran.json_error["error"]["message"] == (
        "In which time zone? Neither HERMES_TIMEZONE, nor config.yaml of the home, nor this machine names one."
    )
    (tmp_path / "config.yaml").write_text("timezone: 'Asia/Tokyo'\n")
    added = run_cli("cron", "add", "x", "0 9 * * *", "--db", db, "--json", env={"TZ": "CET-1CEST"}).json
    assert added["zone"] == "Asia/Tokyo"
    said = run_cli("cron", "add", "y", "30m", "--db", db, "--json", env={"HERMES_TIMEZONE": "Asia/Tokio"})
    assert said.json_error["error"]["message"] == "HERMES_TIMEZONE names 'Asia/Tokio', which is no time zone."


def test_a_store_is_made_only_where_that_is_said(run_cli: RunCli, tmp_path: Path) -> None:
    db = tmp_path / "fresh" / "state.db"
    for words in (("add", "x", "30m", "--zone", "UTC"), ("import", "--from", str(tmp_path))):
        refused = run_cli("cron", *words, "--db", db, "--json").json_error["error"]
        assert (refused["code"], refused["message"], refused["try"]) == (
            "not_found", f"There is no store at {db}.",
            "Add --new to make it, or name another with --home, --profile or --db.",
        )
    words = ("cron", "add", "x", "30m", "--zone", "UTC", "--new", "--db", db)
    assert run_cli(*words, "--dry-run", "--json").json["job"] is None and not db.parent.exists()
    assert run_cli(*words).exit_code == 0
    listed = run_cli("cron", "list", "--db", db)
    assert listed.stdout.startswith("x  ") and "''" not in listed.stdout


def test_history_inflight_missed_and_gc_show_what_became_of_runs(
    cron: Calls, db: Path, fake_clock: FakeClock
) -> None:
    with open_store(path=db, clock=fake_clock) as store:
        home = Cron(store)
        home.add("often", Interval(seconds=60, anchor=NOW))
        for outcome in (Succeeded(), Failed(error="rate limit", failure_type="rate_limit")):
            fake_clock.advance(60)
            (claim,) = home.take(None).claims
            home.start(claim)
            home.settle(claim, outcome)
        fake_clock.advance(600)
        (claim,) = home.take(None).claims
        flying = cron("inflight")["runs"]
        assert [(one["job_id"], one["state"], one["owner_gone"]) for one in flying] == [("often", "claimed", False)]
        assert cron.refused("run", "often", "--exec", "true") == (75, "job_busy")
        home.release(claim)
    assert cron("inflight")["runs"] == []
    runs = cron("history")["runs"]
    assert [one["state"] for one in runs] == ["released", "failed", "succeeded"]
    page = cron("history", "-n", "1")
    assert cron("history", "-n", "1", "--before", str(page["next_before"]))["runs"] == [runs[1]]
    missed = cron("missed")
    assert (missed["count"], missed["slots"][0]["reason"]) == (9, "coalesced")
    shown = cron.ran("show", "often").stdout
    assert "Incident " in shown and "rate limit" in shown and "missed (coalesced)" in shown
    fake_clock.advance(40 * 86_400)
    planned = cron("gc", "--dry-run")
    done = cron("gc")
    assert (planned["slots"], done["slots"]) == (3, 3)
    assert cron("edit", "often", "--keep", "1")["job"]["policies"]["keep_executions"] == 1
    assert cron("gc", "--dry-run")["runs"] == cron("gc")["runs"] == 2


def test_status_is_green_only_after_a_tick_that_succeeded(cron: Calls, fake_clock: FakeClock) -> None:
    assert cron("status")["light"] == "never"  # no job: nothing is wrong
    cron("add", "often", "every 1m", "--zone", "UTC")
    never = cron.ran("status", "--json")
    assert (never.exit_code, never.json["green"], never.json["light"]) == (3, False, "never")
    cron("tick", "--once")
    green = cron("status")
    assert (green["green"], green["success_seconds"], green["next_due_at"]) == (True, 0, "2027-01-15T08:01:00.000Z")
    fake_clock.advance(201)
    silent = cron.ran("status")
    assert silent.exit_code == 3 and silent.stdout.startswith("NOT OK: Nobody was heard to tick this home for 201 s.")
    assert "Due, not begun: often" in silent.stdout
    # `due_at` may be of an earlier schedule: what comes after it is said too.
    assert "due since Fri 2027-01-15 08:01 +0000, then Fri 2027-01-15 08:04 +0000, never ran" in cron.ran("list").stdout
    for _minute in range(2):  # a line of a crontab that names no command
        cron.ran("tick", "--once")
        fake_clock.advance(60)
    idle = cron.ran("status")
    assert idle.exit_code == 3 and idle.stdout.startswith(
        "NOT OK: It is ticked, and 1 job that came due long ago did not begin: often. Either all the room is taken, or"
        " what ticks runs nothing (`cron tick` without --exec).\n"
    )
    cron("tick", "--once", "--exec", "true")
    fake_clock.advance(61)
    assert (cron("status")["green"], cron("status")["overdue"]) == (True, [])


def test_status_says_stale_code_with_both_revisions_and_the_command(
    cron: Calls, db: Path, fake_clock: FakeClock, run_cli: RunCli
) -> None:
    """T3.11: a recorded yield and a fresh heartbeat are no green light."""
    cron("add", "often", "every 1m", "--zone", "UTC")
    cron("tick", "--once")
    with open_store(path=db, clock=fake_clock) as store:
        home = str(Cron(store).home)
    environment = {"XDG_STATE_HOME": str(db.parent / "state")}
    folder = host_folder(environment)
    yields = Ticking(
        home=home, standing=TickStanding.YIELDS, said="it yields", code_sha="a" * 40, disk_sha="b" * 40,
        how="systemctl --user restart hermes",
    )
    with open_host(folder, clock=fake_clock) as host:
        record(host.core, presence_of(folder, clock=fake_clock), [yields])
        ran = run_cli("cron", "status", "--db", db, env=environment)
        told = run_cli("cron", "status", "--db", db, "--json", env=environment).json
    assert ran.exit_code == 3
    assert ran.stdout.splitlines()[:2] == [
        "NOT OK: STALE CODE, fires nothing: it runs aaaaaaaaaaaa, on disk is bbbbbbbbbbbb;"
        " systemctl --user restart hermes",
        f"PID {os.getpid()} yields, heard 0.0 s ago: it yields",
    ]
    assert (told["green"], told["light"], told["tickers"][0]["how"]) == (False, "stale_code", yields.how)


def test_inflight_everywhere_joins_the_homes_and_keeps_them_apart(run_cli: RunCli, tmp_path: Path, fake_clock) -> None:
    """R60: a job of one home says nothing of that of the same name in another."""
    root = tmp_path / "home"
    homes = [root, root / "profiles" / "work"]
    for home in homes:
        with open_store(home, clock=fake_clock) as store:
            Cron(store).add("brief", Interval(seconds=60, anchor=NOW))
    with open_store(homes[1], clock=fake_clock) as store:
        claim = Cron(store).take_manual("brief", "one")
        everywhere = run_cli("cron", "inflight", "--everywhere", "--json").json["runs"]
        assert [(one["home"], one["run_id"]) for one in everywhere] == [(str(homes[1]), "one")]
        assert run_cli("cron", "inflight", "--json").json["runs"] == []
        assert len(run_cli("cron", "inflight", "-p", "work", "--json").json["runs"]) == 1
        Cron(store).release(claim)
