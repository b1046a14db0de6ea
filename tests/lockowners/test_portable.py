"""The psutil scan, run here on real processes as it would run where there is no /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lockowners import verdict
from lockowners.devices import watch
from lockowners.portable import portable_scan
from lockowners.records import Hidden, Scan
from tests.lockowners.holding import holding


def scan(store: Path, *, include_self: bool = False) -> Scan:
    return portable_scan(watch(store), started=time.perf_counter(), include_self=include_self, use_psutil=True)


def test_holder_is_found_by_its_open_files_and_the_scan_is_never_complete(store: Path) -> None:
    with holding("idle", store) as child:
        result = scan(store)
    found = result.holders[0]
    assert [holder.process.pid for holder in result.holders] == [child.pid]
    assert found.via == {"descriptor"}
    assert {"main", "wal", "shm"} >= {held.kind for held in found.files} >= {"main"}
    assert (result.method, result.complete) == ("psutil", False)
    assert result.namespace_note == "locks and deleted files (this system does not show them)"


def test_in_place_is_allowed_and_a_replacement_refused_when_nobody_is_visible(store: Path) -> None:
    result = scan(store)
    assert result.holders == ()
    assert verdict(result, exclusive_obtained=True, replaces_inode=False).allowed
    assert not verdict(result, exclusive_obtained=True, replaces_inode=True).allowed


@pytest.mark.parametrize("include_self", [False, True])
def test_this_process_is_left_out_unless_asked_for(store: Path, include_self: bool) -> None:
    import apsw

    connection = apsw.Connection(str(store))
    found = scan(store, include_self=include_self).holders
    connection.close()
    assert [holder.process.pid for holder in found] == ([os.getpid()] if include_self else [])


def test_closed_process_of_another_user_does_not_refuse_in_place_when_modes_keep_it_out(store: Path) -> None:
    result = scan(store)
    likely = Hidden(user="ann", uid=5, count=1)
    for row, allowed in ((likely, False), (Hidden(user="ann", uid=5, count=1, unlikely=True), True)):
        changed = Scan(**{**vars(result), "hidden": (row,)})
        assert verdict(changed, exclusive_obtained=True, replaces_inode=False).allowed is allowed
        assert not verdict(changed, exclusive_obtained=True, replaces_inode=True).allowed
