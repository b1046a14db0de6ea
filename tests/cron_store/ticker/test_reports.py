"""What users reported of schedulers, at a ticker (reports 141, 143, 145, 148, 149, 156, 157, 160, 252, 254)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from cron_store.cron import Cron
from cron_store.schedule import Interval
from cron_store.ticker import CronTicker
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.cron_store.ticker.conftest import Desk

Home = Callable[..., Path]
Ticker = Callable[..., CronTicker]


def test_three_tickers_of_three_homes_run_a_job_once_and_in_its_own_home(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """Reports 141, 143, 145, 254: a gateway, a server and a desktop app tick the same homes; one has the job."""
    homes = [make_home("a", jobs=0), make_home("b"), make_home("c", jobs=0)]
    tickers = [make_ticker(homes=homes) for _process in range(3)]
    for _minute in range(4):
        fake_clock.advance(60)
        for ticker in tickers:
            ticker.tick()
        for ticker in tickers:
            ticker.wait_idle()
    assert [(profile, job) for profile, job, _slot in desk.ran] == [("b", "job 0")] * 4
    assert len({slot for _profile, _job, slot in desk.ran}) == 4
    assert sum(ticker.owns_cron_tick_for(homes[1]) for ticker in tickers) == 1


def test_a_long_job_neither_delays_others_nor_is_run_again_when_its_term_is_over(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """Reports 148, 149, 252: a job of 12 minutes beside one of a minute; the term of a claim is 5 minutes."""
    home = make_home(jobs=0)
    with open_store(home, clock=fake_clock) as store:
        cron = Cron(store)
        cron.add("long", Interval(seconds=3600, anchor=int(fake_clock.now()) - 3540))
        cron.add("short", Interval(seconds=60, anchor=int(fake_clock.now())))
    desk.holds = {"long": threading.Event()}
    ticker, other = make_ticker(homes=[home], most_parallel=2), make_ticker(homes=[home], most_parallel=2)
    for minute in range(1, 13):
        fake_clock.advance(60)
        ticker.tick()
        other.tick()
        desk.wait_for(minute + 1)
        while "short" in {claim.job_id for claim in ticker.in_flight()}:
            threading.Event().wait(0.001)
    assert desk.jobs().count("short") == 12 and desk.jobs().count("long") == 1
    with open_store(home, clock=fake_clock) as store:
        assert Cron(store).is_running("long")
        desk.holds["long"].set()
        ticker.wait_idle()
        assert [str(run.state) for run in Cron(store).history(job_id="long")] == ["succeeded"]


def test_slots_of_a_home_without_a_free_thread_are_accounted_for_and_run_later(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """Report 148: what is due is told whether or not something runs; nothing is skipped without a trace."""
    home = make_home(jobs=3, seconds=3600)
    desk.holds = {f"job {number}": threading.Event() for number in range(3)}
    ticker = make_ticker(homes=[home], most_parallel=1)
    fake_clock.advance(3600)
    ticker.tick()
    desk.wait_for(1)
    for _minute in range(10):
        fake_clock.advance(60)
        assert ticker.tick().claims == ()
    with open_store(home, clock=fake_clock) as store:
        slots = {job: [str(one.state) for one in Cron(store).slots(job)] for job in desk.holds}
    assert sorted(slots.values()) == [["due"], ["due"], ["running"]]
    for hold in desk.holds.values():
        hold.set()
    for _run in range(3):
        ticker.wait_idle()
        ticker.tick()
    assert sorted(desk.jobs()) == ["job 0", "job 1", "job 2"]


def test_work_that_ignores_its_interruption_does_not_hold_the_end_of_the_program(
    make_home: Home, make_ticker: Ticker, desk: Desk, fake_clock: FakeClock
) -> None:
    """Reports 156, 157: a drain is bounded and names it; when it ends after all, it was interrupted."""
    home = make_home()
    desk.holds = {"job 0": threading.Event()}
    ticker = make_ticker(homes=[home])
    fake_clock.advance(60)
    ticker.tick()
    desk.wait_for(1)
    drained = ticker.drain(seconds=0.0, interrupt="an update")
    assert [one.job_id for one in drained.wedged] == ["job 0"]
    with open_store(home, clock=fake_clock) as store:
        [run] = Cron(store).in_flight()
        assert run.interrupted_reason == "an update"
        desk.holds["job 0"].set()
        assert ticker.drain(seconds=10).is_complete
        assert str(Cron(store).run(run.fence).state) == "interrupted"
