"""Another SQLite library, or plain `open`, on the same file in the same process."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state import errors
from hermes_state.engine import open_exclusive, open_read, open_write
from hermes_state.engine.own_lock import WAL_WRITE_BYTE, canary_byte, own_lock
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"
WRITE_ELSEWHERE = """
    import apsw, sys
    connection = apsw.Connection(sys.argv[1])
    try:
        connection.execute("INSERT INTO note(body) VALUES('elsewhere')").fetchall()
        print("committed")
    except apsw.BusyError:
        print("busy")
    """


HOLD_OPEN = """
    import apsw, sys, gates
    connection = apsw.Connection(sys.argv[1])
    connection.execute("SELECT count(*) FROM note").fetchall()
    gates.reach("open")
    gates.wait("end")
    """


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db")


@pytest.fixture
def staged(live_store_audit_hook) -> Iterator[None]:
    """These tests stage the accident on purpose."""
    with live_store_audit_hook.allowing():
        yield


def standard_library(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("SELECT count(*) FROM note").fetchall()
    other.close()


def read_main(path: Path) -> None:
    path.read_bytes()


def read_shm(path: Path) -> None:
    Path(f"{path}-shm").read_bytes()


def copy_main(path: Path) -> None:
    shutil.copyfile(path, path.with_name("copied.db"))


def duplicate_descriptor(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.close(os.dup(descriptor))
    os.close(descriptor)


# Closing a descriptor of -shm drops the WAL write lock (measured); closing one of the database file drops the standing
# lock that keeps an exclusive opener out.
DROPS_WRITE_LOCK = [standard_library, read_shm]
DROPS_STANDING_LOCK = [read_main, copy_main, duplicate_descriptor]


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("accident", DROPS_WRITE_LOCK)
def test_lost_write_lock_is_seen_before_the_commit_and_nothing_of_others_is_lost(
    store: Path, child, accident: Callable[[Path], None]
) -> None:
    idle = child(HOLD_OPEN, store)
    idle.wait_for("open")
    writer = open_write(store)
    with pytest.raises(errors.WriteLockLost) as refused, writer.transaction() as transaction:
        transaction.execute(ADD, ("ours",))
        accident(store)
        assert child(WRITE_ELSEWHERE, store).finish().split() == ["committed"]
    assert str(refused.value) == (
        f"The kernel no longer shows the WAL write lock of this process (byte 120) on {store}: "
        "other code in this process opened and closed the same file. The transaction was rolled back."
    )
    assert (refused.value.committed, refused.value.retryable) == (False, True)
    writer.reopen()
    with writer.transaction() as transaction:
        transaction.execute(ADD, ("ours again",))
    writer.close()
    idle.kill()
    assert bodies(store) == ["elsewhere", "ours again"]


@pytest.mark.usefixtures("staged")
def test_standard_library_that_thinks_it_is_alone_removes_the_wal_and_that_is_seen(store: Path) -> None:
    writer = open_write(store)
    with writer.transaction() as transaction:
        transaction.execute(ADD, ("committed",))
    with pytest.raises(errors.GenerationLost) as refused, writer.transaction() as transaction:
        transaction.execute(ADD, ("in flight",))
        standard_library(store)
    assert (refused.value.lost, refused.value.committed) == (("wal", "shm"), False)
    writer.reopen()
    with writer.transaction() as transaction:
        transaction.execute(ADD, ("again",))
    writer.close()
    assert bodies(store) == ["committed", "again"]


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("accident", DROPS_STANDING_LOCK)
def test_transaction_without_its_standing_lock_is_rolled_back(store: Path, child, accident) -> None:
    # The write lock is still there, but somebody could take the file for exclusive use beside us.
    writer = open_write(store)
    with pytest.raises(errors.WriteLockLost) as refused, writer.transaction() as transaction:
        transaction.execute(ADD, ("ours",))
        accident(store)
        assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    assert str(refused.value) == (
        f"The kernel no longer shows the standing locks of this process on {store}: "
        "other code in this process opened and closed the same file. The transaction was rolled back."
    )
    writer.reopen()
    with writer.transaction() as transaction:
        transaction.execute(ADD, ("again",))
    writer.close()
    assert bodies(store) == ["again"]


@pytest.mark.usefixtures("staged")
def test_second_library_that_already_writes_is_seen_before_we_begin(store: Path, child) -> None:
    writer = open_write(store)
    other = sqlite3.connect(store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute(ADD, ("theirs",))
    with pytest.raises(errors.SecondSQLite), writer.transaction():
        pytest.fail("the kernel would have granted us their lock")
    assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    other.execute("COMMIT")
    other.close()
    assert bodies(store) == ["theirs"]


@pytest.mark.usefixtures("staged")
def test_second_library_that_begins_inside_our_transaction_is_seen_before_our_commit(store: Path, child) -> None:
    writer = open_write(store)
    with pytest.raises(errors.SecondSQLite) as refused, writer.transaction() as transaction:
        transaction.execute(ADD, ("ours",))
        other = sqlite3.connect(store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute(ADD, ("theirs",))
    assert "; it was left as it is, nothing committed. " in str(refused.value)
    # Not even our rollback may unlock what they believe to have.
    assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    other.execute("COMMIT")
    other.close()
    writer.reopen()
    with writer.transaction() as transaction:
        transaction.execute(ADD, ("ours again",))
    writer.close()
    assert bodies(store) == ["theirs", "ours again"]


@pytest.mark.usefixtures("staged")
def test_error_inside_our_transaction_does_not_unlock_a_second_library(store: Path, child) -> None:
    writer = open_write(store)
    with pytest.raises(errors.SecondSQLite) as refused, writer.transaction() as transaction:
        transaction.execute(ADD, ("ours",))
        other = sqlite3.connect(store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        _ = 1 / 0
    assert isinstance(refused.value.__context__, ZeroDivisionError)
    assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    other.execute("ROLLBACK")
    other.close()


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("accident", DROPS_WRITE_LOCK)
def test_standing_lock_lost_while_idle_is_seen_at_the_next_use_by_reader_and_writer(
    store: Path, child, accident
) -> None:
    idle = child(HOLD_OPEN, store)  # without it the second library thinks it is alone and removes the WAL
    idle.wait_for("open")
    writer, reader = open_write(store), open_read(store)
    assert writer.descriptors.shm is not None
    assert own_lock(writer.descriptors.shm, canary_byte()) == "read"
    accident(store)
    assert own_lock(writer.descriptors.shm, canary_byte()) == "none"
    with pytest.raises(errors.WriteLockLost) as seen:
        reader.rows("SELECT 1")
    assert str(seen.value).startswith(
        f"The kernel no longer shows the standing locks of this process on {store}: "
    )
    # Every connection of this process to the file is closed, since all of them lost their locks.
    with pytest.raises(errors.WriteLockLost), writer.transaction():
        pytest.fail("the writer lost its lock as well")


@pytest.mark.usefixtures("staged")
def test_lock_lost_during_the_commit_is_reported_as_written_without_the_lock(store: Path) -> None:
    writer = open_write(store)
    after_commit = writer._after_commit

    def lose_it_first() -> None:
        read_shm(store)
        after_commit()

    writer._after_commit = lose_it_first  # type: ignore[method-assign]
    with pytest.raises(errors.WriteLockLost) as reported, writer.transaction() as transaction:
        transaction.execute(ADD, ("maybe",))
    assert reported.value.committed is True


@pytest.mark.usefixtures("staged")
def test_exclusive_lock_that_was_lost_is_seen(store: Path, child) -> None:
    alone = open_exclusive(store)
    read_main(store)
    with pytest.raises(errors.WriteLockLost) as refused, alone.transaction():
        pytest.fail("the lock was gone")
    assert str(refused.value).startswith(
        f"The kernel no longer shows the standing locks of this process on {store}: "
    )


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("how", [open_read, open_write, open_exclusive])
def test_store_that_the_standard_library_has_open_is_refused_and_its_transaction_survives(
    store: Path, child, how
) -> None:
    other = sqlite3.connect(store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute(ADD, ("theirs",))
    with pytest.raises(errors.SecondSQLite) as refused:
        how(store)
    numbers = ", ".join(map(str, refused.value.descriptors))
    assert str(refused.value) == (
        f"{store} is also open in this process by other means than this library (descriptor {numbers}); "
        "it was not opened. Two SQLite libraries on one file in one process cancel each other's locks and lose commits."
    )
    assert len(refused.value.descriptors) == 3
    assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    other.execute("COMMIT")
    other.close()
    assert bodies(store) == ["theirs"]
    assert pickle.loads(pickle.dumps(refused.value)).descriptors == refused.value.descriptors


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("how", [open_read, open_write])
def test_closing_beside_the_standard_library_keeps_its_transaction(store: Path, child, how) -> None:
    ours = how(store)
    other = sqlite3.connect(store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute(ADD, ("theirs",))
    with pytest.raises(errors.SecondSQLite) as refused:
        ours.close()
    assert "; it was left open, not closed. " in str(refused.value)
    assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    other.execute("COMMIT")
    other.close()
    assert bodies(store) == ["theirs"]


@pytest.mark.usefixtures("staged")
def test_forgotten_store_beside_the_standard_library_keeps_its_transaction_too(store: Path, child) -> None:
    ours = open_read(store)
    other = sqlite3.connect(store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    del ours
    assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    other.execute("ROLLBACK")
    other.close()


def test_path_only_descriptor_is_no_stranger(store: Path) -> None:
    descriptor = os.open(store, os.O_PATH)
    with open_read(store) as reader:
        assert reader.row("SELECT count(*) FROM note") == (0,)
    os.close(descriptor)


def test_second_connection_of_the_same_library_is_no_stranger(store: Path) -> None:
    with open_read(store) as first, open_write(store) as second, open_read(store) as third:
        with second.transaction() as transaction:
            transaction.execute(ADD, ("seen by all",))
        assert first.rows("SELECT body FROM note") == third.rows("SELECT body FROM note") == [("seen by all",)]
        first.close()
        with open_read(store) as fourth:
            assert fourth.row("SELECT count(*) FROM note") == (1,)


@pytest.mark.usefixtures("staged")
def test_rollback_mode_loses_its_reserved_lock_and_says_so(tmp_path: Path, child) -> None:
    store = make_store(tmp_path / "old.db", journal_mode="delete")
    writer = open_write(store)
    with pytest.raises(errors.WriteLockLost) as refused, writer.transaction() as transaction:
        transaction.execute(ADD, ("ours",))
        standard_library(store)
    assert str(refused.value).startswith(f"The kernel no longer shows the RESERVED lock of this process on {store}: ")


def test_own_lock_reads_the_kernel_not_the_library(store: Path) -> None:
    with open_write(store) as writer:
        shm = writer.descriptors.shm
        assert shm is not None
        assert own_lock(shm, WAL_WRITE_BYTE) == "none"
        with writer.transaction():
            assert own_lock(shm, WAL_WRITE_BYTE) == "write"
        assert own_lock(shm, WAL_WRITE_BYTE) == "none"
