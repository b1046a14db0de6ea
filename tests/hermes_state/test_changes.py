"""The feed of changes: nothing twice, nothing passed over, gaps said; and waiting for commits of any process."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_state import changes
from hermes_state.changes import Change, Position
from hermes_state.changes.watch import LOOK_SECONDS, CommitWatch
from hermes_state.clock import SYSTEM
from hermes_state.engine import Transaction
from hermes_state.errors import InvalidInput
from hermes_state.store import Store
from hermes_state.testing import temporary_store

LONG = 60.0  # seconds that no test waits for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with temporary_store(tmp_path) as opened:
        yield opened


def record(store: Store, key: str, operation: str = "update", *, table: str = "sessions", at: float = 5.0) -> int:
    return store.core.write(lambda tx: changes.record(tx, table, key, operation, at))  # type: ignore[arg-type]


def append(store: Store, *texts: str) -> list[int]:
    """Rows of messages as the tables have them, whatever the append's code does."""

    def work(tx: Transaction) -> list[int]:
        tx.execute(
            "INSERT INTO sessions (id, source, started_at, active_at) VALUES ('s', 'cli', 0, 0) ON CONFLICT DO NOTHING"
        )
        ids = []
        for text in texts:
            tx.execute(
                "INSERT INTO messages (id, session_no, seq, role, content_type, content, created_at, row_check) SELECT"
                " max(message_floor, coalesce((SELECT max(id) FROM messages), 0)) + 1, 1,"
                " coalesce((SELECT max(seq) FROM messages), 0) + 1, 'user', 'text', ?, 7.0, 0 FROM store",
                (text,),
            )
            ids.append(tx.last_insert_rowid())
        return ids

    return store.core.write(work)


def keys(batch: changes.Batch) -> list[tuple[str, str]]:
    return [(change.table_name, change.key) for change in batch.changes]


def test_changes_come_by_id_and_then_the_appended_messages(store: Store) -> None:
    start = store.changes.position()
    message = append(store, "hello")[0]
    number = record(store, "s", "insert")
    batch = store.changes.since(start)
    assert batch.changes == (
        Change(id=number, table_name="sessions", key="s", operation="insert", at=5.0, session_id="s"),
        Change(
            id=message, table_name="messages", key=str(message), operation="insert", at=7.0, session_id="s"
        ),
    )
    assert (batch.gap, batch.more, batch.position) == (False, False, store.changes.position())
    assert store.changes.since(batch.position).changes == ()


def test_position_is_kept_as_text_and_names_the_store(store: Store) -> None:
    append(store, "a", "b")
    record(store, "s")
    position = store.changes.position()
    assert Position.from_json(position.to_json()) == position
    assert json.loads(position.to_json()) == {
        "store_id": store.store_id, "incarnation": store.incarnation, "message_id": 2, "change_id": 1
    }


