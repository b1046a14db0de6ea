"""The shared core: what it refuses by name, and what a fork or a function that closes leave behind."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import errors, open_store
from hermes_state.clock import FakeClock
from hermes_state.engine import core as core_module
from hermes_state.engine.transaction import Transaction
from hermes_state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(path=tmp_path / "state.db")
    yield store
    store.close()


def nothing(tx: Transaction) -> None:
    tx.execute("UPDATE store SET change_floor = change_floor + 1")


def in_child(work) -> int:
    """The exit code of a forked child that runs `work`; 99 when it is still running after 20 seconds."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(20)
    if process.exitcode is None:
        process.kill()
        process.join()
        return 99
    return process.exitcode


@pytest.mark.parametrize("forced", [None, "power"])
def test_durability_that_is_none_is_named(tmp_path: Path, forced) -> None:
    with open_store(path=tmp_path / "state.db", durability=forced) as store:
        with pytest.raises(errors.InvalidInput) as refused:
            store.core.write(nothing, durability="bogus")  # type: ignore[arg-type]
        assert str(refused.value) == "durability is 'process' or 'power', not 'bogus'."
        with pytest.raises(errors.InvalidInput):
            store.core.writer.write(nothing, durability="bogus")  # type: ignore[arg-type]
        store.core.write(nothing)


@pytest.mark.parametrize("read_only", [True, False])
def test_path_with_a_nul_is_named(tmp_path: Path, read_only: bool) -> None:
    path = f"{tmp_path}/a\0b.db"
    with pytest.raises(errors.InvalidInput) as refused:
        open_store(path=path, read_only=read_only)
    assert str(refused.value) == "path has a NUL character, which no file name can have."


def test_patience_of_the_pool_is_measured_by_the_clock_of_the_store(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_store(path=tmp_path / "state.db", clock=fake_clock) as store:
        store.core._pool._patience = 0.5
        there, leave = threading.Barrier(5), threading.Event()

        def hold() -> None:
            with store.core.reader():
                there.wait(30)
                leave.wait(30)

        threads = [threading.Thread(target=hold) for _ in range(4)]
        for thread in threads:
            thread.start()
        there.wait(30)
        before = fake_clock.monotonic()
        with pytest.raises(errors.LockTimeout), store.core.reader():
            pass
        assert round(fake_clock.monotonic() - before, 3) == 0.5
        leave.set()
        for thread in threads:
            thread.join(30)


def test_close_by_the_function_that_writes_is_refused_and_changes_nothing(store: Store) -> None:
    def work(tx: Transaction) -> None:
        nothing(tx)
        store.close()

    with pytest.raises(errors.StateError) as refused:
        store.core.write(work)
    assert (type(refused.value), str(refused.value)) == (
        errors.StateError, f"{store.path} cannot be closed by the function that is writing to it."
    )
    assert refused.value.hint == "Close it after the transaction has ended."
    store.core.write(nothing)
    with store.core.reader() as reader:
        assert reader.rows("SELECT change_floor FROM store") == [(1,)]


def test_forked_child_opens_a_store_although_another_thread_was_opening_one(tmp_path: Path, store: Store) -> None:
    def opens() -> None:
        with open_store(path=tmp_path / "other.db") as other:
            other.core.write(nothing)
        os._exit(7)

    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with core_module._OPEN_LOCK:
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(30)
    try:
        assert in_child(opens) == 7
    finally:
        leave.set()
        thread.join(30)


def test_forked_child_is_refused_by_name_whatever_the_parents_threads_were_doing(store: Store) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        inside.set()
        leave.wait(60)

    def uses() -> None:
        try:
            store.core.write(nothing)
        except errors.ForkedConnection as error:
            if error.hint == "Start the child with exec (spawn), or fork before the store is opened.":
                os._exit(7)
        os._exit(8)

    thread = threading.Thread(target=lambda: store.core.write(hold))
    thread.start()
    assert inside.wait(30)
    try:
        assert in_child(uses) == 7
    finally:
        leave.set()
        thread.join(30)


def test_store_that_was_closed_before_a_fork_can_be_opened_in_the_child(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.core.write(nothing)

    def opens() -> None:
        with open_store(path=path) as again:
            again.core.write(nothing)
        os._exit(7)

    assert in_child(opens) == 7
