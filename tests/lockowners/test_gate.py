"""Questions to the kernel on SQLite's own descriptors, against live holders."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from lockowners import conflicting_lock, holders, own_lock, sole_opener
from lockowners.records import Descriptors
from lockowners.sqlite_bytes import RESERVED, SHARED_FIRST, SHM_CHECKPOINT, SHM_OPEN, SHM_WRITE
from tests.lockowners.holding import holding, make_store, needs_linux

pytestmark = needs_linux


def descriptors_of(store: Path) -> Descriptors:
    links = {os.path.realpath(f"/proc/self/fd/{number}"): int(number) for number in os.listdir("/proc/self/fd")}
    found: Descriptors = SimpleNamespace(
        main=links.get(str(store)), wal=links.get(f"{store}-wal"), shm=links.get(f"{store}-shm")
    )  # type: ignore[assignment]
    return found


@pytest.fixture
def connection(store: Path) -> Iterator[apsw.Connection]:
    opened = apsw.Connection(str(store))
    opened.execute("SELECT * FROM t").fetchall()
    yield opened
    opened.close()


def shm_of(store: Path) -> int:
    found = descriptors_of(store).shm
    assert found is not None
    return found


def main_of(store: Path) -> int:
    found = descriptors_of(store).main
    assert found is not None
    return found


def test_writer_of_another_process_is_named_by_a_probe_and_gone_after_it(
    store: Path, connection: apsw.Connection
) -> None:
    shm = shm_of(store)
    with holding("writing", store) as child:
        assert conflicting_lock(shm, SHM_WRITE) == child.pid
        assert conflicting_lock(shm, SHM_CHECKPOINT) is None
        assert conflicting_lock(shm, SHM_WRITE, 9) == child.pid
        assert conflicting_lock(main_of(store), SHARED_FIRST, 510) == child.pid
    assert conflicting_lock(shm, SHM_WRITE, 9) is None


def test_own_locks_are_no_conflict(store: Path, connection: apsw.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE").fetchall()
    assert conflicting_lock(shm_of(store), SHM_WRITE) is None
    connection.execute("ROLLBACK").fetchall()


def test_own_write_lock_is_seen_while_writing_only(store: Path, connection: apsw.Connection) -> None:
    shm = shm_of(store)
    assert own_lock(shm, SHM_WRITE) is None
    connection.execute("BEGIN IMMEDIATE").fetchall()
    assert own_lock(shm, SHM_WRITE) == "write"
    connection.execute("ROLLBACK").fetchall()
    assert own_lock(shm, SHM_WRITE) is None


def test_own_lock_is_not_taken_from_another_writer(store: Path, connection: apsw.Connection) -> None:
    with holding("writing", store):
        assert own_lock(shm_of(store), SHM_WRITE) is None


@pytest.mark.parametrize("others", [0, 1, 3])
def test_own_shared_lock_is_seen_beside_others_on_the_same_byte(
    store: Path, connection: apsw.Connection, others: int
) -> None:
    with ExitStack() as stack:
        for _ in range(others):
            stack.enter_context(holding("idle", store))
        assert own_lock(shm_of(store), SHM_OPEN) == "read"
        assert own_lock(main_of(store), SHARED_FIRST) == "read"
        assert own_lock(main_of(store), RESERVED) is None


def test_own_lock_lost_to_a_second_descriptor_is_seen(store: Path, connection: apsw.Connection, tmp_path: Path) -> None:
    """The measured accident, on a private file that no test audits: closing another descriptor drops the lock."""
    path = tmp_path / "plain"
    path.write_bytes(b"x" * 200)
    first = os.open(path, os.O_RDWR)
    fcntl.lockf(first, fcntl.LOCK_EX, 1, SHM_WRITE)
    assert own_lock(first, SHM_WRITE) == "write"
    os.close(os.open(path, os.O_RDWR))
    assert own_lock(first, SHM_WRITE) is None
    os.close(first)


@pytest.mark.parametrize("state", ["never-read", "idle", "bare-descriptor"])
def test_lease_shows_whether_anybody_else_has_the_file_open(
    store: Path, connection: apsw.Connection, state: str
) -> None:
    main = main_of(store)
    assert sole_opener(main) is True
    with holding(state, store):
        assert sole_opener(main) is False
    assert sole_opener(main) is True


def test_lease_leaves_no_trace_and_no_lock_lost(store: Path, connection: apsw.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE").fetchall()
    assert sole_opener(main_of(store)) is True
    assert own_lock(shm_of(store), SHM_WRITE) == "write"
    assert own_lock(main_of(store), SHARED_FIRST) == "read"
    assert "LEASE" not in Path("/proc/locks").read_text()
    connection.execute("ROLLBACK").fetchall()


def test_process_survives_opens_that_break_the_lease(tmp_path: Path) -> None:
    """The default signal of a broken lease would end the process."""
    path = tmp_path / "plain"
    path.touch()
    program = f"import os\nfor _ in range(3000): os.close(os.open({str(path)!r}, os.O_RDWR))"
    descriptor = os.open(path, os.O_RDWR)
    answers = set()
    with subprocess.Popen([sys.executable, "-c", program]) as opener:
        while opener.poll() is None:
            answers.add(sole_opener(descriptor))
    os.close(descriptor)
    assert opener.returncode == 0
    assert answers <= {True, False}


def test_scan_with_descriptors_takes_the_probes_for_an_answer(store: Path, connection: apsw.Connection) -> None:
    descriptors = descriptors_of(store)
    with holding("idle", store) as child:
        scan = holders(store, descriptors=descriptors, ask_lease=True)
        assert [holder.process.pid for holder in scan.holders] == [child.pid]
        assert scan.sole_opener is False
    scan = holders(store, descriptors=descriptors, ask_lease=True)
    assert (scan.holders, scan.sole_opener) == ((), True)


def test_lease_is_not_asked_when_this_process_has_the_file_open_twice(store: Path, connection: apsw.Connection) -> None:
    second = apsw.Connection(str(store))
    second.execute("SELECT * FROM t").fetchall()
    scan = holders(store, descriptors=descriptors_of(store), ask_lease=True)
    second.close()
    assert scan.sole_opener is None
    assert scan.holders == ()


def test_rollback_mode_without_a_wal_index_is_probed_on_the_main_file_alone(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db", "delete")
    opened = apsw.Connection(str(store))
    opened.execute("SELECT * FROM t").fetchall()
    descriptors = descriptors_of(store)
    assert descriptors.shm is None
    with holding("writing", store) as child:
        scan = holders(store, descriptors=descriptors)
        assert [holder.process.pid for holder in scan.holders] == [child.pid]
    opened.close()
