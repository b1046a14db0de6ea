"""Faults of the operating system: each is named with its errno; the first one stops all writing (reports 15, 44, 46).

The limits are the kernel's own (RLIMIT_FSIZE, RLIMIT_NOFILE) in a child of their own, so the failing calls are real.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.native import bodies, make_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db", rows=3)


def test_first_io_error_is_an_alarm_and_no_write_follows_it(store: Path, child) -> None:
    writer = child(
        """
        import os, resource, signal, sys
        from hermes_state.engine import open_write
        from hermes_state.errors import IOFailure
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
        except IOFailure as failure:
            print(failure.errno == 27, failure.sqlite_code, "(EFBIG: File too large)" in str(failure))
            first = failure
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        try:
            add("after the alarm")
        except IOFailure as failure:
            print("stopped", failure is first)
        store.reopen()
        add("after reopening")
        """,
        store,
    )
    assert writer.finish().splitlines() == ["True 10 True", "stopped True"]
    assert bodies(store) == ["row 0", "row 1", "row 2", "before", "after reopening"]


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
