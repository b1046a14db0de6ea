"""Faults of the operating system: each is named with its errno; the first one stops all writing (reports 15, 44, 46).

The limits are the kernel's own (RLIMIT_FSIZE, RLIMIT_NOFILE) in a child of their own, so the failing calls are real;
errors of the disk come from `hermes_state.testing.faults`.
"""

from __future__ import annotations

import errno
from pathlib import Path

import apsw
import pytest

from hermes_state import errors
from hermes_state.engine import open_write
from hermes_state.engine.translate import translate
from hermes_state.testing.faults import Fault, Operation, inject
from tests.support.native import bodies, make_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db", rows=3)


def test_limit_on_the_size_of_a_file_is_no_room_and_writing_goes_on_once_there_is_some(store: Path, child) -> None:
    writer = child(
        """
        import os, resource, signal, sys
        from hermes_state.engine import open_write
        from hermes_state.errors import DiskFull
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = open_write(sys.argv[1])
        def add(body):
            with store.transaction() as transaction:
                transaction.execute("INSERT INTO note(body) VALUES(?)", (body,))
        add("before")
        size = os.fstat(store.descriptors.wal).st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        try:
            add("x" * 100_000)
        except DiskFull as failure:
            print(failure.errno == 27, failure.sqlite_code, failure)
            print(failure.hint)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        add("with room")
        """,
        store,
    )
    assert writer.finish().splitlines() == [
        f"True 10 This process may make no file as large as {store} or its WAL would have become, so committing to it "
        "failed (EFBIG: File too large). SQLite said: disk I/O error (code 10, extended 778).",
        "Raise the limit on the size of a file (`ulimit -f`, LimitFSIZE= of a service) and repeat.",
    ]
    assert bodies(store) == ["row 0", "row 1", "row 2", "before", "with room"]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_first_io_error_is_an_alarm_and_no_write_follows_it(store: Path, operation: Operation) -> None:
    def add(body: str) -> None:
        with writer.transaction(durability="power") as transaction:
            transaction.execute("INSERT INTO note(body) VALUES(?)", (body,))

    with inject(Fault(operation=operation, role="wal", number=8)), open_write(store) as writer:
        for number in range(20):
            try:
                add(f"added {number}")
            except errors.IOFailure as failure:
                first, failed = failure, number
                break
        with pytest.raises(errors.IOFailure) as again:
            add("after the alarm")
        assert again.value is first
        writer.reopen()
        add("after reopening")
    # Written and not synced: it is valid for whoever reads the WAL anew, and the error does not deny it.
    uncertain = [f"added {failed}"] if operation == "sync" else []
    assert bodies(store) == [
        "row 0", "row 1", "row 2", *(f"added {number}" for number in range(failed)), *uncertain, "after reopening"
    ]


@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT"])
def test_sync_that_failed_for_lack_of_room_is_an_alarm_too(number: str) -> None:
    for extended in (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC):
        error = apsw.IOError("disk I/O error")
        error.result, error.extendedresult = apsw.SQLITE_IOERR, extended
        problem = translate(error, Path("/state.db"), "committing to", system_errno=getattr(errno, number))
        assert type(problem) is errors.IOFailure


def test_exhausted_descriptors_are_named_before_the_file_system_is_blamed(store: Path, child) -> None:
    reader = child(
        """
        import os, resource, sys
        from hermes_state.engine import open_read
        from hermes_state.errors import StateError
        open_read(sys.argv[1]).close()
        used = len(os.listdir("/proc/self/fd"))
        for room in range(0, 4):
            resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1 + room, 4096))
            try:
                open_read(sys.argv[1]).close()
                print(room, "opened")
            except (StateError, OSError) as failure:
                print(room, type(failure).__name__, "open-file limit" in getattr(failure, "hint", ""), "24" in str(
                    (getattr(failure, "errno", None), failure)))
        """,
        store,
    )
    lines = reader.finish().splitlines()
    failures = [line.split() for line in lines if "opened" not in line]
    assert failures, lines
    for _room, _kind, hinted, _code in failures:
        assert hinted == "True", lines
    assert bodies(store) == ["row 0", "row 1", "row 2"]


def test_fifty_parallel_opens_and_closes_leave_a_store_that_opens(store: Path, child) -> None:
    # Report 44 saw every later open fail after a reconnect storm.
    storm = child(
        """
        import sys, threading
        from hermes_state.engine import open_read, open_write
        problems = []
        def one(number):
            try:
                with (open_write if number % 5 == 0 else open_read)(sys.argv[1]) as store:
                    store.row("SELECT count(*) FROM note")
                    if number % 5 == 0:
                        with store.transaction() as transaction:
                            transaction.execute("INSERT INTO note(body) VALUES(?)", (str(number),))
            except Exception as problem:
                problems.append(repr(problem))
        threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(problems)
        """,
        store,
    )
    assert storm.finish().strip() == "[]"
    assert len(bodies(store)) == 13


def test_wal_index_that_cannot_be_opened_for_writing_is_named_and_a_reader_goes_on(store: Path, child) -> None:
    Path(f"{store}-shm").mkdir()
    other = child(
        """
        import sys
        from hermes_state.engine import open_read, open_write
        from hermes_state.errors import CannotOpen
        with open_read(sys.argv[1]) as reader:
            print(reader.rows("SELECT count(*) FROM note"))
        try:
            open_write(sys.argv[1])
        except CannotOpen as failure:
            print(failure)
        """,
        store,
    )
    assert other.finish().splitlines() == [
        "[(3,)]", f"The WAL index of {store} (state.db-shm) cannot be locked for writing."
    ]
