"""Homes with jobs, and tickers of several owners, on a clock that is moved by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.records import Policies
from cron_store.schedule import Interval
from cron_store.ticker import CronTicker, Running
from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from tests.cron_store.conftest import NOW, HandClock


class PatientClock(HandClock):
    """It moves when told to, also for those who wait: threads wait for each other, and no time passes for it."""

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.001))


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that moves when told to, of the threads of this process."""
    return PatientClock(NOW)


class Desk:
    """The work of a ticker under test: what ran, and gates for runs that have to last."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str, int | None]] = []  # profile, job, slot
        self.most: dict[str, int] = {}  # profile -> most runs at once
        self.holds: dict[str, threading.Event] = {}  # job -> what its run waits for
        self._now: dict[str, int] = {}
        self._changed = threading.Condition()
        self.outcome: Any = None

    def __call__(self, running: Running) -> Any:
        claim = running.claim
        profile = claim.home.profile
        with self._changed:
            self._now[profile] = self._now.get(profile, 0) + 1
            self.most[profile] = max(self.most.get(profile, 0), self._now[profile])
            self.ran.append((profile, claim.job_id, claim.slot))
            self._changed.notify_all()
        try:
            if claim.job_id in self.holds:
                assert self.holds[claim.job_id].wait(30)
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome(running) if callable(self.outcome) else self.outcome
        finally:
            with self._changed:
                self._now[profile] -= 1

    def wait_for(self, runs: int) -> None:
        """Until so many runs were begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ran) >= runs, timeout=30)

    def jobs(self, profile: str = "default") -> list[str]:
        return [job for name, job, _slot in self.ran if name == profile]


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def make_home(tmp_path: Path, fake_clock: FakeClock) -> Callable[..., Path]:
    """`make_home("name", jobs=2)` is a profile with jobs of a minute, `job 0` and on."""

    def make(name: str = "default", jobs: int = 1, seconds: int = 60, **policies: Any) -> Path:
        path = tmp_path / "root" if name == "default" else tmp_path / "root" / "profiles" / name
        with open_store(path, clock=fake_clock, durability="process") as store:
            cron = Cron(store)
            for number in range(jobs):
                schedule = Interval(seconds=seconds, anchor=int(fake_clock.now()))
                cron.add(f"job {number}", schedule, policies=Policies(**policies))
        return path

    return make


@pytest.fixture
def make_ticker(fake_clock: FakeClock, desk: Desk) -> Iterator[Callable[..., CronTicker]]:
    """`make_ticker(homes=[...])`; each is drained at the end."""
    made: list[CronTicker] = []

    def make(**how: Any) -> CronTicker:
        ticker = CronTicker(how.pop("work", desk), clock=how.pop("clock", fake_clock), **how)
        made.append(ticker)
        return ticker

    yield make
    for hold in desk.holds.values():
        hold.set()
    for ticker in made:
        ticker.drain(seconds=10)
