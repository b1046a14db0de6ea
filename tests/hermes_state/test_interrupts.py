"""KeyboardInterrupt at every point of a write and of a read: nothing stays open, and everybody can go on."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM
from hermes_state.engine import Store, Transaction, open_write
from hermes_state.engine.core import Core, acquire, release
from tests.support.interrupts import Interrupt, interrupted

ADD = "INSERT INTO shared_texts (hash, text_bytes, body) VALUES (?, 1, x'78')"
OTHER_PROCESS = """
import sys
from hermes_state.engine import open_write

with open_write(sys.argv[1]) as store:
    print("open", flush=True)
    for _line in sys.stdin:
        store.write(lambda tx: tx.execute("UPDATE store SET change_floor = change_floor + 1"), deadline_seconds=0.5)
        print("written", flush=True)
"""
WAYS = pytest.mark.parametrize("way", [pytest.param("lines", marks=pytest.mark.slow), "calls"])


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    core = acquire(tmp_path / "state.db", read_only=False, create=True, clock=SYSTEM)
    yield core
    release(core)


@pytest.fixture
def other(core: Core, live_store_audit_hook) -> Iterator[Callable[[], None]]:
    """Lets another process write once; fails when it cannot within half a second."""
    arguments = [sys.executable, "-c", OTHER_PROCESS, str(core.path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        said = process.stdout
        assert said.readline() == "open\n"

        def write() -> None:
            print("write", file=process.stdin, flush=True)
            assert said.readline() == "written\n"

        yield write
        process.stdin.close()


def texts(core: Core) -> int:
    with core.reader() as reader:
        return int(reader.rows("SELECT count(*) FROM shared_texts")[0][0])


def goes_on(core: Core, other: Callable[[], None], where: str) -> None:
    """The other process, another thread and this one can write; no transaction, turn or reader is left behind."""
    writer = core.writer
    assert not writer.raw_connection.in_transaction, where
    assert (writer._turn.owner, writer._turn._queue, writer.stopped) == (0, [], None), where
    assert core._pool._loans == set(), where
    assert all(reader.is_idle() for reader in core._pool._idle), where
    try:
        other()
    except AssertionError as error:
        raise AssertionError(where) from error
    failed: list[BaseException] = []

    def write() -> None:
        try:
            core.write(lambda tx: tx.execute("UPDATE store SET change_floor = change_floor + 1"), deadline_seconds=0.5)
            texts(core)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(30)
    assert not thread.is_alive() and failed == [], where
    write()
    assert failed == [], where


@WAYS
def test_interrupt_anywhere_in_a_write_leaves_nothing_open(core: Core, other: Callable[[], None], way: str) -> None:
    numbers = itertools.count()
    points = 0
    for where in interrupted(lambda: core.write(lambda tx: tx.execute(ADD, (next(numbers),))), way):
        goes_on(core, other, where)
        points += 1
    assert points > 60


@WAYS
def test_interrupt_while_a_failed_write_is_undone_leaves_nothing_open(
    core: Core, other: Callable[[], None], way: str
) -> None:
    def work(tx: Transaction) -> None:
        tx.execute(ADD, (1,))
        raise ZeroDivisionError

    for where in interrupted(lambda: core.write(work), way, expected=(ZeroDivisionError,)):
        goes_on(core, other, where)
    assert texts(core) == 0


@WAYS
def test_interrupt_anywhere_in_a_block_leaves_nothing_open(core: Core, other: Callable[[], None], way: str) -> None:
    def block() -> None:
        with core.writer.transaction() as tx:
            tx.execute(ADD, (1,))

    for where in interrupted(block, way):
        goes_on(core, other, where)


@pytest.mark.slow
@WAYS
def test_interrupt_anywhere_in_a_snapshot_of_a_pooled_reader_leaves_nothing_open(
    core: Core, other: Callable[[], None], way: str
) -> None:
    def read() -> None:
        with core.reader() as reader, reader.snapshot():
            reader.rows("SELECT name FROM sqlite_schema LIMIT 7")
            for _row in reader.iterate("SELECT name FROM sqlite_schema LIMIT 7", batch=3):
                pass

    texts(core)
    for where in interrupted(read, way):
        goes_on(core, other, where)


@WAYS
def test_interrupt_while_a_reader_is_opened_leaves_no_place_taken(
    core: Core, other: Callable[[], None], way: str
) -> None:
    pool_only = ("pool.py",)

    def read() -> None:
        core._pool._idle.clear()
        texts(core)

    for where in interrupted(read, way, seen=lambda file: file.endswith(pool_only)):
        goes_on(core, other, where)


@WAYS
def test_interrupt_while_a_thread_waits_for_its_turn_leaves_the_queue_empty(core: Core, way: str) -> None:
    """The turn is another thread's for the first part of each wait."""
    writer = core.writer
    turn = writer._turn
    taken, leave, begin = threading.Event(), threading.Event(), threading.Event()

    def have_it() -> None:
        while begin.wait(30):
            begin.clear()
            if leave.is_set():
                return
            assert turn.take_if_free(1)
            taken.set()
            while not turn._queue and not leave.is_set():
                pass
            turn.give(1)
            leave.clear()

    holder = threading.Thread(target=have_it)
    holder.start()

    def write() -> None:
        taken.clear()
        begin.set()
        taken.wait(30)
        core.write(lambda tx: tx.execute(ADD, (1,)))

    for where in interrupted(write, way, seen=lambda file: file.endswith("turn.py")):
        leave.set()
        while turn.owner == 1:
            pass
        leave.clear()
        assert (turn.owner, turn._queue) == (0, []), where
        core.write(lambda tx: tx.execute(ADD, (1,)), deadline_seconds=0.5)
    leave.set()
    begin.set()
    holder.join(30)


