"""Leases between clock domains: other boots and time namespaces, played on clocks made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine.core import Core
from hermes_state.errors import LeaseHeld, LeaseLost, StaleFence
from hermes_state.leases import Leases, silence_needed
from hermes_state.owners import Presence
from hermes_state.store import Store, open_store
from tests.hermes_state.parties import (  # noqa: F401 - fixtures are found by being here
    Party,
    first_party,
    guarded,
    lease_store,
    new_party,
    second_party,
)


@pytest.fixture
def elsewhere(tmp_path: Path, store: Store, fake_clock: FakeClock) -> Iterator[Callable[..., Party]]:
    """A party in another clock domain. One process has one core a file, so the party gets one made by hand."""
    opened: list[Core] = []

    def make(**domain: str | float) -> Party:
        clock = fake_clock.elsewhere(tmp_path / f"clock {len(opened)}.json", **domain)
        opened.append(Core(store.path, read_only=False, clock=clock))
        presence = Presence(store.path.parent, clock=clock)
        return Party(presence=presence, leases=Leases(opened[-1], presence=presence))

    yield make
    for core in opened:
        core.close()


@pytest.mark.parametrize("offset", [0.0, 1e6, -1e6], ids=["same", "ahead", "behind"])
def test_in_another_clock_domain_only_silence_for_term_and_margin_counts(
    store: Store, b: Party, elsewhere: Callable[..., Party], fake_clock: FakeClock, offset: float
) -> None:
    far = elsewhere(boot_id="another boot", boottime_offset=offset)
    held = far.acquire(term_seconds=30)
    fake_clock.advance(1000)  # it may be long over, but nobody here has looked
    with pytest.raises(LeaseHeld) as caught:
        b.acquire()
    assert caught.value.message == (
        f"Lease 'tick' in {store.path} is held by {held.owner}, not proven dead (it is this process);"
        " its clock is not ours, so it is free only after it was seen without renewal for 33 s."
    )
    assert caught.value.expires_in_seconds is None
    fake_clock.advance(silence_needed(30) - 0.1)
    with pytest.raises(LeaseHeld):
        b.acquire()
    fake_clock.advance(0.1)
    assert b.acquire().fence == 2


def test_renewal_seen_from_another_clock_domain_starts_the_watch_anew(
    b: Party, elsewhere: Callable[..., Party], fake_clock: FakeClock
) -> None:
    far = elsewhere(boot_id="another boot", boottime_offset=12345.0)
    held = far.acquire(term_seconds=30)
    for _ in range(10):
        with pytest.raises(LeaseHeld):
            b.acquire()
        fake_clock.advance(29)
        held.renew()
    with pytest.raises(LeaseHeld):
        b.acquire(wait_seconds=silence_needed(30) - 1)
    assert b.acquire(wait_seconds=5).fence == 2


def test_holder_in_another_clock_domain_that_was_replaced_is_told(
    store: Store, b: Party, elsewhere: Callable[..., Party]
) -> None:
    far = elsewhere(boot_id="another boot")
    old = far.acquire(term_seconds=30)
    new = b.acquire(wait_seconds=100)
    with pytest.raises(StaleFence):
        far.leases._core.write(old.guard)
    with pytest.raises(LeaseLost):
        old.renew()
    guarded(store, new)


def test_death_within_one_boot_is_proven_across_time_namespaces(b: Party, elsewhere: Callable[..., Party]) -> None:
    far = elsewhere(time_namespace="another", boottime_offset=5000.0)
    far.acquire(term_seconds=1e6)
    with pytest.raises(LeaseHeld):
        b.acquire()
    far.die()
    assert b.acquire().fence == 2


def test_death_in_another_boot_is_not_proven_by_a_free_lock(b: Party, elsewhere: Callable[..., Party]) -> None:
    """flock of a shared folder may not reach the other machine."""
    far = elsewhere(boot_id="another boot")
    far.acquire(term_seconds=1e6)
    far.die()
    with pytest.raises(LeaseHeld):
        b.acquire()


def test_silence_needed_is_the_term_and_the_larger_margin() -> None:
    assert [silence_needed(term) for term in (1.0, 20.0, 300.0)] == [3.0, 22.0, 330.0]


def test_after_a_reboot_the_lease_of_before_is_watched_out(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        before = Presence(tmp_path, clock=fake_clock)
        fake_clock.advance(50_000)
        Leases(store.core, presence=before).acquire("tick", term_seconds=30)
        before.end()
    fake_clock.reboot(boot_id="the next boot")
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        start = fake_clock.monotonic()
        assert store.leases.acquire("tick", term_seconds=30, wait_seconds=60).fence == 2
        assert silence_needed(30) <= fake_clock.monotonic() - start < silence_needed(30) + 1