@pytest.mark.parametrize("text", ["", "{}", "7", '{"store_id":"a","incarnation":"b","message_id":"1","change_id":1}'])
def test_anything_else_is_no_position(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Position.from_json(text)
    assert caught.value.message == f"{text[:80]!r} is no position of a change feed."


def test_ids_of_changes_go_on_after_everything_was_trimmed(store: Store) -> None:
    assert [record(store, "s") for _ in range(3)] == [1, 2, 3]
    assert store.core.write(lambda tx: changes.trim(tx, 0)) == 3
    assert record(store, "s") == 4


def test_trimming_keeps_the_newest_and_readers_behind_it_see_a_gap(store: Store) -> None:
    start = store.changes.position()
    for number in range(10):
        record(store, str(number))
    middle = Position.from_json(start.to_json().replace('"change_id":0', '"change_id":6'))
    assert store.core.write(lambda tx: changes.trim(tx, 4)) == 6
    assert store.core.write(lambda tx: changes.trim(tx, 4)) == 0
    behind = store.changes.since(start)
    assert (behind.gap, behind.changes, behind.position) == (True, (), store.changes.position())
    assert store.changes.since(behind.position).gap is False
    assert [change.key for change in store.changes.since(middle).changes] == ["6", "7", "8", "9"]


@pytest.mark.parametrize("column", ["store_id", "incarnation"])
def test_other_content_is_a_gap(store: Store, column: str) -> None:
    record(store, "s")
    position = store.changes.position()
    store.core.write(lambda tx: tx.execute(f"UPDATE store SET {column} = 'another'"))
    batch = store.changes.since(position)
    assert batch.gap
    assert getattr(batch.position, column) == "another"


@pytest.mark.parametrize("field", ["message_id", "change_id"])
def test_position_ahead_of_the_store_is_a_gap(store: Store, field: str) -> None:
    """As after an older file was put back."""
    position = store.changes.position()
    ahead = Position.from_json(json.dumps(json.loads(position.to_json()) | {field: 9}))
    assert store.changes.since(ahead).gap


def test_deleted_newest_message_leaves_nothing_to_wait_for(store: Store) -> None:
    append(store, "a")
    start = store.changes.position()
    gone = append(store, "b")[0]

    def delete(tx: Transaction) -> None:
        tx.execute("DELETE FROM messages WHERE id = ?", (gone,))
        tx.execute("UPDATE store SET message_floor = ?", (gone,))

    store.core.write(delete)
    batch = store.changes.since(start)
    assert (batch.changes, batch.gap) == ((), False)
    assert store.changes.wait(batch.position, timeout_seconds=0) is False
    assert append(store, "c") == [gone + 1]


def test_unknown_operation_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput) as caught:
        record(store, "s", "upsert")
    assert caught.value.message == f"'upsert' is no operation of the change feed of {store.path}."


@pytest.mark.parametrize("limit", [0, -1])
def test_batch_has_room_for_something(store: Store, limit: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.changes.since(store.changes.position(), limit=limit)
    assert caught.value.message == f"A batch of {limit} changes was asked for."


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.lists(st.one_of(st.tuples(st.just("change"), st.integers(1, 4)), st.tuples(st.just("append"), st.integers(1, 4)),
                       st.tuples(st.just("read"), st.integers(1, 5))), max_size=25)
)
def test_any_reader_gets_each_change_once_and_in_the_order_of_its_ids(steps: list[tuple[str, int]]) -> None:
    with temporary_store() as store:
        position = store.changes.position()
        written: dict[str, list[int]] = {"sessions": [], "messages": []}
        got: dict[str, list[int]] = {"sessions": [], "messages": []}

        def read(limit: int) -> bool:
            nonlocal position
            batch = store.changes.since(position, limit=limit)
            assert not batch.gap and len(batch.changes) <= limit
            for change in batch.changes:
                got[change.table_name].append(change.id)
            position = Position.from_json(batch.position.to_json())
            return batch.more

        for act, count in steps:
            if act == "change":
                written["sessions"] += [record(store, "s") for _ in range(count)]
            elif act == "append":
                written["messages"] += append(store, *(["x"] * count))
            else:
                read(count)
        while read(3):
            pass
        assert got == written
        assert position == store.changes.position()


# --- waiting -----------------------------------------------------------------------------------------------------


def waiting(store: Store, position: Position, *, timeout: float | None = LONG) -> Callable[[], tuple[bool, float]]:
    """Wait in a thread; the answer of the given function is what came of it, and after how many seconds."""
    found: list[tuple[bool, float]] = []

    def run() -> None:
        start = time.monotonic()
        found.append((store.changes.wait(position, timeout_seconds=timeout), time.monotonic() - start))

    thread = threading.Thread(target=run)
    thread.start()

    def answer() -> tuple[bool, float]:
        thread.join(timeout=LONG)
        assert found, "the wait did not end"
        return found[0]

    return answer


def test_wait_ends_at_once_when_there_is_something_already(store: Store) -> None:
    position = store.changes.position()
    append(store, "a")
    assert store.changes.wait(position, timeout_seconds=0)


