"""Several connections of one process when its locks are cancelled, and what may be rolled back then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import errors
from hermes_state.engine import open_exclusive, open_read, open_write
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db")


@pytest.fixture(autouse=True)
def staged(live_store_audit_hook) -> Iterator[None]:
    """These tests stage the accident on purpose."""
    with live_store_audit_hook.allowing():
        yield


def cancel_locks(store: Path) -> None:
    for suffix in ("", "-shm"):
        Path(f"{store}{suffix}").read_bytes()


def test_new_connection_does_not_hide_that_an_older_one_lost_its_lock(store: Path) -> None:
    first = open_write(store)
    cancel_locks(store)
    with pytest.raises(errors.WriteLockLost) as refused:
        open_read(store)
    assert str(refused.value).startswith(f"The kernel no longer shows the standing locks of this process on {store}: ")
    with pytest.raises(errors.WriteLockLost):
        first.rows("SELECT 1")
    with open_read(store) as reader:
        assert reader.row("SELECT count(*) FROM note") == (0,)


def test_file_is_not_opened_again_while_another_thread_still_has_its_stopped_connection(store: Path) -> None:
    first, second = open_write(store), open_read(store)
    inside, leave = threading.Event(), threading.Event()

    def keep_reading() -> None:
        with second._lock:  # as a long query of that thread does
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=keep_reading)
    thread.start()
    assert inside.wait(30)
    cancel_locks(store)
    with pytest.raises(errors.WriteLockLost):
        first.rows("SELECT 1")
    with pytest.raises(errors.WriteLockLost) as refused:
        first.reopen()
    assert str(refused.value) == (
        f"The kernel no longer shows the standing locks of this process on {store}: "
        "other code in this process opened and closed the same file. The transaction was rolled back."
    )
    leave.set()
    thread.join(30)
    second.close()
    first.reopen()
    assert first.row("SELECT count(*) FROM note") == (0,)
    first.close()


def test_threads_that_notice_it_at_once_do_not_wait_for_each_other(store: Path) -> None:
    stores = [open_write(store) for _ in range(6)]
    gate, seen = threading.Barrier(6), []

    def use(opened) -> None:
        gate.wait(30)
        try:
            opened.rows("SELECT 1")
        except errors.WriteLockLost as refused:
            seen.append(refused)

    cancel_locks(store)
    threads = [threading.Thread(target=use, args=(opened,), daemon=True) for opened in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [thread.is_alive() for thread in threads] == [False] * 6
    assert len(seen) == 6
    for opened in stores:
        opened.close()
    with open_write(store) as again, again.transaction() as transaction:
        transaction.execute(ADD, ("goes on",))
    assert bodies(store) == ["goes on"]


def test_large_transaction_writes_nothing_before_its_commit(store: Path) -> None:
    # Pages written earlier would go over what others commit once our lock is gone.
    with open_write(store) as writer:
        before = writer.wal_state()
        with writer.transaction() as transaction:
            transaction.executemany(ADD, (("x" * 4000,) for _ in range(3000)))
            during = writer.wal_state()
            assert before is not None
            assert during is not None
            assert during.wal_bytes == before.wal_bytes


def test_rollback_waits_until_the_write_lock_is_ours_again(store: Path, child) -> None:
    other = child(
        """
        import apsw, sys, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("SELECT count(*) FROM note").fetchall()
        gates.reach("open")
        gates.wait("begin")
        connection.execute("BEGIN IMMEDIATE").fetchall()
        connection.execute("INSERT INTO note(body) VALUES('theirs')").fetchall()
        gates.reach("begun")
        gates.wait("commit")
        connection.execute("COMMIT").fetchall()
        gates.reach("committed")
        gates.wait("end")
        """,
        store,
    )
    other.wait_for("open")
    writer = open_write(store)
    with pytest.raises(errors.WriteLockLost), writer.transaction() as transaction:
        transaction.execute(ADD, ("ours",))
        cancel_locks(store)
        other.release("begin")
        other.wait_for("begun")
    # The other process is in a transaction of its own: ours is kept as it is, and the file not opened here meanwhile.
    with pytest.raises(errors.WriteLockLost):
        writer.reopen()
    other.release("commit")
    other.wait_for("committed")
    writer.reopen()
    with writer.transaction() as transaction:
        transaction.execute(ADD, ("ours again",))
    writer.close()
    other.kill()
    assert bodies(store) == ["theirs", "ours again"]


def test_statement_after_the_loss_is_not_even_started(store: Path) -> None:
    writer = open_write(store)
    with pytest.raises(errors.WriteLockLost) as refused, writer.transaction() as transaction:
        transaction.execute(ADD, ("first",))
        Path(f"{store}-shm").read_bytes()
        transaction.execute(ADD, ("second",))
    assert "the WAL write lock of this process (byte 120)" in str(refused.value)


def test_long_read_notices_the_loss_at_its_next_batch(tmp_path: Path) -> None:
    store = make_store(tmp_path / "long.db", rows=500)
    reader = open_read(store)
    rows = reader.iterate("SELECT id FROM note ORDER BY id", batch=100)
    assert next(rows) == (1,)
    cancel_locks(store)
    with pytest.raises(errors.WriteLockLost):
        list(rows)


def test_file_with_a_second_name_is_not_opened_for_writing(store: Path) -> None:
    store.with_name("other.db").hardlink_to(store)
    for way in (open_write, open_exclusive):
        with pytest.raises(errors.Refused) as refused:
            way(store)
        assert str(refused.value) == (
            f"{store} has 2 names (hard links). Each name would get a WAL of its own over the same file, "
            "which destroys it."
        )
    with open_read(store) as reader:
        assert reader.row("SELECT count(*) FROM note") == (0,)


def test_process_that_uses_the_file_under_another_name_is_refused(store: Path, child, fake_clock) -> None:
    # It has a WAL of its own over the same database file; the name may be gone by now, or be a mount of the file.
    link = store.with_name("other.db")
    link.hardlink_to(store)
    other = child(
        """
        import apsw, sys, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("SELECT count(*) FROM note").fetchall()
        gates.reach("open")
        gates.wait("end")
        """,
        link,
    )
    other.wait_for("open")
    link.unlink()
    with pytest.raises(errors.GenerationLost) as refused:
        open_write(store, clock=fake_clock)
    assert refused.value.operator_detail == (
        f"Another process has the same database file as {store} open, but not its -wal and -shm: it uses another "
        "name of the file, or unlinked sidecars."
    )
    other.kill()
    with open_write(store, clock=fake_clock) as writer, writer.transaction() as transaction:
        transaction.execute(ADD, ("alone",))
    assert bodies(store) == ["alone"]


def test_forked_child_leaves_the_open_transaction_of_its_parent_alone(store: Path, child) -> None:
    parent = child(
        """
        import gc, os, sys
        from hermes_state.engine import open_write
        store = open_write(sys.argv[1])
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO note(body) VALUES('parent')")
            pid = os.fork()
            if pid == 0:
                del transaction, store
                gc.collect()
                sys.exit(0)   # the interpreter's ordinary end, block exit included
            assert os.waitpid(pid, 0)[1] == 0
        store.close()
        """,
        store,
    )
    parent.finish()
    assert bodies(store) == ["parent"]
