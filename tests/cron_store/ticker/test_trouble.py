"""What goes wrong beside a run: verdicts that cannot be written, claims and leases that are lost (T3.3, R60, R66,
R71)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.records import Interrupted, Settled
from cron_store.runs.foreign import release_anywhere
from cron_store.ticker import CronTicker, Running
from hermes_state.clock import FakeClock
from hermes_state.errors import DiskFull, LeaseLost, LockTimeout, StaleFence
from hermes_state.owners import Presence
from hermes_state.store import open_store
from tests.cron_store.ticker.conftest import Desk

Home = Callable[..., Path]
Ticker = Callable[..., CronTicker]


def states(home: Path, clock: FakeClock, job: str = "job 0") -> list[str]:
    with open_store(home, clock=clock) as store:
        return [str(one.state) for one in Cron(store).slots(job)]


@pytest.mark.parametrize("error", [DiskFull("full"), LockTimeout("busy", holders=(), waited_seconds=20.0)])
def test_a_verdict_that_cannot_be_written_is_kept_and_written_later(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """T3.3, report 160: at mark. The run is not run again meanwhile, and its claim is renewed."""
    home = make_home()
    ticker = make_ticker(homes=[home])

    def full(self: Cron, *given: Any, **named: Any) -> Settled:
        raise error

    fake_clock.advance(60)
    with monkeypatch.context() as broken:
        broken.setattr(Cron, "settle", full)
        ticker.tick()
        ticker.wait_idle()
        assert [claim.job_id for claim in ticker.in_flight()] == ["job 0"]
        problems = ticker.tick().problems
        assert {type(one.error) for one in problems} == {type(error)}
        for _minute in range(10):  # twice the term of a claim
            fake_clock.advance(60)
            ticker.tick()
        assert len(desk.ran) == 1 and len(ticker.drain(seconds=0).unsettled) == 1
    assert states(home, fake_clock)[0] == "running"
    assert ticker.drain().is_complete
    assert states(home, fake_clock)[0] == "succeeded"


def test_a_start_that_cannot_be_written_begins_nothing(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3.3: at run. It is let go, and is due again."""
    home = make_home()
    ticker = make_ticker(homes=[home])

    def full(self: Cron, *given: Any) -> None:
        raise DiskFull("full")

    fake_clock.advance(60)
    with monkeypatch.context() as broken:
        broken.setattr(Cron, "start", full)
        ticker.tick()
        ticker.wait_idle()
    assert desk.ran == [] and states(home, fake_clock) == ["due"]
    ticker.tick()
    ticker.wait_idle()
    assert states(home, fake_clock) == ["succeeded"] and len(desk.ran) == 1


