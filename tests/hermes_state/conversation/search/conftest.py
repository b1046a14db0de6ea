"""A store with people's and a machine's sessions, and the clock standing still: no budget ever runs out by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.store import Store


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as opened:
        yield opened


@pytest.fixture(params=["by reading", "through the index"])
def ways(request: pytest.FixtureRequest) -> str:
    """Each test that takes this runs twice: with nothing indexed, and with everything indexed."""
    return str(request.param)