def test_interrupt_after_commit_leaves_the_commit_and_says_nothing_else(core: Core) -> None:
    writer = core.writer
    run = writer._run

    def commit_then_raise(sql: str, *params: object):
        cursor = run(sql, *params)
        if sql == "COMMIT":
            raise Interrupt
        return cursor

    writer._run = commit_then_raise  # type: ignore[method-assign, assignment]
    with pytest.raises(Interrupt):
        core.write(lambda tx: tx.execute(ADD, (1,)))
    writer._run = run  # type: ignore[method-assign]
    assert texts(core) == 1


def test_signal_right_after_begin_leaves_the_lock_to_others(core: Core, other: Callable[[], None]) -> None:
    writer = core.writer
    run = writer._run

    def begin_then_signal(sql: str, *params: object):
        cursor = run(sql, *params)
        if sql == "BEGIN IMMEDIATE":
            writer._run = run  # type: ignore[method-assign]
            signal.raise_signal(signal.SIGUSR1)
        return cursor

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        writer._run = begin_then_signal  # type: ignore[method-assign, assignment]
        with pytest.raises(KeyboardInterrupt):
            core.write(lambda tx: tx.execute(ADD, (1,)))
    finally:
        signal.signal(signal.SIGUSR1, before)
    goes_on(core, other, "after BEGIN")


def test_transaction_that_nobody_has_is_rolled_back_by_the_next_write(core: Core) -> None:
    core.writer.raw_connection.execute("BEGIN IMMEDIATE").fetchall()
    core.writer.raw_connection.execute(ADD, (1,)).fetchall()
    core.write(lambda tx: tx.execute(ADD, (2,)))
    assert texts(core) == 1


def test_handler_of_a_signal_may_write_while_its_thread_waits_for_the_turn(core: Core) -> None:
    inside, leave, handled = threading.Event(), threading.Event(), []

    def hold(tx: Transaction) -> None:
        inside.set()
        leave.wait(30)

    def handler(_number: int, _frame: object) -> None:
        leave.set()
        handled.append(core.write(lambda tx: tx.execute(ADD, (1,))))

    holder = threading.Thread(target=lambda: core.write(hold))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        holder.start()
        assert inside.wait(30)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert core.write(lambda tx: tx.execute(ADD, (2,))) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    holder.join(30)
    assert (handled, texts(core), core.writer._turn.owner) == ([1], 2, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one may meet a finalizer
@pytest.mark.parametrize("work", ["write", "read"])
def test_signals_at_any_time_leave_nothing_open(core: Core, other: Callable[[], None], work: str) -> None:
    numbers = random.Random(7)
    armed, came = [False], 0

    def handler(_number: int, _frame: object) -> None:
        if armed[0]:
            armed[0] = False
            raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(4000):
            try:
                armed[0] = True
                signal.setitimer(signal.ITIMER_REAL, numbers.uniform(1e-6, 0.00025))
                if work == "write":
                    core.write(lambda tx, number=number: tx.execute(ADD, (number,)))
                else:
                    texts(core)
            except Interrupt:
                came += 1
            finally:
                armed[0] = False
                signal.setitimer(signal.ITIMER_REAL, 0)
            if number % 50 == 0:
                goes_on(core, other, f"signal {number}")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert came > 100


def test_interrupted_reads_through_the_writer_keep_no_read_transaction(tmp_path: Path, core: Core) -> None:
    store: Store = open_write(core.path)
    run = store._run

    class Cut:
        def fetchall(self) -> list[tuple[object, ...]]:
            raise Interrupt

    def first_row_only(sql: str, *params: object):
        run(sql, *params)
        store._run = run  # type: ignore[method-assign]
        return Cut()

    store._run = first_row_only  # type: ignore[method-assign, assignment]
    with pytest.raises(Interrupt):
        store.rows("SELECT name FROM sqlite_schema")
    assert store.is_idle()
    store.close()


def test_store_can_be_closed_while_an_interrupt_is_on_its_way_out_of_a_block(core: Core, other) -> None:
    """The interrupt came as the block ended, before anything could be rolled back."""
    with pytest.raises(Interrupt), open_write(core.path) as store:
        block = store.transaction()
        block.__enter__().execute(ADD, (1,))
        raise Interrupt
    assert store.closed
    other()
    assert texts(core) == 0
