"""`hermes cron tick --once` and `run`: a command does the runs, its exit status is the verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.schedule import Interval
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow
NOW = 1_800_000_000


@pytest.fixture(name="db")
def store_path(tmp_path: Path, fake_clock: FakeClock) -> Path:
    """Two jobs of every minute and one of every day, all due once."""
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        cron = Cron(store)
        for name, seconds in (("a", 60), ("b", 60), ("daily", 86_400)):
            cron.add(name, Interval(seconds=seconds, anchor=NOW), fields={"prompt": f"do {name}"}, after=NOW)
    fake_clock.advance(60)
    return tmp_path / "state.db"


def program(folder: Path, text: str) -> str:
    """A command that runs `text`, a Python program."""
    path = folder / "job.py"
    path.write_text(text)
    return f"{sys.executable} -S {path}"


def slots(db: Path, clock: FakeClock, job_id: str) -> list[tuple[int, str]]:
    with open_store(path=db, clock=clock, read_only=True) as store:
        return [(one.slot - NOW, str(one.state)) for one in Cron(store).slots(job_id)]


def test_each_run_that_is_due_is_one_start_of_the_command_with_the_claim_on_its_stdin(
    db: Path, run_cli: RunCli, fake_clock: FakeClock, tmp_path: Path
) -> None:
    told_in = str(tmp_path / "told")
    command = program(tmp_path, f"import sys; open({told_in!r}, 'a').write(sys.stdin.read()); print('ok')")
    done = run_cli("cron", "tick", "--once", "--exec", command, "--db", db, "--json").json
    assert sorted((one["job_id"], one["state"], one["error"]) for one in done["runs"]) == [
        ("a", "succeeded", None), ("b", "succeeded", None)
    ]
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert sorted((one["job_id"], one["fields"]["prompt"]) for one in told) == [("a", "do a"), ("b", "do b")]
    assert {one["slot_at"] for one in told} == {"2027-01-15T08:01:00.000Z"}
    assert sorted(one["key"] for one in told) == sorted(one["key"] for one in done["runs"])
    assert slots(db, fake_clock, "a") == [(60, "succeeded")]
    with open_store(path=db, clock=fake_clock, read_only=True) as store:
        assert [run.result for run in Cron(store).history(job_id="a")] == [{"exit_status": 0, "output": "ok\n"}]
    again = run_cli("cron", "tick", "--once", "--exec", command, "--db", db)
    assert (again.exit_code, again.stdout) == (0, "Nothing is due.\n")
    assert len((tmp_path / "told").read_text().splitlines()) == 2


def test_a_command_that_fails_or_cannot_be_started_is_a_failed_run_and_exit_3(
    db: Path, run_cli: RunCli, fake_clock: FakeClock, tmp_path: Path
) -> None:
    command = program(tmp_path, "import sys; print('half'); sys.exit('the disk is full')")
    ran = run_cli("cron", "tick", "--once", "--exec", command, "--db", db)
    assert ran.exit_code == 3
    assert sorted(ran.stdout.splitlines()) == [
        "a: failed (exit status 1: the disk is full)", "b: failed (exit status 1: the disk is full)"
    ]
    fake_clock.advance(60)
    ran = run_cli("cron", "tick", "--once", "--exec", "/no/such/program", "--db", db)
    assert "a: failed (/no/such/program cannot be started: No such file or directory)" in ran.stdout
    assert slots(db, fake_clock, "a") == [(60, "failed"), (120, "failed")]


def test_without_a_command_slots_get_their_records_and_what_is_due_waits(
    db: Path, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    dry = run_cli("cron", "tick", "--once", "--dry-run", "--db", db, "--json").json
    assert (dry["due"], dry["accounted"]) == (["a", "b"], 0)
    fake_clock.advance(600)
    done = run_cli("cron", "tick", "--once", "--db", db, "--json").json
    assert (done["due"], done["missed"], done["runs"]) == (["a", "b"], {"a": 10, "b": 10}, [])
    assert done["missed_because"] == {"a": ["coalesced"], "b": ["coalesced"]}
    assert run_cli("cron", "tick", "--once", "--exec", "true", "--db", db).exit_code == 0
    assert slots(db, fake_clock, "a") == [(60, "missed"), (660, "succeeded")]


def test_a_run_that_takes_too_long_is_ended_with_all_it_started_and_has_failed(
    db: Path, run_cli: RunCli, tmp_path: Path
) -> None:
    """Report 156: the deadline is kept from outside, whatever the worker does."""
    pids = tmp_path / "pids"
    command = program(tmp_path, f"""
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
time.sleep(600)
""")
    ran = run_cli("cron", "run", "daily", "--exec", command, "--timeout", "2", "--db", db, "--json")
    assert (ran.exit_code, ran.json["run"]["state"]) == (3, "failed")
    assert ran.json["run"]["error"] == "it took longer than 2 s and was ended"
    for pid in pids.read_text().split():
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_right_to_tick_is_not_had_while_a_job_runs(
    db: Path, run_cli: RunCli, fake_clock: FakeClock, tmp_path: Path
) -> None:
    """Reports 148 and 149: a long job of one tick makes no other one late."""
    pipe = tmp_path / "go on"
    os.mkfifo(pipe)
    command = program(tmp_path, f"""
