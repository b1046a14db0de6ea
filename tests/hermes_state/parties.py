"""Owners of a test: each has a lock file of its own, and its view of one store under the test's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.leases import Lease, Leases
from hermes_state.owners import Presence
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@dataclass(kw_only=True)
class Party:
    """One owner of a test: a presence with a lock file of its own, and its view of the store."""

    presence: Presence
    leases: Leases

    def acquire(self, name: str = "tick", *, term_seconds: float = 30.0, **options: float) -> Lease:
        return self.leases.acquire(name, term_seconds=term_seconds, **options)

    def die(self) -> None:
        """What the kernel does at kill -9."""
        self.presence.end()


@pytest.fixture(name="store")
def lease_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@pytest.fixture(name="party")
def new_party(store: Store) -> Callable[..., Party]:
    def make() -> Party:
        presence = Presence(store.path.parent, clock=store.core.clock)
        return Party(presence=presence, leases=Leases(store.core, presence=presence))

    return make


@pytest.fixture(name="a")
def first_party(party: Callable[..., Party]) -> Party:
    return party()


@pytest.fixture(name="b")
def second_party(party: Callable[..., Party]) -> Party:
    return party()


def guarded(store: Store, lease: Lease) -> None:
    """A write under the lease."""

    def work(tx: Transaction) -> None:
        lease.guard(tx)
        tx.execute(
            "INSERT INTO changes (id, table_name, key, operation, at)"
            " SELECT coalesce(max(id), 0) + 1, 'work', '', 'insert', 0 FROM changes"
        )

    store.core.write(work)
