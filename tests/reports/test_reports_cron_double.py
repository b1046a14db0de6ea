"""Reports 141 to 165 and 246 to 256: jobs that run twice, in the wrong home, or stay "running"."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.records import Delivery, Succeeded
from cron_store.schedule import Interval, Once
from hermes_state.clock import FakeClock
from hermes_state.errors import WrongHome
from hermes_state.owners import Presence
from hermes_state.store import Store, open_store
from tests.cron_store.conftest import NOW, HandClock
from tests.cron_store.ticker.conftest import PatientClock
from tests.support.cli import RunCli

HOUR, DAY = 3600, 86_400


@pytest.fixture(name="clock")
def hand_clock() -> HandClock:
    return PatientClock(NOW)  # threads wait for each other in it


@pytest.fixture(name="open_home")
def homes(tmp_path: Path, clock: HandClock) -> Iterator[Callable[[str], Store]]:
    """`open_home("name")` is the store of a home, whose commits do not wait for the disk."""
    opened: list[Store] = []

    def make(name: str) -> Store:
        opened.append(open_store(tmp_path / name, clock=clock, durability="process"))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def other_owner(store: Store, clock: HandClock) -> tuple[Cron, Presence]:
    """The same home as another process has it."""
    presence = Presence(store.path.parent, clock=clock)
    return Cron(store, presence=presence), presence


@pytest.mark.slow
def test_four_schedulers_of_one_home_run_a_one_shot_and_a_window_once(
    tmp_path: Path, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    """Reports 141, 142, 143, 248, 251, 254: processes that look at one moment; the effect is a line in a file."""
    db, effects, job = tmp_path / "home" / "state.db", tmp_path / "effects", tmp_path / "job.py"
    with open_store(path=db, clock=fake_clock) as store:
        Cron(store).add("once", Once(at=NOW + 30))
        Cron(store).add("often", Interval(seconds=60, anchor=NOW))
    job.write_text(f"import json, sys; print(json.load(sys.stdin)['key'], file=open({str(effects)!r}, 'a'))")
    fake_clock.advance(60)
    command = run_cli.command("cron", "tick", "--once", "--exec", f"{sys.executable} -S {job}", "--db", db)
    ticks = [subprocess.Popen(command, env=run_cli.environment(), stderr=subprocess.PIPE) for _ in range(4)]
    assert [(tick.communicate(timeout=60)[1], tick.returncode) for tick in ticks] == [(b"", 0)] * 4
    with open_store(path=db, clock=fake_clock) as store:
        store_id = Cron(store).home.store_id
    assert sorted(effects.read_text().split()) == [f"{store_id}/often/{NOW + 60}", f"{store_id}/once/{NOW + 30}"]


def test_two_ticks_at_one_moment_claim_a_job_once(open_home: Callable[[str], Store], clock: HandClock) -> None:
    """Reports 144 and 247: claim and advance are one transaction."""
    store = open_home("home")
    ours, (theirs, presence) = Cron(store), other_owner(store, clock)
    ours.add("job", Interval(seconds=60, anchor=NOW))
    clock.advance(60)
    together, got = threading.Barrier(2), []

    def tick(cron: Cron) -> None:
        together.wait()
        got.append(len(cron.take(None, room=5).claims))

    threads = [threading.Thread(target=tick, args=(cron,)) for cron in (ours, theirs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    presence.end()
    assert sorted(got) == [0, 1]


def test_a_job_runs_for_its_own_home_only(open_home: Callable[[str], Store], clock: HandClock) -> None:
    """Report 145: three homes, the job in one, three tickers."""
    stores = [open_home(name) for name in ("default", "work", "play")]
    crons = [Cron(store) for store in stores]
    crons[0].add("brief", Interval(seconds=60, anchor=NOW))
    clock.advance(60)
    taken = [list(cron.take(None, room=5).claims) for cron in crons]
    assert [len(claims) for claims in taken] == [1, 0, 0]
    with pytest.raises(WrongHome):
        crons[1].start(taken[0][0])
    assert [cron.is_running("brief") for cron in crons] == [True, False, False]


def test_a_delivery_that_hangs_keeps_no_job_in_flight(open_home: Callable[[str], Store], clock: HandClock) -> None:
    """Report 157: what is owed is a row of the outbox; the job is free as soon as its run is over."""
    cron = Cron(store := open_home("home"))
    cron.add("job", Interval(seconds=60, anchor=NOW))
    clock.advance(60)
    (claim,) = cron.take(None).claims
    cron.start(claim)
    reply = Delivery(kind="final", transport="telegram", target="42", payload={"text": "hi"}, policy="at_most_once")
    cron.settle(claim, Succeeded(), deliveries=[reply])
    (owed,) = store.outbox.page()
    store.outbox.claim([owed.dedupe_id])  # a send that never returns
    assert cron.in_flight() == []
    clock.advance(60)
    assert len(cron.take(None).claims) == 1


def test_a_run_goes_on_and_is_recorded_after_its_caller_is_gone(
    open_home: Callable[[str], Store], clock: HandClock
) -> None:
    """Report 158: a run by hand of 200 s, whose caller is killed after 120."""
    store = open_home("home")
    worker, (caller, presence) = Cron(store), other_owner(store, clock)
    worker.add("job", Interval(seconds=DAY, anchor=NOW))
    told = caller.hand_off(caller.take_manual("job", "by hand"), detached=True)
    claim = worker.adopt(told)
    clock.advance(120)
    presence.end()
    assert worker.reap() == []
    clock.advance(80)
    worker.settle(claim, Succeeded(result={"said": "done"}))
    (run,) = worker.history(job_id="job")
    assert (str(run.state), run.run_id, run.result) == ("succeeded", "by hand", {"said": "done"})


def test_three_quick_edits_change_what_they_name_in_one_job(
    open_home: Callable[[str], Store], clock: HandClock
) -> None:
    """Report 165: rapid edits nulled model and provider in 15 of 24 jobs."""
    cron = Cron(open_home("home"))
    for number in range(24):
        cron.add(f"job {number:02}", Interval(seconds=HOUR, anchor=NOW), fields={
            "model": f"model {number}", "provider": "custom", "prompt": "?",
        })
    before = {job.job_id: job for job in cron.jobs()}
    cron.edit("job 07", fields={"prompt": "What is new?"})
    cron.edit("job 07", name="Brief")
    cron.edit("job 07", policies={"overlap": "queue"})
    after = {job.job_id: job for job in cron.jobs()}
    changed = after.pop("job 07")
    assert changed.fields == {"model": "model 7", "provider": "custom", "prompt": "What is new?"}
    assert (changed.name, changed.policies.overlap, changed.version) == ("Brief", "queue", 4)
    assert after == {job_id: job for job_id, job in before.items() if job_id != "job 07"}


def test_a_run_that_is_longer_than_its_term_is_not_run_again_while_it_is_renewed(
    open_home: Callable[[str], Store], clock: HandClock
) -> None:
    """Report 252: a lease of 30 s, a job of 60 s."""
    store = open_home("home")
    worker = Cron(store, term_seconds=30)
    other, presence = other_owner(store, clock)
    worker.add("job", Interval(seconds=60, anchor=NOW))
    clock.advance(60)
    (claim,) = worker.take(None).claims
    worker.start(claim)
    for _ in range(4):
        clock.advance(15)
        assert worker.renew([claim]) == []
        assert other.reap() == []
        assert other.take(None, room=5).claims == ()
    worker.settle(claim, Succeeded())
    presence.end()
    assert [str(run.state) for run in worker.history()] == ["succeeded"]
