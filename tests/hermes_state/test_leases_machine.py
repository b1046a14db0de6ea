"""The state machine of leases, played by owners on three clocks with jumps, deaths, sleeps and restarts.

Three things must hold whatever happens: a guarded write goes through for the one present holder in good time and for
nobody else; a lease is taken early from nobody who is not provably dead; and the fence rises by one with every owner.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hermes_state.clock import FakeClock
from hermes_state.engine.core import Core
from hermes_state.engine.create import create_store
from hermes_state.errors import LeaseHeld, LeaseLost, StaleFence
from hermes_state.leases import Lease, Leases, silence_needed
from hermes_state.owners import Presence

TERM = 30.0
# Clock domains: two that share boot and time namespace, one of another time namespace, one of another boot.
DOMAINS: tuple[dict[str, str | float], ...] = (
    {"time_namespace": "first", "boottime_offset": 1000.0},
    {"time_namespace": "second", "boottime_offset": 77.0},
    {"time_namespace": "first", "boot_id": "another boot", "boottime_offset": 0.0},
)


# The clock domain of each owner: three that share one, and one in each of the others.
OWNERS = (0, 0, 0, 1, 2)
owners = st.integers(0, len(OWNERS) - 1)
leases = st.sampled_from([0, 0, 0, 1, 2])  # the newest most of all


class Owner:
    """A process of the model: its clock domain, its identity, and its view of the store."""

    def __init__(self, core: Core, domain: int) -> None:
        self.domain = domain
        self.presence = Presence(core.path.parent, clock=core.clock)
        self.leases = Leases(core, presence=self.presence)
        self.alive = True


class LeaseMachine(RuleBasedStateMachine):
    """The model keeps true time, and who was given which fence until when."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        home = Path(self.folder.name)
        self.clock = FakeClock(home / "clock.json", now=1.8e9)
        create_store(home / "state.db", clock=self.clock)
        self.cores = [
            Core(home / "state.db", read_only=False, clock=self.clock.elsewhere(home / f"{number}.json", **domain))
            for number, domain in enumerate(DOMAINS)
        ]
        self.owners = [Owner(self.cores[domain], domain) for domain in OWNERS]
        self.fence = 0  # the highest given out
        self.granted: tuple[Owner, float] | None = None  # who has it, and when it was last acquired or renewed
        self.given: list[tuple[Owner, Lease]] = []  # every lease, newest first

    def teardown(self) -> None:
        if not hasattr(self, "cores"):
            return
        for owner in self.owners:
            owner.presence.end()
        for core in self.cores:
            core.close()
        self.folder.cleanup()

    @rule(seconds=st.sampled_from([TERM - 1, 0.9, 0.1, TERM, silence_needed(TERM) - TERM, 5000.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(number=owners)
    def process_is_killed_and_another_starts(self, number: int) -> None:
        old = self.owners[number]
        old.alive = False
        old.presence.end()
        self.owners[number] = Owner(self.cores[old.domain], old.domain)

    @rule(number=owners)
    def acquire(self, number: int) -> None:
        owner, now = self.owners[number], self.clock.monotonic()
        try:
            lease = owner.leases.acquire("tick", term_seconds=TERM)
        except LeaseHeld:
            assert self.granted is not None, "a free lease was refused"
            holder, since = self.granted
            assert holder.domain != owner.domain or now - since < TERM, "a lease that ran out was refused"
            assert holder.alive or self.other_boot(holder, owner), "the lease of the provably dead was refused"
            return
        if self.granted is not None:
            holder, since = self.granted
            provably_dead = not holder.alive and not self.other_boot(holder, owner)
            waited = TERM if holder.domain == owner.domain else silence_needed(TERM)
            assert provably_dead or now - since >= waited, "a lease was taken from one who may be alive"
        assert lease.fence == self.fence + 1, "a fence was given out twice, or one was passed over"
        self.fence, self.granted = lease.fence, (owner, now)
        self.given.insert(0, (owner, lease))

    @staticmethod
    def other_boot(one: Owner, other: Owner) -> bool:
        return ("boot_id" in DOMAINS[one.domain]) != ("boot_id" in DOMAINS[other.domain])

    def is_current(self, owner: Owner, lease: Lease) -> bool:
        return self.granted is not None and lease.fence == self.fence and self.granted[0] is owner and owner.alive

    @precondition(lambda self: self.given)
    @rule(number=leases)
    def guarded_write(self, number: int) -> None:
        owner, lease = self.given[number % len(self.given)]
        on_time = self.is_current(owner, lease) and self.clock.monotonic() - self.granted[1] < TERM
        try:
            self.cores[owner.domain].write(lease.guard)
        except (LeaseLost, StaleFence):
            assert not on_time, "a holder in good time was stopped"
        else:
            assert on_time, "a write went through without the lease"

    @precondition(lambda self: self.given)
    @rule(number=leases)
    def renew(self, number: int) -> None:
        owner, lease = self.given[number % len(self.given)]
        may = self.is_current(owner, lease)
        try:
            lease.renew()
        except LeaseLost:
            assert not may, "a holder that nobody replaced could not renew"
        else:
            assert may, "a lease that is gone was renewed"
            self.granted = (owner, self.clock.monotonic())

    @precondition(lambda self: self.given)
    @rule(number=leases)
    def release(self, number: int) -> None:
        owner, lease = self.given[number % len(self.given)]
        may = self.is_current(owner, lease)
        assert lease.release() is may
        if may:
            self.granted = None

    @rule(number=owners, seconds=st.sampled_from([-1e7, 1e7]))
    def wall_clock_is_set_and_one_process_opens_the_store_anew(self, number: int, seconds: float) -> None:
        """It forgets what it saw."""
        self.clock.step_wall(seconds)
        owner = self.owners[number]
        owner.leases = Leases(self.cores[owner.domain], presence=owner.presence)

    @invariant()
    def fence_in_the_store_is_the_highest_given_out(self) -> None:
        if hasattr(self, "cores"):
            view = Leases(self.cores[0]).look("tick")
            assert (0 if view is None else view.fence) == self.fence
            assert view is None or view.is_free is (self.granted is None)


class TestLeaseMachine(LeaseMachine.TestCase):  # type: ignore[misc,name-defined]
    """Under pytest."""

    settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
    pytestmark = pytest.mark.slow
