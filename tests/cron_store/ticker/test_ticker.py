"""One ticker: what is due runs once, in threads of its home, and homes come and go (T3.14 to T3.16, R63, R67)."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cron_store.cron import Cron
from cron_store.records import Failed, Succeeded
from cron_store.ticker import CronTicker, Done, Problem, Running, installation
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.cron_store.ticker.conftest import Desk

Home = Callable[..., Path]
Ticker = Callable[..., CronTicker]


def states(home: Path, clock: FakeClock, job: str = "job 0") -> list[str]:
    with open_store(home, clock=clock) as store:
        return [str(one.state) for one in Cron(store).slots(job)]


def threads() -> int:
    return sum(thread.name.startswith("cron ") for thread in threading.enumerate())


def test_what_is_due_runs_once_and_is_settled(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    home = make_home(jobs=2)
    ticker = make_ticker(homes=[home], most_parallel=4)
    assert ticker.tick().claims == ()
    fake_clock.advance(61)
    assert len(ticker.tick().claims) == 2
    assert ticker.wait_idle()
    assert ticker.tick().claims == ()
    assert sorted(desk.jobs()) == ["job 0", "job 1"]
    assert states(home, fake_clock) == ["succeeded"]
    assert ticker.in_flight() == [] and threads() == 0


def test_caps_are_those_of_each_home(make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock) -> None:
    """T3.15, R63: A=1, B=4 with 4 long jobs each: 1 and 4 at once; a cap that changes counts at the next tick."""
    first, second = make_home("a", jobs=4), make_home("b", jobs=4)
    caps = {"a": 1, "b": 4}
    desk.holds = {f"job {number}": threading.Event() for number in range(4)}
    ticker = make_ticker(homes=[first, second], most_parallel=lambda path: caps[path.name])
    fake_clock.advance(61)
    ticker.tick()
    desk.wait_for(5)
    assert {one.home.rpartition("/")[2]: one.threads for one in ticker.standings()} == {"a": 1, "b": 4}
    caps["a"] = 2
    ticker.tick()
    desk.wait_for(6)
    for hold in desk.holds.values():
        hold.set()
    ticker.wait_idle()
    ticker.tick()
    ticker.wait_idle()
    assert desk.most == {"a": 2, "b": 4}
    assert sorted(desk.jobs("a")) == sorted(desk.jobs("b")) == [f"job {number}" for number in range(4)]


@pytest.mark.parametrize("many", [6, pytest.param(200, marks=pytest.mark.campaign)])
def test_threads_and_descriptors_are_back_when_homes_leave(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, tmp_path: Path, many: int
) -> None:
    """T3.16, R63: many homes, then one: no pool and no descriptor of the others is left."""
    homes = [make_home("one")]
    ticker = make_ticker(homes=lambda: homes)
    ticker.tick()
    baseline = len(os.listdir("/proc/self/fd"))
    homes += [make_home(f"home {number}") for number in range(many - 1)]
    fake_clock.advance(61)
    assert len(ticker.tick().claims) == many
    ticker.wait_idle()
    del homes[1:]
    ticker.tick()
    assert len(ticker.standings()) == 1
    assert threads() == 0
    assert len(os.listdir("/proc/self/fd")) <= baseline
    assert len(desk.ran) == many


def test_every_profile_is_ticked_whoever_serves_its_platforms(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, tmp_path: Path
) -> None:
    """T3.14, R67: 5 profiles and the default one, nothing says that they are served: all fire."""
    make_home()
    names = [f"p{number}" for number in range(5)]
    for name in names:
        make_home(name)
    (tmp_path / "root" / "profiles" / "without a store").mkdir()
    ticker = make_ticker(homes=installation(tmp_path / "root"))
    fake_clock.advance(61)
    ticker.tick()
    ticker.wait_idle()
    assert sorted({profile for profile, _job, _slot in desk.ran}) == ["default", *names]
    assert len(desk.ran) == 6
    assert ticker.serves(tmp_path / "root" / "profiles" / "p0")
    assert not ticker.serves(tmp_path / "root" / "profiles" / "without a store")


def test_a_home_that_is_made_or_deleted_meanwhile_is_taken_in_or_let_go(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, tmp_path: Path
) -> None:
    gone = make_home("gone")
    make_home()
    ticker = make_ticker(homes=installation(tmp_path / "root"))
    ticker.tick()
    shutil.rmtree(gone)
    make_home("new")
    fake_clock.advance(61)
    done = ticker.tick()
    ticker.wait_idle()
    assert sorted({profile for profile, _job, _slot in desk.ran}) == ["default", "new"]
    assert not gone.exists(), "a home that was deleted was made again"
    assert {one.home for one in done.problems} <= {str(gone)}, "what was lost of it is told, and of no other"


def test_a_home_whose_cap_cannot_be_told_keeps_the_one_it_had_and_stops_no_other(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    caps: dict[str, object] = {"a": 1, "b": 1}
    ticker = make_ticker(
        homes=[make_home("a"), make_home("b"), make_home("new")], most_parallel=lambda path: caps[path.name]
    )
    told = []
    for _tick in range(2):
        fake_clock.advance(60)
        told += [(one.home.rpartition("/")[2], str(one.error)) for one in ticker.tick().problems]
        ticker.wait_idle()
        caps = {"b": None}
    assert [len(desk.jobs(name)) for name in ("a", "b", "new")] == [2, 2, 0]
    b = next(one.home for one in ticker.standings() if one.home.endswith("/b"))
    assert told == [
        ("new", "'new'"), ("a", "'a'"), ("b", f"most_parallel of {b} is a whole number, not None."), ("new", "'new'")
    ]


def test_one_home_that_cannot_be_read_stops_no_other(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    broken, well = make_home("broken"), make_home("well")
    (broken / "state.db").write_bytes(b"no database at all" * 100)
    ticker = make_ticker(homes=[broken, well])
    fake_clock.advance(61)
    done = ticker.tick()
    ticker.wait_idle()
    assert desk.jobs("well") == ["job 0"]
    assert [one.home for one in done.problems] == [str(broken)]
    assert next(one.said for one in ticker.standings() if one.home == str(broken)) != ""


def test_what_the_work_gives_is_what_is_written(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    home = make_home(seconds=60)
    ticker = make_ticker(homes=[home])
    outcomes = [
        None, Failed(error="no"), ValueError("bad"), SystemExit(3), lambda running: Done(outcome=Succeeded()),
        lambda running: Done(outcome=Succeeded(result={"not": {1, 2}})),  # no JSON says that
    ]
    problems: list[Problem] = []
    for outcome in outcomes:
        desk.outcome = outcome
        fake_clock.advance(60)
        problems += ticker.tick().problems
        ticker.wait_idle()
    problems += ticker.tick().problems
    assert states(home, fake_clock) == ["succeeded", "failed", "failed", "interrupted", "succeeded", "failed"]
    assert len(problems) == 1 and problems[0].job_id == "job 0"
    with open_store(home, clock=fake_clock) as store:
        errors = [run.error for run in reversed(Cron(store).history())]
    assert errors[1:4] == ["no", "ValueError: bad", "SystemExit ended its thread"]
    assert str(errors[5]).startswith("its outcome could not be recorded: InvalidInput")
    assert ticker.in_flight() == []


def test_a_drain_names_what_is_wedged_and_frees_the_rest(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """T3.5: a live thread is left alone; the other homes are let go of, and what ends later is settled all the same."""
    stuck, idle = make_home("stuck"), make_home("idle")
    desk.holds = {"job 0": threading.Event()}
    ticker = make_ticker(homes=[stuck, idle])
    with open_store(idle, clock=fake_clock) as store:
        Cron(store).pause("job 0", reason="test")
    fake_clock.advance(61)
    ticker.tick()
    desk.wait_for(1)
    fake_clock.advance(500)
    drained = ticker.drain(seconds=0.0)
    [one] = drained.wedged
    assert (one.home, one.job_id, one.seconds, one.thread) == (str(stuck), "job 0", 500.0, "cron stuck 1")
    assert not drained.is_complete
    assert ticker.tick().claims == ()
    desk.holds["job 0"].set()
    assert ticker.drain(seconds=10).is_complete
    assert states(stuck, fake_clock)[0] == "succeeded"
    assert threads() == 0


def test_a_drain_that_interrupts_says_so_to_the_run_and_to_its_row(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    home = make_home()

    def until_told(running: Running) -> None:
        assert running.stop.wait(30)
        assert running.stopped_because == "the gateway stops"

    desk.outcome = until_told
    ticker = make_ticker(homes=[home])
    fake_clock.advance(61)
    ticker.tick()
    desk.wait_for(1)
    assert ticker.drain(seconds=10, interrupt="the gateway stops").is_complete
    assert states(home, fake_clock) == ["interrupted"]


def test_a_thread_that_cannot_be_started_leaks_no_claim(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3.3, R60: at submit. The slot is due again and runs at the next tick."""
    home = make_home()
    ticker = make_ticker(homes=[home])
    fake_clock.advance(61)
    with monkeypatch.context() as broken:
        broken.setattr(threading.Thread, "start", _no_thread)
        done = ticker.tick()
    assert [str(one.error) for one in done.problems] == ["can't start new thread"]
    assert states(home, fake_clock) == ["due"] and ticker.in_flight() == []
    ticker.tick()
    ticker.wait_idle()
    assert states(home, fake_clock) == ["succeeded"]


def _no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
