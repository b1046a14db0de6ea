"""One write transaction at a time, with a deadline, a durability and a named holder."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import apsw
import pytest

from hermes_state import errors
from hermes_state.clock import FakeClock
from hermes_state.engine import open_exclusive, open_write
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"
HOLD_WRITE_LOCK = """
    import apsw, sys, gates
    connection = apsw.Connection(sys.argv[1])
    connection.execute("BEGIN IMMEDIATE").fetchall()
    gates.reach("held")
    gates.wait("end")
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db")


def test_block_that_ends_commits_and_block_that_raises_does_not(store: Path) -> None:
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            assert transaction.execute(ADD, ("kept",)) == 1
            assert transaction.last_insert_rowid() == 1
        with pytest.raises(ZeroDivisionError), writer.transaction() as transaction:
            transaction.execute(ADD, ("lost",))
            _ = 1 / 0
        with writer.transaction() as transaction:
            assert transaction.rows("SELECT body FROM note") == [("kept",)]
    assert bodies(store) == ["kept"]


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("power", 2)])
def test_durability_is_in_force_inside_the_transaction(store: Path, durability, level: int) -> None:
    with open_write(store) as writer:
        for _ in range(2):
            with writer.transaction(durability=durability) as transaction:
                assert transaction.row("PRAGMA synchronous") == (level,)


def test_durability_changes_between_transactions(store: Path) -> None:
    with open_write(store) as writer:
        for durability, level in (("process", 1), ("power", 2), ("process", 1)):
            with writer.transaction(durability=durability) as transaction:
                assert transaction.row("PRAGMA synchronous") == (level,)


def test_lock_timeout_names_the_holder_but_not_its_command(
    store: Path, child, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    holder = child(HOLD_WRITE_LOCK, store)
    holder.wait_for("held")
    with (
        open_write(store, clock=fake_clock) as writer,
        caplog.at_level(logging.WARNING, logger="hermes_state.locks"),
        pytest.raises(errors.LockTimeout) as refused,
        writer.transaction(deadline_seconds=3.0),
    ):
        pytest.fail("the lock was not free")
    assert str(refused.value) == (
        f"The write lock of {store} did not come within 3.0 s; it is held by PID {holder.pid} (wal-writer)."
    )
    assert refused.value.hint == f"Run `hermes-state locks --db {store}` to see who holds it, and try again."
    assert [owner.process.pid for owner in refused.value.holders] == [holder.pid]
    assert refused.value.retryable
    assert (refused.value.sqlite_code, refused.value.sqlite_extended) == (apsw.SQLITE_BUSY, apsw.SQLITE_BUSY)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{store} is kept by PID {holder.pid} as wal-writer: ")
    assert "script.py" in warnings[0]
    holder.release("end")
    holder.finish()


def test_writer_gets_the_lock_when_the_holder_lets_go(store: Path, child) -> None:
    holder = child(HOLD_WRITE_LOCK, store)
    holder.wait_for("held")
    with open_write(store) as writer:
        holder.release("end")
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("after",))
    assert bodies(store) == ["after"]


def test_other_thread_that_keeps_its_transaction_is_named(store: Path, fake_clock: FakeClock) -> None:
    inside, leave = threading.Event(), threading.Event()
    with open_write(store, clock=fake_clock) as writer:

        def keep() -> None:
            with writer.transaction() as transaction:
                transaction.execute(ADD, ("thread",))
                inside.set()
                leave.wait(30)

        thread = threading.Thread(target=keep)
        thread.start()
        assert inside.wait(30)
        with pytest.raises(errors.LockTimeout) as refused, writer.transaction(deadline_seconds=1.0):
            pytest.fail("the transaction was not free")
        leave.set()
        thread.join(30)
    assert str(refused.value) == (
        f"The write lock of {store} did not come within 1.0 s; it is held by another thread of this process."
    )


def test_thread_that_waits_for_its_turn_does_not_move_the_deadline_of_the_other(
    store: Path, fake_clock: FakeClock
) -> None:
    refused = []
    with open_write(store, clock=fake_clock) as writer, writer.transaction(deadline_seconds=60.0):
        before = writer._wait.remaining

        def hurry() -> None:
            try:
                with writer.transaction(deadline_seconds=0.0):
                    pytest.fail("the transaction was not free")
            except errors.LockTimeout as timeout:
                refused.append(timeout)

        thread = threading.Thread(target=hurry)
        thread.start()
        thread.join(30)
        assert len(refused) == 1
        assert writer._wait.remaining == before == 60.0


