"""One home with a clock that is moved by hand, and a second owner of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cron_store.cron import Cron
from cron_store.records import Claim, Job, Policies, Succeeded
from cron_store.schedule import CronExpression, Interval, Once
from hermes_state.clock import FakeClock
from hermes_state.owners import Presence
from hermes_state.store import Store, open_store

NOW = 1_800_000_000  # 2027-01-15T08:00:00Z


class HandClock(FakeClock):
    """The fake clock without its file: for one process."""

    def __init__(self, now: float) -> None:
        self._said: dict[str, Any] = {"now": now, "monotonic": 0.0}

    def _record(self) -> dict[str, Any]:
        return self._said

    def _write(self, **changes: Any) -> None:
        self._said = self._said | changes


class Jobs:
    """Short ways to declare and to run, for tests."""

    def __init__(self, cron: Cron, clock: FakeClock) -> None:
        self.cron = cron
        self.clock = clock

    def every(self, job_id: str, seconds: int = 60, **policies: object) -> Job:
        """An interval that began now."""
        schedule = Interval(seconds=seconds, anchor=int(self.clock.now()))
        return self.cron.add(job_id, schedule, policies=Policies(**policies))  # type: ignore[arg-type]

    def once(self, job_id: str, in_seconds: int = 60, **policies: object) -> Job:
        """One slot."""
        schedule = Once(at=int(self.clock.now()) + in_seconds)
        return self.cron.add(job_id, schedule, policies=Policies(**policies))  # type: ignore[arg-type]

    def cron_expression(self, job_id: str, expression: str, zone: str = "UTC", **policies: object) -> Job:
        """An expression."""
        schedule = CronExpression(expression=expression, zone=zone)
        return self.cron.add(job_id, schedule, policies=Policies(**policies))  # type: ignore[arg-type]

    def after(self, seconds: float, room: int = 10) -> list[Claim]:
        """Let time pass, then take."""
        self.clock.advance(seconds)
        return list(self.cron.take(None, room=room).claims)

    def fire(self, claim: Claim) -> None:
        """Run it well."""
        self.cron.start(claim)
        self.cron.settle(claim, Succeeded())

    def records(self, job_id: str) -> list[tuple[int, int, str, str]]:
        """First slot and last slot, in seconds from the beginning, state and reason of every record."""
        return [
            (one.slot - NOW, one.last_slot - NOW, str(one.state), one.reason) for one in self.cron.slots(job_id)
        ]


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that moves when told to, of this process only."""
    return HandClock(NOW)


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    """A home whose commits do not wait for the disk; `test_durability` has one whose commits do."""
    with open_store(tmp_path / "home", clock=fake_clock, durability="process") as opened:
        yield opened


@pytest.fixture
def cron(store: Store) -> Cron:
    return Cron(store)


@pytest.fixture
def jobs(cron: Cron, fake_clock: FakeClock) -> Jobs:
    return Jobs(cron, fake_clock)


@pytest.fixture
def another(store: Store, fake_clock: FakeClock) -> Iterator[Callable[[], tuple[Cron, Presence]]]:
    """`another()` is the same home for another owner, and what ends that owner."""
    made: list[Presence] = []

    def make() -> tuple[Cron, Presence]:
        presence = Presence(store.path.parent, clock=fake_clock)
        made.append(presence)
        return Cron(store, presence=presence), presence

    yield make
    for presence in made:
        presence.end()
