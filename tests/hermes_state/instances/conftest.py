"""A store with a registry of instances, and short ways to enroll."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.instances import Instances, Issued
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture(name="registry_store")
def store_of_instances(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@pytest.fixture(name="registry")
def registry_of_instances(registry_store: Store) -> Instances:
    return registry_store.instances


@pytest.fixture(name="enrolled")
def enroller(registry: Instances) -> Callable[..., Issued]:
    """Add and enroll an instance in two transactions, as a person and a plugin do."""

    def enrolled(instance_id: str, nickname: str | None = None) -> Issued:
        minted = registry.enroll(instance_id, nickname=nickname or f"Gateway {instance_id}", actor="test")
        return registry.redeem(minted.token, actor="plugin")

    return enrolled
