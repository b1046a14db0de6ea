"""One fake clock for all operations of a module, so that two runs end in the same state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import CLOCK_FILE_VARIABLE


@pytest.fixture(scope="module")
def operation_clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("clock") / "clock.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CLOCK_FILE_VARIABLE, str(path))
        yield path
