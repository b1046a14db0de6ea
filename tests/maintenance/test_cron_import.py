"""`hermes cron import`: what comes in, is handed over, is refused. The home was made by hermes-agent 0.19.0."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.looking import Looking
from cron_store.states import JobState
from hermes_state.clock import FakeClock
from hermes_state.errors import Refused
from hermes_state.store import open_store
from maintenance.cron_import import bringing
from maintenance.cron_import.gateways import living_gateways
from maintenance.cron_import.locks import both
from maintenance.cron_import.zones import zone_of_home
from tests.support import cron_peer, peers
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow
NOW = 1_800_000_000  # 2027-01-15T08:00:00Z: some weeks after the home was made


@pytest.fixture(name="there")
def home_of_hermes_agent(tmp_path: Path) -> Path:
    return cron_peer.fixture("0.19.0", tmp_path / "there")


@pytest.fixture(name="db")
def store_path(tmp_path: Path, fake_clock: FakeClock) -> Path:
    with open_store(path=tmp_path / "here" / "state.db"):
        pass
    return tmp_path / "here" / "state.db"


@pytest.fixture(name="bring")
def import_command(run_cli: RunCli, db: Path, there: Path) -> Any:
    """Run the import; gives its document."""

    def run(*words: str) -> Any:
        ran = run_cli("cron", "import", "--from", there, *words, "--db", db, "--json")
        assert ran.exit_code == 3, ran.stderr  # one record of the home can never come in
        return ran.json

    return run


def records(there: Path) -> dict[str, dict[str, Any]]:
    found = json.loads((there / "cron" / "jobs.json").read_text())["jobs"]
    return {one["name"]: one for one in found}


def jobs(db: Path) -> dict[str, Any]:
    with open_store(path=db, read_only=True) as store:
        return {job.name: job for job in Looking(store).jobs()}


def active_on(there: Path, db: Path) -> dict[str, list[str]]:
    """On which sides each job would run."""
    found: dict[str, list[str]] = {}
    for name, record in records(there).items():
        found.setdefault(name, []).extend(["there"] if record["enabled"] else [])
    for name, job in jobs(db).items():
        found.setdefault(name, []).extend(["here"] if job.active else [])
    return found


def test_every_job_comes_in_paused_with_all_that_was_kept_of_it(bring, there: Path, db: Path) -> None:
    before = (there / "cron" / "jobs.json").read_bytes()
    planned = bring("--dry-run")
    assert (planned["new"], planned["runs"]) == ([], 5)
    assert jobs(db) == {}
    done = bring()
    assert (len(done["new"]), done["new_runs"], done["paused_there"]) == (8, 5, [])
    assert (there / "cron" / "jobs.json").read_bytes() == before
    problems = [one["problem"] for one in done["jobs"] if one["problem"]]
    assert problems == [
        "The cron expression '0 9 * * * 30' is refused: an expression has 5 fields, not 6: seconds and years are not"
        " supported."
    ]
    here, was = jobs(db), records(there)
    assert {job.state for job in here.values()} == {JobState.PAUSED}
    assert here["on holiday"].state_reason == "imported from hermes-agent, paused there: holiday until May"
    for name, job in here.items():
        kept = job.fields["imported_from_hermes_agent"]
        assert {**{key: job.fields[key] for key in job.fields if key != "imported_from_hermes_agent"},
                **kept["record"]} == was[name], "nothing of a record is lost"
        assert (job.job_id, kept["from"]) == (was[name]["id"], str(there))
    assert here["brief"].fields["x_of_a_later_release"] == {"kept": True}
    assert (here["brief"].schedule.zone, here["brief"].last_state) == ("Europe/Berlin", "succeeded")
    assert (here["half hourly"].last_state, here["half hourly"].last_error) == ("failed", "rate limit")
    assert (here["three times"].policies.repeat_times, here["three times"].repeat_completed) == (3, 1)


def test_old_runs_are_history_and_prove_no_slot(bring, there: Path, db: Path) -> None:
    bring()
    with open_store(path=db, read_only=True) as store:
        cron = Looking(store)
        runs = cron.history(source="import")
        assert [str(run.state) for run in runs] == ["unknown", "unknown", "failed", "succeeded", "succeeded"]
        assert {run.slot for run in runs} == {None}
        assert runs[0].error == "it had not ended when it was imported"
        assert runs[2].error == "rate limit"
        assert [cron.slots(job.job_id) for job in cron.jobs()] == [[]] * 8
    assert bring()["new_runs"] == 0


def test_the_next_slot_is_strictly_after_the_last_run_and_the_import(
    bring, there: Path, db: Path, fake_clock: FakeClock
) -> None:
    late = records(there)["half hourly"]
    at = "2027-01-15T10:10:00+01:00"  # an hour and ten minutes after now: a clock that was wrong there
    text = (there / "cron" / "jobs.json").read_text().replace(late["last_run_at"], at)
    (there / "cron" / "jobs.json").write_text(text)
    shown = {one["name"]: one for one in bring("--cutover", "--yes")["jobs"]}
    assert shown["brief"]["next_at"] == "2027-01-18T08:00:00.000Z", "it is 09:00 in Berlin now, a slot, and a Friday"
    assert shown["brief"]["passed_at"] == "2026-12-01T08:00:00.000Z"
    assert (shown["soon"]["next_at"], shown["soon"]["passed_at"]) == (None, "2026-11-30T13:17:58.000Z")
    assert shown["half hourly"]["next_at"] == "2027-01-15T09:17:58.000Z", "on its grid, after its last run"
    here = jobs(db)
    assert here["half hourly"].due_at == NOW + 77 * 60 + 58
    with open_store(path=db, clock=fake_clock) as store:
        assert Cron(store).take(None, room=100).claims == ()
        fake_clock.advance(3600)
        assert [claim.job.name for claim in Cron(store).take(None, room=100).claims] == ["three times"]


def test_handing_over_pauses_there_what_runs_here(bring, there: Path, db: Path) -> None:
    done = bring("--cutover", "--yes")
    sides = active_on(there, db)
    assert all(len(found) <= 1 for found in sides.values())
    assert {name for name, found in sides.items() if found == ["here"]} == {
        "brief", "half hourly", "three times", "in summer", "backup"
    }
    assert sides["with seconds"] == ["there"], "what could not come in goes on there"
    assert (sides["on holiday"], sides["soon"], sides["late"]) == ([], [], [])
    assert len(done["paused_there"]) == 7
    assert records(there)["brief"]["paused_reason"] == "handed over to hermes-state"
    again = bring("--cutover", "--yes")
    assert (again["paused_there"], again["resumed"], active_on(there, db)) == ([], [], sides)


def test_a_job_that_ran_its_last_time_there_never_runs_here(bring, there: Path, db: Path) -> None:
    bring("--cutover", "--yes")
    here = jobs(db)["late"]
    assert (here.repeat_completed, here.policies.repeat_times, here.active) == (1, 1, False)
    with open_store(path=db) as store:
        assert Cron(store).resume(here.job_id).state is JobState.COMPLETED


def test_a_cutover_that_was_broken_off_runs_no_job_twice_and_is_finished_by_the_same_command(
    bring, there: Path, db: Path, fake_clock: FakeClock
) -> None:
    zone = zone_of_home(there, {})
    intake = bringing.take_in(there, zone, fake_clock)
    with open_store(path=db, clock=fake_clock) as store, both(there / "cron", fake_clock, wait_seconds=0) as locks:
        bringing.bring_in(store, intake)
        bringing._pause_there(intake, {job.job_id for job in intake.jobs if job.active_there}, locks, fake_clock.now())
    assert {len(found) for name, found in active_on(there, db).items() if name != "with seconds"} == {0}
    assert len(bring("--cutover", "--yes")["resumed"]) == 5
    assert active_on(there, db)["brief"] == ["here"]


def test_a_trial_is_brought_up_to_date_unless_somebody_changed_it_here(bring, there: Path, db: Path) -> None:
    bring()
    ids = {name: record["id"] for name, record in records(there).items()}
    with open_store(path=db) as store:
        cron = Cron(store)
        cron.edit(ids["backup"], name="my backup")
        cron.remove(ids["in summer"], actor="test", reason="test")
    text = (there / "cron" / "jobs.json").read_text()
    (there / "cron" / "jobs.json").write_text(text.replace("What is new?", "What is new today?"))
    done = bring("--cutover", "--yes")
    assert done["present"] == [ids["backup"]] and done["removed"] == [ids["in summer"]] and len(done["renewed"]) == 6
    assert jobs(db)["brief"].fields["prompt"] == "What is new today?"
    assert jobs(db)["my backup"].active and not records(there)["backup"]["enabled"], "it runs on one side"
    assert records(there)["in summer"]["enabled"], "what was removed here goes on there"


def test_what_was_tried_here_before_the_cutover_runs_on_one_side_and_each_job_is_named_with_it(
    bring, run_cli: RunCli, there: Path, db: Path
) -> None:
    bring()
    ids = {name: record["id"] for name, record in records(there).items()}
    assert run_cli("cron", "edit", ids["brief"], "--name", "morning", "--db", db).exit_code == 0
    assert run_cli("cron", "run", ids["backup"], "--exec", "true", "--db", db).exit_code == 0
    with open_store(path=db) as store:
        cron = Cron(store)
        for name in ("half hourly", "three times"):
            cron.resume(ids[name])
        cron.pause(ids["half hourly"], reason="not yet")
    told = bring("--cutover", "--yes")
    assert {one["job_id"]: (one["runs"], one["why"]) for one in told["sides"]} == {
        ids["brief"]: ("here", ""), ids["backup"]: ("here", ""), ids["three times"]: ("here", ""),
        ids["in summer"]: ("here", ""), ids["half hourly"]: ("there", "paused here: not yet"),
        ids["on holiday"]: ("nowhere", "paused here: imported from hermes-agent, paused there: holiday until May"),
        ids["soon"]: ("nowhere", "no slot is left for it"), ids["late"]: ("nowhere", "no slot is left for it"),
        ids["with seconds"]: (
            "there", "not brought in: The cron expression '0 9 * * * 30' is refused: an expression has 5 fields, not 6:"
            " seconds and years are not supported.",
        ),
    }
    sides = active_on(there, db)
    assert [sides[name] for name in ("half hourly", "three times", "backup")] == [["there"], ["here"], ["here"]]
    assert jobs(db)["morning"].active and not records(there)["brief"]["enabled"]
    said = run_cli("cron", "import", "--from", there, "--cutover", "--yes", "--db", db)
    assert f"{ids['half hourly']}  'half hourly' runs on in hermes-agent (paused here: not yet)." in said.stdout
    assert f"{ids['soon']}  'soon' runs nowhere (no slot is left for it)." in said.stdout


@contextmanager
def flocked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("name", [".tick.lock", ".jobs.lock"])
def test_nothing_is_brought_in_while_hermes_agent_has_its_lock(
    name: str, run_cli: RunCli, there: Path, db: Path
) -> None:
    lock = there / "cron" / name
    with flocked(lock):
        ran = run_cli("cron", "import", "--from", there, "--wait", "0", "--db", db, "--json")
    assert ran.exit_code == 75
    what = "ticks" if name == ".tick.lock" else "writes its jobs"
    message = ran.json_error["error"]["message"]
    assert message.startswith(f"PID {os.getpid()} (") and message.endswith(
        f") has {lock}: hermes-agent {what} now. Nothing was changed."
    )
    assert jobs(db) == {}


def test_a_living_gateway_keeps_the_jobs_there(run_cli: RunCli, there: Path, db: Path, tmp_path: Path) -> None:
    words = ("cron", "import", "--from", there, "--cutover", "--yes", "--db", db, "--json")
    with flocked(there / "gateway.lock"):
        ran = run_cli(*words)
    assert (ran.exit_code, ran.json_error["error"]["code"]) == (1, "refused")
    assert ran.json_error["error"]["message"].startswith(
        f"A gateway of hermes-agent lives ({there / 'gateway.lock'} is held)"
    )
    script = tmp_path / "hermes"
    script.write_text("import sys\nsys.stdin.read()\n")
    with subprocess.Popen([sys.executable, "-S", script, "gateway", "run"], stdin=subprocess.PIPE) as gateway:
        (there / "gateway.pid").write_text(json.dumps({"pid": gateway.pid, "kind": "hermes-gateway"}))
        ran = run_cli(*words)
        assert gateway.stdin is not None
        gateway.stdin.close()
    assert f"PID {gateway.pid} would go on with runs that it has begun" in ran.json_error["error"]["message"]
    for home, lives in ((there, True), (tmp_path, False)):
        serve = [sys.executable, "-S", str(script), "serve"]
        environment = os.environ | {"HERMES_HOME": str(home)}
        with subprocess.Popen(serve, stdin=subprocess.PIPE, env=environment) as server:
            found = [one.pid for one in living_gateways(there, {})]
            assert (server.pid in found) is lives
            assert server.stdin is not None
            server.stdin.close()
    assert jobs(db) == {} and records(there)["brief"]["enabled"]
    assert run_cli(*words).exit_code == 3, "the record of a gateway that is gone stops nobody"


def test_a_home_that_has_jobs_and_no_store_gets_one(run_cli: RunCli, there: Path) -> None:
    for words in (("--dry-run",), ()):
        done = run_cli("cron", "import", "--home", there, "--new", *words, "--json")
        assert (done.exit_code, len(done.json["new"])) == (3, 0 if words else 8), done.stderr
        assert (there / "state.db").exists() is not bool(words)


def test_a_cutover_asks_first(run_cli: RunCli, there: Path, db: Path) -> None:
    ran = run_cli("cron", "import", "--from", there, "--cutover", "--db", db)
    assert (ran.exit_code, ran.stdout) == (1, "") and "there is no terminal to ask on" in ran.stderr
    assert jobs(db) == {} and records(there)["brief"]["enabled"]


def test_locks_that_were_had_for_too_long_count_no_more(there: Path, db: Path, fake_clock: FakeClock) -> None:
    """hermes-agent waits 30 s for `.jobs.lock` and then writes without it."""
    intake = bringing.take_in(there, zone_of_home(there, {}), fake_clock)
    with open_store(path=db, clock=fake_clock) as store, both(there / "cron", fake_clock, wait_seconds=0) as locks:
        done = bringing.bring_in(store, intake)
        fake_clock.advance(26)
        with pytest.raises(Refused) as caught:
            bringing.hand_over(store, intake, done, locks)
    assert caught.value.message == (
        f"{there / 'cron' / 'jobs.json'} changed, or it took so long that hermes-agent writes without its lock. Every"
        " job is here, paused; none was handed over."
    )
    assert all("here" not in found for found in active_on(there, db).values())
    assert [path.name for path in (there / "cron").iterdir() if path.name.endswith(".tmp")] == []


def test_a_home_without_a_zone_is_a_question(run_cli: RunCli, there: Path, db: Path) -> None:
    (there / "config.yaml").write_text("model: x\n")
    nowhere = {"TZ": "CET-1CEST"}
    ran = run_cli("cron", "import", "--from", there, "--db", db, "--json", env=nowhere)
    assert (ran.exit_code, ran.json_error["error"]["code"]) == (2, "invalid_input")
    assert ran.json_error["error"]["message"] == (
        f"In which time zone are the cron jobs of {there}? Neither they, nor HERMES_TIMEZONE, nor its config.yaml, nor"
        " this machine names one."
    )
    words = ("cron", "import", "--from", there, "--dry-run", "--db", db, "--json")
    by = {
        run_cli(*words, *more, env=env).json["jobs"][0]["zone_by"]
        for more, env in [
            (("--zone", "Asia/Tokyo"), nowhere), ((), nowhere | {"HERMES_TIMEZONE": "Asia/Tokyo"}), ((), {"TZ": "UTC"})
        ]
    }
    assert by == {"--zone", "HERMES_TIMEZONE", "this machine"}
    (there / ".env").write_text("KEY=x\nexport HERMES_TIMEZONE='Asia/Tokyo'\n")
    assert run_cli(*words, env=nowhere).json["jobs"][0]["zone_by"] == str(there / ".env")
    document = json.loads((there / "cron" / "jobs.json").read_text())
    document["jobs"][0]["schedule"]["tz"] = "America/New_York"
    (there / "cron" / "jobs.json").write_text(json.dumps(document))
    first = run_cli(*words, env=nowhere).json["jobs"][0]
    assert (first["zone"], first["zone_by"]) == ("America/New_York", "the job")


def test_what_is_no_cron_of_hermes_agent_up_to_0_19_is_refused(run_cli: RunCli, there: Path, db: Path) -> None:
    words = ("cron", "import", "--from", there, "--db", db, "--json")
    (there / "cron" / "runtime.db").touch()
    assert "is of a hermes-agent later than 0.19.0" in run_cli(*words).json_error["error"]["message"]
    (there / "cron" / "runtime.db").unlink()
    (there / "cron" / "jobs.json").write_text('{"jobs": [')
    assert "cannot be read as hermes-agent's jobs: it is no JSON" in run_cli(*words).json_error["error"]["message"]
    (there / "cron" / "jobs.json").write_text('\ufeff[{"id": "a/b"}, 7, {"id": "x", "schedule": "every 30m"}]')
    done = run_cli(*words)
    assert done.exit_code == 3
    assert [one["problem"] for one in done.json["jobs"]] == [
        "job_id is one line without '/' and without spaces at its ends, not 'a/b'.", "it is no object: 7",
        "its schedule is no object: 'every 30m'",
    ]
    (there / "cron" / "jobs.json").unlink()
    assert run_cli(*words).json_error["error"]["code"] == "not_found"


@pytest.mark.skipif(peers.find("0.19.0") is None, reason="HERMES_PEERS does not hold hermes-agent 0.19.0")
def test_hermes_agent_itself_neither_ticks_nor_writes_meanwhile_and_runs_nothing_afterwards(
    bring, there: Path, db: Path, fake_clock: FakeClock, tmp_path: Path
) -> None:
    peer = peers.find("0.19.0")
    assert peer is not None
    look = (
        "import json, threading; from cron import jobs, scheduler\n"
        "jobs._JOBS_LOCK_TIMEOUT_SECONDS = 0.2\n"
        "ran = scheduler.tick(verbose=True)\n"
        "print(json.dumps({'ran': ran, 'due': [job['name'] for job in jobs.get_due_jobs()],"
        " 'enabled': [job['name'] for job in jobs.list_jobs()]}))\n"
    )
    with both(there / "cron", fake_clock, wait_seconds=0):
        said = cron_peer.make_home(peer.python, there, "import json; from cron import scheduler\n"
                                   "print(json.dumps({'ran': scheduler.tick(verbose=True)}))", config="")
        assert said == {"ran": 0}
    bring("--cutover", "--yes")
    said = cron_peer.make_home(peer.python, there, look, config="")
    assert (said["ran"], said["due"], said["enabled"]) == (0, [], ["with seconds"])