def test_wait_is_woken_by_a_commit_of_another_process(store: Store, child) -> None:
    position = store.changes.position()
    other = child(
        """
        import sys, gates
        from hermes_state import changes
        from hermes_state.store import open_store
        with open_store(path=sys.argv[1]) as store:
            gates.reach("ready")
            gates.wait("go")
            store.core.write(lambda tx: changes.record(tx, "sessions", "s", "insert", 1.0))
        """,
        store.path,
    )
    other.wait_for("ready")
    answer = waiting(store, position)
    other.release("go")
    assert answer()[0] is True
    assert keys(store.changes.since(position)) == [("sessions", "s")]


def test_wait_ends_when_the_content_is_another(store: Store) -> None:
    position = store.changes.position()
    answer = waiting(store, position)
    store.core.write(lambda tx: tx.execute("UPDATE store SET incarnation = 'another'"))
    assert answer()[0] is True
    assert store.changes.since(position).gap


@pytest.mark.slow
def test_commits_that_say_nothing_do_not_end_a_wait(store: Store) -> None:
    position = store.changes.position()
    answer = waiting(store, position, timeout=0.4)
    for _ in range(5):
        store.core.write(lambda tx: tx.execute("UPDATE store SET created_at = created_at + 1"))
    (store.path.parent / "something else").write_text("x")
    done, seconds = answer()
    assert done is False
    assert 0.4 <= seconds < LONG / 2


def test_stop_ends_every_wait(store: Store) -> None:
    answer = waiting(store, store.changes.position(), timeout=None)
    store.changes.stop()
    assert answer()[0] is False
    assert store.changes.wait(store.changes.position(), timeout_seconds=None) is False


def test_follower_gets_batches_as_they_come(store: Store) -> None:
    batches: list[changes.Batch] = []
    start = store.changes.position()

    def follow() -> None:
        for batch in store.changes.follow(start, limit=2):
            batches.append(batch)
            if sum(len(seen.changes) for seen in batches) >= 5:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    append(store, "a", "b", "c")
    record(store, "s")
    append(store, "d")
    thread.join(timeout=LONG)
    assert not thread.is_alive()
    assert [key for batch in batches for table, key in keys(batch) if table == "messages"] == ["1", "2", "3", "4"]


@pytest.mark.slow
def test_folder_that_cannot_be_watched_is_polled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library, as where no inotify instance is left."""
    monkeypatch.setitem(__import__("sys").modules, "watchfiles._rust_notify", None)
    with CommitWatch(store.path, clock=SYSTEM) as watch:
        assert watch.polling_because is not None and watch.polling_because.startswith("ModuleNotFoundError: ")
    position = store.changes.position()
    answer = waiting(store, position)
    append(store, "a")
    assert answer()[0] is True


@pytest.mark.slow
def test_event_that_never_comes_costs_one_look(store: Store, tmp_path: Path) -> None:
    """As on a network file system: another folder is watched than the one that is written to."""
    (tmp_path / "elsewhere").mkdir()
    append(store, "a")
    position = store.changes.position()
    with CommitWatch(tmp_path / "elsewhere" / "state.db", clock=SYSTEM) as watch, store.core.new_reader() as reader:
        assert watch.polling_because is None
        timer = threading.Timer(0.05, append, (store, "b"))
        timer.start()
        start = time.monotonic()
        assert watch.until(reader, lambda: changes.moved(reader, position), timeout_seconds=LONG)
        assert time.monotonic() - start < 3 * LOOK_SECONDS
        timer.join()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_waiting_leaves_no_descriptor_behind(store: Store) -> None:
    position = store.changes.position()

    def open_descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    store.changes.wait(position, timeout_seconds=0)
    before = open_descriptors()
    for _ in range(20):
        store.changes.wait(position, timeout_seconds=0)
    # The thread of the watch closes its own descriptors, a moment after it was told to.
    deadline = time.monotonic() + LONG
    while open_descriptors() > before:
        assert time.monotonic() < deadline, "a descriptor stays open"
        time.sleep(0.005)