def test_transaction_inside_a_transaction_is_refused_at_once(store: Path) -> None:
    with open_write(store) as writer, writer.transaction() as outer:
        with pytest.raises(errors.StateError) as refused, writer.transaction():
            pytest.fail("a transaction was open")
        outer.execute(ADD, ("outer goes on",))
    assert str(refused.value) == f"A transaction on {store} is already open in this thread."
    assert bodies(store) == ["outer goes on"]


def test_transaction_cannot_be_used_after_its_block(store: Path) -> None:
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            pass
        with pytest.raises(errors.StateError) as refused:
            transaction.execute(ADD, ("late",))
    assert str(refused.value) == f"The transaction on {store} has ended."


def test_constraint_of_the_file_is_reported_with_its_code_and_rolled_back(store: Path) -> None:
    with open_write(store) as writer:
        with pytest.raises(errors.StatementFailed) as refused, writer.transaction() as transaction:
            transaction.execute(ADD, ("first",))
            transaction.execute(ADD, (None,))
        assert refused.value.sqlite_extended == apsw.SQLITE_CONSTRAINT_NOTNULL
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("second",))
    assert bodies(store) == ["second"]


def test_damage_stops_all_further_writing_through_the_store(store: Path) -> None:
    with open_write(store) as writer, writer.transaction() as transaction:
        transaction.executemany(ADD, ((f"{n} " + "x" * 500,) for n in range(2000)))
    with open_exclusive(store) as alone:
        alone.checkpoint("truncate")
    size = 4096
    pages = store.stat().st_size // size
    with store.open("r+b") as file:  # nothing has the store open here
        for page in range(2, pages):
            file.seek(page * size)
            file.write(b"\xff" * size)
    with open_write(store) as writer:
        with pytest.raises(errors.Corrupt) as first, writer.transaction() as transaction:
            transaction.execute("UPDATE note SET body = body || '!'")
        assert (first.value.sqlite_code, first.value.search_index) == (apsw.SQLITE_CORRUPT, False)
        with pytest.raises(errors.Corrupt) as second, writer.transaction():
            pytest.fail("the store had to stop")
        assert second.value is first.value


def test_failing_commit_is_rolled_back(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db")
    connection = apsw.Connection(str(store))
    connection.execute(
        "CREATE TABLE tag(note INTEGER REFERENCES note(id) DEFERRABLE INITIALLY DEFERRED)"
    ).fetchall()
    connection.close()
    with open_write(store) as writer:
        with pytest.raises(errors.StatementFailed) as refused, writer.transaction() as transaction:
            transaction.execute("INSERT INTO tag VALUES(77)")
        assert refused.value.sqlite_extended == apsw.SQLITE_CONSTRAINT_FOREIGNKEY
        assert writer.row("SELECT count(*) FROM tag") == (0,)


def test_commits_beyond_the_threshold_are_checkpointed_by_the_engine(store: Path) -> None:
    with open_write(store) as writer:
        for n in range(60):
            with writer.transaction() as transaction:
                transaction.execute(ADD, (f"{n}" * 50_000,))
        state = writer.wal_state()
        assert state is not None
        assert state.frames < 1100
        assert store.stat().st_size > 900 * writer.page_size


def test_full_disk_is_named_and_nothing_is_kept(store: Path) -> None:
    with open_write(store) as writer:
        pages = writer.page_count
        writer.rows(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(errors.DiskFull) as refused, writer.transaction() as transaction:
            transaction.execute(ADD, ("x" * 100_000,))
        assert str(refused.value) == (
            f"The disk of {store} is full; the transaction was rolled back. "
            "SQLite said: database or disk is full (code 13, extended 13)."
        )
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("small",))
    assert bodies(store) == ["small"]


def test_work_that_may_happen_twice_is_repeated_after_a_lost_lock(store: Path, live_store_audit_hook) -> None:
    tries = []

    def work(transaction) -> None:
        tries.append(1)
        transaction.execute("INSERT OR REPLACE INTO note VALUES(1, 'once')")
        if len(tries) == 1:
            with live_store_audit_hook.allowing():
                open(f"{store}-shm", "rb").close()

    with open_write(store) as writer:
        writer.run(work, idempotent=True)
    assert (len(tries), bodies(store)) == (2, ["once"])


def test_work_that_may_not_happen_twice_is_not_repeated_after_a_lost_lock(store: Path, live_store_audit_hook) -> None:
    tries = []

    def work(transaction) -> None:
        tries.append(1)
        transaction.execute(ADD, ("twice would be wrong",))
        with live_store_audit_hook.allowing():
            open(f"{store}-shm", "rb").close()

    with open_write(store) as writer:
        with pytest.raises(errors.WriteLockLost):
            writer.run(work)
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("goes on",))
    assert (len(tries), bodies(store)) == (1, ["goes on"])
