"""`Store.write`: one function between BEGIN IMMEDIATE and COMMIT, under the same guards as a transaction's block."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from hermes_state import errors
from hermes_state.clock import FakeClock
from hermes_state.engine import Store, Transaction, open_exclusive, open_write
from tests.hermes_state.test_generation import EVENTS
from tests.hermes_state.test_second_sqlite import (
    DROPS_STANDING_LOCK,
    DROPS_WRITE_LOCK,
    HOLD_OPEN,
    WRITE_ELSEWHERE,
    standard_library,
)
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db")


@pytest.fixture
def staged(live_store_audit_hook) -> Iterator[None]:
    """These tests stage the accident on purpose."""
    with live_store_audit_hook.allowing():
        yield


def add(body: str, then: Callable[[], object] = lambda: None) -> Callable[[Transaction], int]:
    def work(transaction: Transaction) -> int:
        transaction.execute(ADD, (body,))
        then()
        return transaction.last_insert_rowid()

    return work


def test_what_the_function_returns_comes_back_once_it_is_committed(store: Path) -> None:
    with open_write(store) as writer:
        assert writer.write(add("one")) == 1
        assert writer.write(lambda transaction: transaction.rows("SELECT body FROM note")) == [("one",)]
        assert writer.write(lambda transaction: transaction.execute("UPDATE note SET body = 'two'")) == 1
        assert writer.write(lambda transaction: transaction.execute("UPDATE note SET body = 'x' WHERE id = 9")) == 0
    assert bodies(store) == ["two"]


def test_function_that_raises_is_rolled_back_and_its_error_comes_out(store: Path) -> None:
    with open_write(store) as writer:
        with pytest.raises(ZeroDivisionError):
            writer.write(add("lost", lambda: 1 / 0))
        writer.write(add("kept"))
    assert bodies(store) == ["kept"]


@pytest.mark.parametrize(("durability", "level"), [("process", 1), ("power", 2)])
def test_durability_is_in_force_inside_the_function(store: Path, durability, level: int) -> None:
    with open_write(store) as writer:
        for _ in range(2):
            assert writer.write(lambda tx: tx.row("PRAGMA synchronous"), durability=durability) == (level,)


def test_write_inside_a_transaction_of_the_same_thread_is_refused_at_once(store: Path) -> None:
    with open_write(store) as writer:
        with pytest.raises(errors.StateError) as refused:
            writer.write(add("outer", lambda: writer.write(add("inner"))))
        assert str(refused.value) == f"A transaction on {store} is already open in this thread."
        with writer.transaction(), pytest.raises(errors.StateError):
            writer.write(add("inner"))
        writer.write(add("afterwards"))
    assert bodies(store) == ["afterwards"]


def test_transaction_cannot_be_used_after_its_function(store: Path) -> None:
    with open_write(store) as writer:
        kept = writer.write(lambda transaction: transaction)
        uses: list[Callable[[], object]] = [
            lambda: kept.execute(ADD, ("late",)), lambda: kept.rows("SELECT 1"), lambda: kept.row("SELECT 1"),
            lambda: kept.executemany(ADD, [("late",)]), lambda: list(kept.iterate("SELECT 1")), kept.last_insert_rowid,
        ]
        for use in uses:
            with pytest.raises(errors.StateError) as refused:
                use()
            assert str(refused.value) == f"The transaction on {store} has ended."
    assert bodies(store) == []


def test_lock_that_does_not_come_is_named_with_its_holder(store: Path, child, fake_clock: FakeClock) -> None:
    holder = child(
        """
        import apsw, sys, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("BEGIN IMMEDIATE").fetchall()
        gates.reach("held")
        gates.wait("end")
        """,
        store,
    )
    holder.wait_for("held")
    with open_write(store, clock=fake_clock) as writer, pytest.raises(errors.LockTimeout) as refused:
        writer.write(add("never"), deadline_seconds=3.0)
    assert str(refused.value) == (
        f"The write lock of {store} did not come within 3.0 s; it is held by PID {holder.pid} (wal-writer)."
    )
    assert refused.value.waited_seconds == pytest.approx(3.0)
    holder.kill()


def test_constraint_checked_at_commit_is_reported_and_rolled_back(store: Path) -> None:
    connection = apsw.Connection(str(store))
    connection.execute("CREATE TABLE tag(note REFERENCES note(id) DEFERRABLE INITIALLY DEFERRED)").fetchall()
    connection.close()
    with open_write(store) as writer:
        with pytest.raises(errors.StatementFailed) as refused:
            writer.write(lambda transaction: transaction.execute("INSERT INTO tag VALUES(77)"))
        assert refused.value.sqlite_extended == apsw.SQLITE_CONSTRAINT_FOREIGNKEY
        assert writer.row("SELECT count(*) FROM tag") == (0,)


def test_full_disk_is_named_although_sqlite_has_rolled_back_by_itself(store: Path) -> None:
    with open_write(store) as writer:
        writer.rows(f"PRAGMA max_page_count = {writer.page_count + 2}")
        with pytest.raises(errors.DiskFull):
            writer.write(add("x" * 100_000))
        writer.write(add("small"))
    assert bodies(store) == ["small"]


@pytest.mark.parametrize("way", ["write", "block"])
def test_error_that_was_swallowed_although_sqlite_rolled_back_is_not_taken_for_a_lost_lock(
    store: Path, way: str
) -> None:
    def work(transaction: Transaction) -> None:
        transaction.execute(ADD, ("gone with the rest",))
        with pytest.raises(errors.DiskFull):
            transaction.execute(ADD, ("x" * 100_000,))
        if way == "block":
            transaction.execute(ADD, ("on its own",))

    with open_write(store) as writer:
        writer.rows(f"PRAGMA max_page_count = {writer.page_count + 2}")
        with pytest.raises(errors.StateError) as refused:
            if way == "write":
                writer.write(work)
            else:
                with writer.transaction() as transaction:
                    work(transaction)
        assert str(refused.value) == (
            f"SQLite has already rolled back the transaction on {store}, after an earlier error."
        )
        writer.write(add("small"))
    assert bodies(store) == ["small"]


# --- the guards --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("event", "lost"), EVENTS, ids=[event.__name__ for event, _ in EVENTS])
@pytest.mark.parametrize("when", ["before", "inside", "during the commit"])
def test_lost_generation_is_seen_and_captured(store: Path, event, lost, when: str) -> None:
    writer = open_write(store)
    writer.write(add("before"))
    after_commit = writer._after_commit

    def event_first() -> None:
        event(store)
        after_commit()

    if when == "before":
        event(store)
    if when == "during the commit":
        writer._after_commit = event_first  # type: ignore[method-assign]
    committed = when == "during the commit"
    with pytest.raises(errors.GenerationLost) as refused:
        writer.write(add("in flight", (lambda: event(store)) if when == "inside" else (lambda: None)))
    assert (refused.value.lost, refused.value.committed) == (lost, committed)
    assert bodies(refused.value.capture / "copy.db") == ["before", "in flight"][: 1 + committed]
    with pytest.raises(errors.GenerationLost) as again:
        writer.write(add("later"))
    assert again.value is refused.value


def overwrite_wal_salt(writer: Store) -> None:
    assert writer.descriptors.wal is not None
    os.pwrite(writer.descriptors.wal, b"\x55" * 8, 16)


def cut_wal(writer: Store) -> None:
    os.truncate(f"{writer.path}-wal", 0)


def zero_header(writer: Store) -> None:
    assert writer.descriptors.main is not None
    os.pwrite(writer.descriptors.main, b"\x00" * 100, 0)


def cut_main(writer: Store) -> None:
    writer.checkpoint()
    os.truncate(writer.path, 8192)


@pytest.mark.parametrize(
    ("damage", "lost"), [(overwrite_wal_salt, "wal"), (cut_wal, "wal"), (zero_header, "main"), (cut_main, "main")]
)
def test_content_overwritten_in_place_is_seen_before_the_commit(store: Path, damage, lost: str) -> None:
    writer = open_write(store)
    writer.write(add("x" * 50_000))
    damage(writer)
    with pytest.raises(errors.GenerationLost) as refused:
        writer.write(add("in flight"))
    assert (refused.value.lost, refused.value.committed) == ((lost,), False)


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("accident", [*DROPS_WRITE_LOCK, *DROPS_STANDING_LOCK])
@pytest.mark.parametrize("when", ["before", "inside"])
def test_lost_lock_is_seen_before_the_commit(store: Path, child, accident, when: str) -> None:
    idle = child(HOLD_OPEN, store)
    idle.wait_for("open")
    writer = open_write(store)
    writer.write(add("before"))
    if when == "before":
        accident(store)
    with pytest.raises(errors.WriteLockLost) as refused:
        writer.write(add("in flight", (lambda: accident(store)) if when == "inside" else (lambda: None)))
    assert refused.value.committed is False
    writer.reopen()
    writer.write(add("again"))
    writer.close()
    idle.kill()
    assert bodies(store) == ["before", "again"]


@pytest.mark.usefixtures("staged")
def test_lost_files_are_the_error_and_not_what_the_function_made_of_its_reads(store: Path) -> None:
    writer = open_write(store)
    writer.write(add("before"))

    def work(transaction: Transaction) -> None:
        os.unlink(f"{store}-wal")
        raise errors.NotFound("no such row")  # as a function says that reads a lost file

    with pytest.raises(errors.GenerationLost) as refused:
        writer.write(work)
    assert isinstance(refused.value.__context__, errors.NotFound)
    assert refused.value.committed is False


@pytest.mark.usefixtures("staged")
def test_lost_lock_is_the_error_and_not_what_the_function_raised_after_it(store: Path) -> None:
    writer = open_write(store)
    with pytest.raises(errors.WriteLockLost) as refused:
        writer.write(add("in flight", lambda: (Path(f"{store}-shm").read_bytes(), 1 / 0)))
    assert isinstance(refused.value.__context__, ZeroDivisionError)


@pytest.mark.usefixtures("staged")
def test_second_library_that_already_writes_is_seen_before_we_begin(store: Path, child) -> None:
    writer = open_write(store)
    other = sqlite3.connect(store, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute(ADD, ("theirs",))
    with pytest.raises(errors.SecondSQLite):
        writer.write(lambda transaction: pytest.fail("the kernel would have granted us their lock"))
    assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    other.execute("COMMIT")
    other.close()
    assert bodies(store) == ["theirs"]


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("count_stays", [False, True])
def test_second_library_that_begins_inside_is_seen_before_our_commit(store: Path, child, count_stays: bool) -> None:
    writer = open_write(store)
    writer.write(add("before"))
    others = []
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    writer.rows("SELECT 1")  # the spare descriptors are known now

    def second_library() -> None:
        other = sqlite3.connect(store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        others.append(other)
        if count_stays:
            for number in spare:
                os.close(number)

    with pytest.raises(errors.SecondSQLite) as refused:
        writer.write(add("ours", second_library))
    assert "; it was left as it is, nothing committed. " in str(refused.value)
    assert child(WRITE_ELSEWHERE, store).finish().split() == ["busy"]
    others[0].execute("ROLLBACK")
    others[0].close()
    writer.reopen()
    writer.write(add("ours again"))
    writer.close()
    assert bodies(store) == ["before", "ours again"]


@pytest.mark.usefixtures("staged")
def test_lock_lost_during_the_commit_is_reported_as_written_without_the_lock(store: Path) -> None:
    writer = open_write(store)
    after_commit = writer._after_commit

    def lose_it_first() -> None:
        Path(f"{store}-shm").read_bytes()
        after_commit()

    writer._after_commit = lose_it_first  # type: ignore[method-assign]
    with pytest.raises(errors.WriteLockLost) as reported:
        writer.write(add("maybe"))
    assert reported.value.committed is True


@pytest.mark.usefixtures("staged")
def test_rollback_mode_loses_its_reserved_lock_and_says_so(tmp_path: Path) -> None:
    store = make_store(tmp_path / "old.db", journal_mode="delete")
    writer = open_write(store)
    writer.write(add("kept"))
    with pytest.raises(errors.WriteLockLost) as refused:
        writer.write(add("ours", lambda: standard_library(store)))
    assert str(refused.value).startswith(f"The kernel no longer shows the RESERVED lock of this process on {store}: ")
    assert bodies(store) == ["kept"]


@pytest.mark.usefixtures("staged")
def test_exclusive_store_writes_and_sees_its_lost_lock(store: Path) -> None:
    alone = open_exclusive(store)
    assert alone.write(add("alone")) == 1
    with pytest.raises(errors.WriteLockLost):
        alone.write(add("in flight", store.read_bytes))


def test_function_that_forks_commits_in_the_parent_only(store: Path, child) -> None:
    parent = child(
        """
        import os, sys
        from hermes_state.engine import open_write
        from hermes_state.errors import ForkedConnection
        store = open_write(sys.argv[1])
        pids = []
        def work(transaction):
            transaction.execute("INSERT INTO note(body) VALUES('parent')")
            pids.append(os.fork())
        try:
            store.write(work)
        except ForkedConnection:
            os._exit(0 if pids == [0] else 1)
        assert os.waitpid(pids[0], 0)[1] == 0
        store.close()
        """,
        store,
    )
    parent.finish()
    assert bodies(store) == ["parent"]


def test_commits_beyond_the_threshold_are_checkpointed(store: Path) -> None:
    with open_write(store) as writer:
        for n in range(60):
            writer.write(add(f"{n}" * 50_000))
        state = writer.wal_state()
        assert state is not None
        assert state.frames < 1100


def test_threads_write_one_after_the_other_and_lose_nothing(store: Path) -> None:
    with open_write(store) as writer:
        threads = [
            threading.Thread(target=lambda n=n: [writer.write(add(f"{n}-{i}")) for i in range(50)]) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(bodies(store)) == sorted(f"{n}-{i}" for n in range(4) for i in range(50))


def test_reopening_keeps_the_turn_of_threads_that_wait(store: Path) -> None:
    with open_write(store) as writer:
        turn, lock = writer._turn, writer._lock
        writer.reopen()
        assert (writer._turn, writer._lock) == (turn, lock)
        writer.write(add("again"))
    assert bodies(store) == ["again"]


@pytest.mark.parametrize("wrong", ["a row", "the search index"])
def test_damage_that_the_function_found_in_a_row_is_rolled_back_and_stops_nobody(store: Path, wrong: str) -> None:
    def found() -> None:
        raise errors.Corrupt(f"{wrong} of {store} does not add up", path=store, search_index=wrong != "a row")

    with open_write(store) as writer:
        with pytest.raises(errors.Corrupt):
            writer.write(add("lost", found))
        with pytest.raises(errors.Corrupt), writer.transaction() as transaction:
            add("lost as well", found)(transaction)
        assert writer.stopped is None
        writer.write(add("kept"))
    assert bodies(store) == ["kept"]


def test_damage_that_sqlite_found_stops_all_writing(store: Path) -> None:
    def found() -> None:
        raise errors.Corrupt(f"{store} is damaged", path=store, search_index=False, sqlite_code=11)

    with open_write(store) as writer:
        with pytest.raises(errors.Corrupt) as first:
            writer.write(add("lost", found))
        with pytest.raises(errors.Corrupt) as again:
            writer.write(add("refused"))
        assert again.value is first.value
    assert bodies(store) == []
