"""Stores that other users may reach, which pytest's own temporary folder does not allow."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lockowners.holding import make_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A WAL store that nobody has open."""
    return make_store(tmp_path / "state.db")


@pytest.fixture
def rollback_store(tmp_path: Path) -> Path:
    """A store in rollback mode that nobody has open."""
    return make_store(tmp_path / "state.db", "delete")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter and write to."""
    folder = Path(tempfile.mkdtemp(prefix="lockowners-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)