import json, sys
told = json.load(sys.stdin)
if told["job_id"] == "a":
    open({str(pipe)!r}).read()
""")
    words = ("cron", "tick", "--once", "--exec", command, "--parallel", "2", "--db", db)
    first = subprocess.Popen(run_cli.command(*words), env=run_cli.environment(), stdout=subprocess.PIPE, text=True)
    # The open blocks until the command of the first tick reads: it runs then, and the tick waits for it.
    with pipe.open("w"):
        fake_clock.advance(60)
        done = run_cli(*words, "--json").json
        assert [(one["job_id"], one["state"]) for one in done["runs"]] == [("b", "succeeded")]
    assert first.communicate(timeout=60)[0].count("succeeded") == 2
    assert slots(db, fake_clock, "a") == [(60, "succeeded"), (120, "skipped")]
    assert slots(db, fake_clock, "b") == [(60, "succeeded"), (120, "succeeded")]


def test_a_tick_that_is_told_to_end_ends_its_runs_and_they_are_interrupted(
    db: Path, run_cli: RunCli, fake_clock: FakeClock, tmp_path: Path
) -> None:
    pipe = tmp_path / "began"
    os.mkfifo(pipe)
    command = program(tmp_path, f"import time\nopen({str(pipe)!r}, 'w').write('x')\ntime.sleep(600)")
    words = ("cron", "run", "daily", "--exec", command, "--db", db, "--json")
    running = subprocess.Popen(run_cli.command(*words), env=run_cli.environment(), stdout=subprocess.PIPE, text=True)
    assert pipe.read_text() == "x"
    running.send_signal(signal.SIGTERM)
    told: Any = json.loads(running.communicate(timeout=60)[0])
    assert (running.returncode, told["run"]["state"]) == (3, "interrupted")
    assert told["run"]["error"] == "the tick was ended by SIGTERM"


def test_a_tick_that_is_killed_takes_its_command_along_and_the_next_one_takes_the_run_back(
    db: Path, run_cli: RunCli, fake_clock: FakeClock, tmp_path: Path
) -> None:
    """Report 171: the start is durable; report 159: a dead owner keeps nobody out. And no run goes on beside the next
    one: the command and what it started are gone."""
    pipe = tmp_path / "began"
    os.mkfifo(pipe)
    # The command and its child hold the pipe open for as long as they live.
    command = program(tmp_path, f"""
import os, subprocess, sys, time
pipe = os.open({str(pipe)!r}, os.O_WRONLY)
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], pass_fds=[pipe])
os.write(pipe, f"{{os.getppid()}}\\n".encode())
time.sleep(600)
""")
    words = ("cron", "tick", "--once", "--exec", command, "--parallel", "1", "--db", db)
    ticking = subprocess.Popen(run_cli.command(*words), env=run_cli.environment())
    with pipe.open() as held:
        os.kill(int(held.readline()), signal.SIGKILL)
        ticking.wait(timeout=60)
        assert held.read() == "", "nobody has it any more"
    done = run_cli("cron", "tick", "--once", "--exec", "true", "--db", db, "--json").json
    assert [(one["to"], one["again"]) for one in done["reaped"]] == [("interrupted", False)]
    states = sorted(slots(db, fake_clock, name)[0][1] for name in ("a", "b"))
    assert states == ["interrupted", "succeeded"]


def test_a_home_that_another_process_ticks_is_refused_with_exit_75(
    db: Path, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    with open_store(path=db, clock=fake_clock) as store:
        lease = Cron(store).tick_lease(term_seconds=3600)
        ran = run_cli("cron", "tick", "--once", "--exec", "true", "--db", db, "--json")
        assert (ran.exit_code, ran.json_error["error"]["code"]) == (75, "lease_held")
        assert f"{os.getpid()}" in ran.json_error["error"]["message"]
        lease.release()


def test_a_run_by_hand_has_no_slot_and_is_not_run_again_under_the_same_id(
    db: Path, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    ran = run_cli("cron", "run", "daily", "--exec", "cat", "--run-id", "one", "--db", db)
    assert ran.exit_code == 0 and json.loads(ran.stdout)["run_id"] == "one"
    again = run_cli("cron", "run", "daily", "--exec", "cat", "--run-id", "one", "--db", db, "--json")
    assert (again.exit_code, again.json_error["error"]["code"]) == (1, "idempotency_conflict")
    assert slots(db, fake_clock, "daily") == []
    with open_store(path=db, clock=fake_clock) as store:
        cron = Cron(store)
        assert cron.next_slots("daily", 1) == [NOW + 86_400]
        assert [(run.source, run.slot) for run in cron.history(job_id="daily")] == [("manual", None)]
