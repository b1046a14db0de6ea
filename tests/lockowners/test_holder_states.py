"""Must-show: every state in which a live process can hold a store is found, and refuses a rewrite."""

from __future__ import annotations

import os
import platform
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from lockowners import holders, lock_owners, verdict
from lockowners.process import Stat, read_stat
from tests.lockowners.holding import CHILD, DEADLINE_SECONDS, Child, holding, make_store, needs_linux, running

pytestmark = needs_linux

DESCRIPTOR, BOTH = frozenset({"descriptor"}), frozenset({"descriptor", "lock"})

# state, journal mode, how it is seen, names of its locks
STATES = [
    ("never-read", "wal", DESCRIPTOR, set()),
    ("idle", "wal", BOTH, {"open"}),
    ("reading", "wal", BOTH, {"reader"}),
    ("writing", "wal", BOTH, {"wal-writer", "reader"}),
    ("checkpointing", "wal", BOTH, {"checkpointer"}),
    ("checkpointing-full", "wal", BOTH, {"wal-writer", "checkpointer", "reader"}),
    ("unlinked", "wal", BOTH, {"open"}),
    ("unlinked-writing", "wal", BOTH, {"wal-writer", "reader"}),
    ("exclusive-unread", "wal", BOTH, {"exclusive"}),
    ("exclusive-read", "wal", BOTH, {"exclusive"}),
    ("bare-descriptor", "wal", DESCRIPTOR, set()),
    ("ofd-lock", "wal", BOTH, {"shared"}),
    ("never-read", "delete", DESCRIPTOR, set()),
    ("idle", "delete", DESCRIPTOR, set()),
    ("reading", "delete", BOTH, {"shared"}),
    ("writing", "delete", BOTH, {"reserved"}),
    ("pending", "delete", BOTH, {"pending"}),
    ("begin-exclusive", "delete", BOTH, {"exclusive"}),
]


def check_found(store: Path, pid: int, via: frozenset[str]) -> None:
    scan = holders(store)
    found = {holder.process.pid: holder for holder in scan.holders}
    assert set(found) == {pid}
    assert found[pid].via == via
    assert not verdict(scan, exclusive_obtained=True, replaces_inode=False).allowed


@pytest.mark.parametrize(
    ("state", "mode", "via", "locks"), STATES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_holder_in_this_state_is_found_and_its_locks_are_named(
    tmp_path: Path, state: str, mode: str, via: frozenset[str], locks: set[str]
) -> None:
    store = make_store(tmp_path / "state.db", mode)
    with holding(state, store) as child:
        check_found(store, child.pid, via)
        report = lock_owners(store)
        assert {owner.lock for owner in report.owners} == locks
        assert {owner.process.pid for owner in report.owners if owner.process} <= {child.pid}
    assert holders(store).holders == ()


def test_process_that_recovers_the_wal_is_found_and_named(store: Path) -> None:
    with running([sys.executable, str(CHILD), "leave-wal", str(store)]):
        pass
    with holding("recovering", store) as child:
        check_found(store, child.pid, BOTH)
        assert {owner.lock for owner in lock_owners(store).owners} >= {"recovery"}


def test_forked_child_with_inherited_descriptors_is_found_though_it_owns_no_lock(store: Path) -> None:
    with running([sys.executable, str(CHILD), "forked", str(store)]) as child:
        grandchild = int(child.wait_for("pid"))
        child.wait_for("ready")
        check_found(store, grandchild, DESCRIPTOR)
        assert lock_owners(store).owners == ()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the exit call is that of x86-64")
def test_process_whose_first_thread_ended_is_found_through_its_other_threads(store: Path) -> None:
    with holding("leader-ended", store) as child:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while read_stat_of(child.pid).state != "Z":
            assert time.monotonic() < deadline
        check_found(store, child.pid, DESCRIPTOR)


def read_stat_of(pid: int) -> Stat:
    stat = read_stat(Path("/proc"), pid)
    assert stat is not None
    return stat


def test_process_on_an_unlinked_wal_is_stale_and_its_files_say_so(store: Path) -> None:
    with holding("unlinked", store):
        holder = holders(store).holders[0]
    assert holder.stale
    assert {(held.kind, held.deleted) for held in holder.files} == {("main", False), ("wal", True), ("shm", True)}


def test_lock_on_an_unlinked_wal_index_is_reported_as_stale(store: Path) -> None:
    with holding("unlinked-writing", store):
        writers = [owner for owner in lock_owners(store).owners if owner.lock == "wal-writer"]
    assert [owner.stale for owner in writers] == [True]


def test_two_generations_of_one_store_are_told_apart(store: Path) -> None:
    with holding("unlinked", store) as old, holding("idle", store) as new:
        scan = holders(store)
    assert {holder.process.pid: holder.stale for holder in scan.holders} == {old.pid: True, new.pid: False}


def test_holder_of_a_replaced_main_file_is_found_by_the_name_the_kernel_keeps(store: Path, tmp_path: Path) -> None:
    with holding("idle", store) as child:
        make_store(tmp_path / "new.db").rename(store)
        scan = holders(store)
    assert [(holder.process.pid, holder.stale) for holder in scan.holders] == [(child.pid, True)]


def test_holder_through_a_hard_link_is_found_by_inode(store: Path, tmp_path: Path) -> None:
    other_name = tmp_path / "other.sqlite"
    other_name.hardlink_to(store)
    with holding("never-read", other_name) as child:
        assert [holder.process.pid for holder in holders(store).holders] == [child.pid]


def test_holder_through_a_symbolic_link_is_found(store: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(store)
    with holding("idle", store) as child:
        assert [holder.process.pid for holder in holders(link).holders] == [child.pid]


def test_stale_wal_of_another_store_with_the_same_name_is_not_ours(store: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_store(tmp_path / "other" / "state.db")
    with holding("unlinked", other):
        assert holders(store).holders == ()


def test_nobody_is_found_when_nobody_holds_the_store(store: Path) -> None:
    scan = holders(store)
    assert scan.holders == ()
    assert verdict(scan, exclusive_obtained=True, replaces_inode=False).allowed


def test_this_process_is_left_out_unless_asked_for(store: Path) -> None:
    connection = apsw.Connection(str(store))
    connection.execute("SELECT * FROM t").fetchall()
    try:
        assert holders(store).holders == ()
        assert [holder.process.pid for holder in holders(store, include_self=True).holders] == [os.getpid()]
        assert {owner.lock for owner in lock_owners(store, include_self=True).owners} == {"open"}
    finally:
        connection.close()


def test_six_holders_are_all_found_in_each_of_twenty_scans(store: Path) -> None:
    with ExitStack() as stack:
        children: list[Child] = [stack.enter_context(holding("idle", store)) for _ in range(6)]
        pids = {child.pid for child in children}
        for _ in range(20):
            scan = holders(store)
            assert {holder.process.pid for holder in scan.holders} == pids
            assert all(holder.via == BOTH for holder in scan.holders)
