"""A store, its home, and short ways to say what layers and servers say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.routing import Home, home_of
from hermes_state.store import Store, open_store


@pytest.fixture(name="store")
def model_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(tmp_path / "home", clock=fake_clock, durability="process") as opened:
        yield opened


@pytest.fixture(name="home")
def home_of_store(store: Store) -> Home:
    return home_of(store.core)