def test_a_run_that_was_let_go_elsewhere_is_told_and_writes_nothing(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3.1, R60: from a context that means another home; within a minute its work is asked to stop."""
    home, other = make_home("a"), make_home("b")
    told = threading.Event()

    def until_told(running: Running) -> None:
        assert running.stop.wait(30)
        assert running.stopped_because == "the run is not ours any more"
        told.set()

    desk.outcome = until_told
    ticker = make_ticker(homes=[home])
    fake_clock.advance(60)
    [claim] = ticker.tick().claims
    desk.wait_for(1)
    monkeypatch.setenv("HERMES_HOME", str(other))
    assert release_anywhere(claim, clock=fake_clock)
    fake_clock.advance(60)
    problems = ticker.tick().problems
    assert told.wait(30)
    ticker.wait_idle()
    desk.outcome = None
    problems += ticker.tick().problems
    assert [type(one.error) for one in problems] == [StaleFence]
    assert states(home, fake_clock)[0] == "interrupted"
    with open_store(other, clock=fake_clock) as store:
        assert Cron(store).history() == []


def test_a_lease_that_another_took_ends_ownership_by_its_row(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """R66, R71: after a long sleep of this process another one ticks: no remembered flag says otherwise."""
    home = make_home()
    ticker = make_ticker(homes=[home])
    ticker.tick()
    assert ticker.owns_cron_tick_for(home)
    fake_clock.advance(301)
    assert not ticker.owns_cron_tick_for(home), "its term is over"
    presence = Presence(home, clock=fake_clock)
    with open_store(home, clock=fake_clock) as store:
        lease = Cron(store, presence=presence).tick_lease(term_seconds=300)
        assert [type(one.error) for one in ticker.tick().problems] == [LeaseLost]
        assert not ticker.owns_cron_tick_for(home) and ticker.serves(home)
        assert desk.ran == []
        ticker.tick()
        assert "is held by" in ticker.standings()[0].said
        lease.release()
    presence.end()
    fake_clock.advance(60)
    ticker.tick()
    ticker.wait_idle()
    assert ticker.owns_cron_tick_for(home) and len(desk.ran) == 1


def test_a_term_that_ran_out_in_a_sleep_is_renewed_where_nobody_came(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    home = make_home()
    ticker = make_ticker(homes=[home])
    ticker.tick()
    fake_clock.advance(7200)
    done = ticker.tick()
    ticker.wait_idle()
    assert done.problems == () and len(desk.ran) == 1
    assert states(home, fake_clock) == ["missed", "succeeded"], "one range, and the newest slot"


def test_a_job_that_cannot_be_read_keeps_its_home_from_being_green(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """T3.19, R79: the others run, the reason is in the home's row, and it goes once the job can be read."""
    from cron_store.ticker import Light, home_status

    home = make_home(jobs=2)
    with open_store(home, clock=fake_clock) as store:
        store.core.write(lambda tx: tx.execute("UPDATE cron_jobs SET job_id = 'lost' WHERE job_id = 'job 0'"))
        ticker = make_ticker(homes=[home], most_parallel=2)
        fake_clock.advance(60)
        problems = ticker.tick().problems
        ticker.wait_idle()
        assert [one.job_id for one in problems] == ["job 0"] and desk.jobs() == ["job 1"]
        status = home_status(Cron(store))
        assert status.light is Light.FAILING and "1 jobs are not run, the first is job 0" in status.text
        store.core.write(lambda tx: tx.execute("UPDATE cron_jobs SET job_id = 'job 0' WHERE job_id = 'lost'"))
        fake_clock.advance(30)
        ticker.tick()
        ticker.wait_idle()
        assert sorted(desk.jobs()) == ["job 0", "job 1"] and home_status(Cron(store)).is_green


def test_interrupted_work_is_not_believed(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    home = make_home()
    desk.outcome = Interrupted(why="it was told to stop")
    ticker = make_ticker(homes=[home])
    fake_clock.advance(60)
    ticker.tick()
    ticker.wait_idle()
    assert states(home, fake_clock) == ["interrupted"]


def test_a_home_that_was_deleted_and_made_anew_has_nothing_of_the_old_one(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, tmp_path: Path
) -> None:
    """A late run of the old one writes nothing there, and the new one is ticked under a lease of its own."""
    import shutil

    home = make_home("again")
    desk.holds = {"job 0": threading.Event()}
    ticker = make_ticker(homes=[home])
    fake_clock.advance(60)
    ticker.tick()
    desk.wait_for(1)
    assert ticker._openings.close(ticker._seats[str(home)])
    shutil.rmtree(home)
    make_home("again")
    desk.holds["job 0"].set()
    ticker.wait_idle()
    fake_clock.advance(60)
    problems = ticker.tick().problems
    ticker.wait_idle()
    fake_clock.advance(1)
    problems += ticker.tick().problems
    ticker.wait_idle()
    assert "WrongHome" in {type(one.error).__name__ for one in problems}
    assert states(home, fake_clock) == ["succeeded"]
    assert ticker.owns_cron_tick_for(home) and ticker.in_flight() == []


def test_a_finder_or_a_listener_that_fails_stops_no_tick(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    home, fails = make_home(), False

    def find() -> list[Path]:
        if fails:
            raise OSError("the folder cannot be read")
        return [home]

    def listen(problem: object) -> None:
        raise ValueError("the listener fails")

    ticker = make_ticker(homes=find, on_problem=listen)
    ticker.tick()
    fails = True
    fake_clock.advance(60)
    problems = ticker.tick().problems
    ticker.wait_idle()
    assert [str(one.error) for one in problems] == ["the folder cannot be read", "the listener fails"]
    assert desk.jobs() == ["job 0"]


def test_a_home_that_fails_is_signed_for_once_and_not_without_end(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between ticks homes say that they live; one that cannot is left until it is due again."""
    home = make_home(seconds=3600)
    ticker = make_ticker(homes=[home])
    ticker.tick()
    fake_clock.advance(100)

    def full(self: Cron, *given: Any, **named: Any) -> None:
        raise DiskFull("full")

    with monkeypatch.context() as broken:
        broken.setattr(Cron, "heartbeat", full)
        assert ticker.sign() and not ticker.sign()
        assert {type(one.error) for one in ticker.tick(signs=False).problems} == {DiskFull}
    fake_clock.advance(100)
    assert ticker.sign() and ticker.tick(signs=False).problems == ()
    with open_store(home, clock=fake_clock) as store:
        heard = Cron(store).ticker()
    assert heard is not None and heard.success_at == fake_clock.now()


def test_a_home_that_is_deleted_while_its_job_runs_holds_up_no_other(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """Its run is asked to stop; homes come and are ticked meanwhile; it is let go of when its thread is over."""
    import shutil

    gone, homes = make_home("gone"), []
    homes.append(gone)
    desk.holds = {"job 0": threading.Event()}
    ticker = make_ticker(homes=lambda: homes)
    fake_clock.advance(60)
    ticker.tick()
    desk.wait_for(1)
    shutil.rmtree(gone)
    homes.append(make_home("new", jobs=0))
    for _minute in range(3):
        fake_clock.advance(60)
        ticker.tick()
    assert ticker.owns_cron_tick_for(homes[1])
    desk.holds["job 0"].set()
    ticker.wait_idle()
    ticker.tick()
    assert [one.home for one in ticker.standings()] == [str(homes[1])]
    assert ticker.in_flight() == [] and not gone.exists()
