"""A new file is given its name whole: what fails while it is made leaves nothing under that name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.engine.create import create_store
from hermes_state.errors import DiskFull, StateError
from hermes_state.testing.faults import Fault, inject


def test_a_disk_that_is_full_from_some_write_on_leaves_no_half_store(tmp_path: Path) -> None:
    """The new file is filled through its WAL; that it was not copied back would be said by nobody at close."""
    with inject() as counted:
        assert create_store(tmp_path / "whole" / "state.db")
    writes = counted.counts["main", "write"]
    assert writes > 40
    for number in (1, writes // 4, writes // 2, writes - 1, writes):
        path = tmp_path / str(number) / "state.db"
        fault = Fault(operation="write", role="main", number=number, action="full", times=None)
        with inject(fault), pytest.raises(DiskFull):
            create_store(path)
        assert os.listdir(path.parent) == []
        assert create_store(path)


def test_a_lock_that_fails_while_a_store_is_made_leaves_a_whole_one_or_none(tmp_path: Path) -> None:
    with inject() as counted:
        assert create_store(tmp_path / "whole" / "state.db")
    size = (tmp_path / "whole" / "state.db").stat().st_size
    for number in range(1, counted.counts["main", "lock"] + 1):
        path = tmp_path / str(number) / "state.db"
        with inject(Fault(operation="lock", role="main", number=number)):
            try:
                create_store(path)
            except StateError:
                assert os.listdir(path.parent) == []
                continue
        assert os.listdir(path.parent) == ["state.db"]
        assert path.stat().st_size == size
