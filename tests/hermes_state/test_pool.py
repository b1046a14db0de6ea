"""The pool of readers: bounded, patient up to a deadline, and never lending what cannot be trusted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes_state import errors
from hermes_state.clock import FakeClock
from hermes_state.engine import ReadStore, open_read, open_write
from hermes_state.engine.pool import ReaderPool
from tests.support.native import make_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db", rows=600)


@pytest.fixture
def opened() -> list[ReadStore]:
    """Every reader that the pool has opened."""
    return []


@pytest.fixture
def pool(store: Path, opened: list[ReadStore]) -> Iterator[ReaderPool]:
    def open_one() -> ReadStore:
        opened.append(open_read(store))
        return opened[-1]

    readers = ReaderPool(open_one, 2)
    yield readers
    readers.close()


@contextmanager
def taken(pool: ReaderPool, readers: int) -> Iterator[list[ReadStore]]:
    """That many readers in use, each by a thread of its own."""
    leave, there, lent = threading.Event(), threading.Barrier(readers + 1), []

    def hold() -> None:
        with pool.reader() as reader:
            lent.append(reader)
            there.wait(30)
            leave.wait(30)

    threads = [threading.Thread(target=hold) for _ in range(readers)]
    for thread in threads:
        thread.start()
    there.wait(30)
    try:
        yield lent
    finally:
        leave.set()
        for thread in threads:
            thread.join(30)


def count(pool: ReaderPool) -> int:
    with pool.reader() as reader:
        return int(reader.rows("SELECT count(*) FROM note")[0][0])


def test_one_reader_serves_one_caller_after_another(pool: ReaderPool, opened: list[ReadStore]) -> None:
    assert [count(pool) for _ in range(10)] == [600] * 10
    assert len(opened) == 1


def test_three_hundred_short_threads_leave_the_number_of_descriptors_as_it_was(
    pool: ReaderPool, opened: list[ReadStore]
) -> None:
    with taken(pool, 2):
        pass
    before, seen = len(os.listdir("/proc/self/fd")), []
    for _ in range(6):
        threads = [threading.Thread(target=lambda: seen.append(count(pool))) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert seen == [600] * 300
    assert len(opened) == 2
    assert len(os.listdir("/proc/self/fd")) == before


def test_caller_waits_for_a_reader_that_comes_free(pool: ReaderPool, opened: list[ReadStore]) -> None:
    seen: list[int] = []
    with taken(pool, 2):
        thread = threading.Thread(target=lambda: seen.append(count(pool)))
        thread.start()
        assert seen == []
    thread.join(30)
    assert (seen, len(opened)) == ([600], 2)


def test_caller_that_waits_too_long_is_told_so(store: Path, fake_clock: FakeClock) -> None:
    pool = ReaderPool(lambda: open_read(store), 1, patience_seconds=3.0, clock=fake_clock)
    with taken(pool, 1), pytest.raises(errors.LockTimeout) as refused, pool.reader():
        pytest.fail("the only reader is in use")
    assert str(refused.value) == (
        f"No reader of {store} came free within 3.0 s; all 1 are in use by other threads of this process."
    )
    assert refused.value.hint == "Keep reads short, or take a reader of your own for a long one."
    assert count(pool) == 600
    pool.close()


def test_idle_reader_keeps_no_read_transaction(pool: ReaderPool, opened: list[ReadStore], store: Path) -> None:
    count(pool)
    with pool.reader() as reader, reader.snapshot():
        reader.rows("SELECT 1 FROM note")
    rows = None
    with pool.reader() as reader:
        rows = reader.iterate("SELECT id FROM note", batch=10)
        next(rows)
    assert [one.closed for one in opened] == [True]  # the loop over rows was left in the middle
    with pytest.raises(errors.StateError) as refused:
        list(rows)
    assert str(refused.value) == f"The connection to {store} is closed."
    assert count(pool) == 600
    assert opened[-1].is_idle()


def test_error_of_the_caller_gives_the_reader_back(pool: ReaderPool, opened: list[ReadStore]) -> None:
    for _ in range(5):
        with pytest.raises(errors.StatementFailed), pool.reader() as reader:
            reader.rows("SELECT nonsense FROM note")
    assert (count(pool), len(opened)) == (600, 1)


def test_reader_that_lost_its_locks_is_let_go_and_the_others_are_not_lent(
    pool: ReaderPool, opened: list[ReadStore], store: Path, live_store_audit_hook
) -> None:
    with taken(pool, 2):
        pass
    with live_store_audit_hook.allowing():
        store.read_bytes()
    with pytest.raises(errors.WriteLockLost):
        count(pool)
    assert (count(pool), len(opened)) == (600, 3)
    assert [reader.closed for reader in opened] == [True, True, False]


def test_reader_whose_open_fails_leaves_its_place_free(store: Path) -> None:
    failing = [True]

    def open_one() -> ReadStore:
        if failing:
            raise errors.NotFound(f"no {failing.pop()}")
        return open_read(store)

    pool = ReaderPool(open_one, 1)
    with pytest.raises(errors.NotFound):
        count(pool)
    assert count(pool) == 600
    pool.close()


def test_closed_pool_closes_what_comes_back_and_lends_nothing(
    pool: ReaderPool, opened: list[ReadStore], store: Path
) -> None:
    with taken(pool, 1), pool.reader() as reader:
        pool.close()
        assert reader.rows("SELECT count(*) FROM note") == [(600,)]
    assert [one.closed for one in opened] == [True, True]
    with pytest.raises(errors.StateError) as refused:
        count(pool)
    assert str(refused.value) == f"The connections to {store} are closed."
    pool.close()


def test_forked_child_is_refused_by_name_and_harms_nobody(pool: ReaderPool) -> None:
    with taken(pool, 1), pool.reader():
        pid = os.fork()
        if pid == 0:
            try:
                count(pool)  # both readers were in use in the parent, and are of no use here
            except errors.ForkedConnection:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
    assert count(pool) == 600


def test_writer_and_pool_see_each_other(pool: ReaderPool, store: Path) -> None:
    with open_write(store) as writer:
        for more in (1, 2, 3):
            writer.write(lambda transaction: transaction.execute("INSERT INTO note(body) VALUES('new')"))
            assert count(pool) == 600 + more


def test_block_inside_a_block_of_the_same_thread_gets_the_same_reader(pool: ReaderPool, store: Path) -> None:
    with open_write(store) as writer, pool.reader() as outer, outer.snapshot():
        before = outer.rows("SELECT count(*) FROM note")
        writer.write(lambda tx: tx.execute("INSERT INTO note(body) VALUES('new')"))
        with pool.reader() as inner, inner.snapshot():
            assert inner is outer
            assert inner.rows("SELECT count(*) FROM note") == before == [(600,)]
        assert outer.rows("SELECT count(*) FROM note") == before
    assert count(pool) == 601


def test_threads_that_each_read_inside_a_read_do_not_wait_for_each_other(pool: ReaderPool) -> None:
    both, seen = threading.Barrier(2), []

    def read() -> None:
        with pool.reader():
            both.wait(30)
            seen.append(count(pool))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert seen == [600, 600]


def test_loan_that_is_dropped_without_its_end_leaves_its_place(pool: ReaderPool, opened: list[ReadStore]) -> None:
    for _ in range(3):
        lent = pool.reader()
        lent.__enter__().rows("SELECT 1")
        del lent
        opened.clear()
    with taken(pool, 2) as readers:
        assert len(readers) == 2
