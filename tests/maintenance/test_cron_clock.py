"""`hermes cron status` and `accept-clock` of a home whose wall clock was moved; listings with damaged jobs in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cron_store.cron import Cron
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.maintenance.test_cron_commands import Calls
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow
DAY = 86_400


@pytest.fixture(name="db")
def store_path(tmp_path: Path, fake_clock: FakeClock) -> Path:
    with open_store(path=tmp_path / "state.db"):
        pass
    return tmp_path / "state.db"


@pytest.fixture(name="cron")
def calls(run_cli: RunCli, db: Path) -> Calls:
    return Calls(run_cli, db)


def test_a_clock_in_doubt_is_said_and_a_person_accepts_it(cron: Calls, db: Path, fake_clock: FakeClock) -> None:
    """T3.23."""
    cron("add", "often", "every 1h", "--zone", "UTC")
    cron("tick", "--once")
    nothing = {"path": str(db), "step_seconds": None, "wall_at": None, "already_done": True}
    assert cron("accept-clock", "--dry-run") == nothing | {"dry_run": True}
    assert cron("accept-clock") == nothing | {"dry_run": False}
    assert cron.ran("accept-clock").stdout == "No step of the wall clock is in doubt.\n"
    fake_clock.step_wall(2 * DAY)
    with open_store(path=db, clock=fake_clock) as store:
        Cron(store).heartbeat(succeeded=True)
    ran = cron.ran("status", "--json")
    assert (ran.exit_code, ran.json["green"], ran.json["light"]) == (3, False, "clock_in_doubt")
    assert (ran.json["clock_step_seconds"], ran.json["clock_step_since_at"]) == (2 * DAY, "2027-01-17T08:00:00.000Z")
    text = cron.ran("status")
    assert text.exit_code == 3
    assert text.stdout.startswith("NOT OK: The wall clock moved by +172800 s and is not believed, since ")
    assert "run `hermes-state cron accept-clock`; else set it back." in text.stdout.splitlines()[0]
    step = {"path": str(db), "step_seconds": 2.0 * DAY, "wall_at": "2027-01-17T08:00:00.000Z", "already_done": False}
    assert cron("accept-clock", "--dry-run") == step | {"dry_run": True}
    assert cron.ran("accept-clock", "--dry-run").stdout == (
        "The wall clock moved by +172800 s, to 2027-01-17T08:00:00Z: it would be believed.\n"
    )
    assert cron("accept-clock") == step | {"dry_run": False}
    assert cron("accept-clock")["already_done"] is True
    assert cron.ran("status", "--json").json["clock_step_seconds"] is None


def test_jobs_ahead_of_the_clock_are_named_with_exit_3(cron: Calls, db: Path, fake_clock: FakeClock) -> None:
    cron("add", "often", "every 1h", "--zone", "UTC")
    cron("tick", "--once")
    fake_clock.step_wall(2 * DAY)
    cron("accept-clock")
    cron("tick", "--once", "--exec", "true")
    fake_clock.step_wall(-2 * DAY)
    cron("accept-clock")
    cron("tick", "--once", "--exec", "true")
    ran = cron.ran("status", "--json")
    assert (ran.exit_code, ran.json["light"]) == (3, "ahead")
    assert ran.json["ahead"] == [{"job_id": "often", "until_at": "2027-01-17T08:00:00.000Z"}]
    assert ran.json["ahead_since_at"] == "2027-01-15T08:00:00.000Z"
    assert cron.ran("status").stdout.startswith("NOT OK: Accounted for beyond now, ")
    cron("pause", "often", "--reason", "test")
    assert cron.ran("status").exit_code == 3, "also where nothing else is to run"


@pytest.mark.parametrize("verb", ["list", "next", "calendar", "missed", "status"])
def test_one_damaged_job_is_named_and_the_others_are_listed(
    cron: Calls, db: Path, fake_clock: FakeClock, verb: str
) -> None:
    """T3.19."""
    for job_id in ("a", "bad", "c"):
        cron("add", job_id, "every 1m", "--zone", "UTC", "--misfire", "skip")
    fake_clock.advance(3600)
    cron("tick", "--once")
    with open_store(path=db, clock=fake_clock) as store:
        store.core.write(lambda tx: tx.execute("UPDATE cron_jobs SET fields = '[1]' WHERE job_id = 'bad'"))
    ran = cron.ran(verb, "--json")
    assert ran.exit_code == 3, ran.stderr
    [named] = ran.json["unreadable"]
    assert named["job_id"] == "bad" and "its fields are no JSON object" in named["error"]
    if verb in ("list", "calendar"):
        assert [job["job_id"] for job in ran.json["jobs"]] == ["a", "c"]
    text = cron.ran(verb)
    assert text.exit_code == 3
    assert f"Cron job 'bad' in {db} cannot be read" in text.stdout
    assert f"Run `hermes-state doctor --db {db}`." in text.stdout


def test_a_page_for_a_browser_is_drawn_without_the_damaged_job(cron: Calls, db: Path, fake_clock: FakeClock) -> None:
    for job_id in ("a", "bad"):
        cron("add", job_id, "every 1m", "--zone", "UTC")
    with open_store(path=db, clock=fake_clock) as store:
        store.core.write(lambda tx: tx.execute("UPDATE cron_jobs SET fields = '[1]' WHERE job_id = 'bad'"))
    ran = cron.ran("calendar", "--html")
    assert ran.exit_code == 3 and ran.stdout.rstrip().endswith("</html>")
    assert f"Cron job 'bad' in {db} cannot be read" in ran.stderr
