"""Reports 31, 73 to 77, 109, 216: what opening a store costs, and what its users share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import SystemClock
from hermes_state.engine import open_read
from hermes_state.errors import LockTimeout, SessionNotFound
from tests.maintenance.damage import examined
from tests.support.children import Child, Children
from tests.support.cli import RunCli


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


def schema(db: Path) -> list[tuple[object, ...]]:
    """Every object of the file as SQLite has it, and the cookie that each change of the schema raises."""
    with open_read(db) as reader:
        found = reader.rows("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
        return [*found, ("cookie", reader.pragma("schema_version"))]


# --- 31, 109: two programs that make tables at their start, and two stores with the same number ------------------

EVERYTHING = """
import sys, gates
from hermes_state import open_store

gates.reach("ready")
gates.wait("go")
for _ in range(3):
    with open_store(path=sys.argv[1]) as store:
        session = store.sessions.ensure(sys.argv[2], "cli").id
        store.messages.append(session, role="user", content="a word")
        with store.messages.stream(session) as stream:
            stream.append("an answer")
            stream.settle()
        store.search("word")
        store.search.index_idle()
        store.usage.record(session, model="m", input_tokens=1)
        with store.leases.acquire(sys.argv[2], term_seconds=30):
            pass
print(store.store_id)
"""


@pytest.mark.slow
def test_programs_that_start_together_and_use_everything_change_no_schema(db: Path, child: Children) -> None:
    with open_store(path=db):
        pass
    fresh = schema(db)
    programs = [child(EVERYTHING, db, name) for name in ("serve", "gateway")]
    for program in programs:
        program.wait_for("ready")
    for program in programs:
        program.release("go")
    assert len({program.finish() for program in programs}) == 1
    # No feature makes tables of its own when it is first used, so one number means one shape.
    assert schema(db) == fresh
    assert [name for kind, name, _table, sql in fresh[:-1] if "CREATE VIRTUAL" in str(sql)] == []
    assert examined(db).verdict == "healthy"


# --- 73, 77: every start pays again ------------------------------------------------------------------------------


def test_three_starts_after_a_large_delete_write_nothing(db: Path) -> None:
    with open_store(path=db) as store:
        for name in ("kept", "gone"):
            store.sessions.create(id=name, source="cli")
            store.messages.append_many(name, [{"role": "user", "content": f"{n} " + "text " * 200} for n in range(200)])
        store.sessions.delete("gone", actor="test", reason="asked for")
        # An index that is not finished is no business of the next start either.
        store.search("text", budget_seconds=0.0)
        store.core.writer.checkpoint()
    before = written(db)
    for _ in range(3):
        with open_store(path=db) as store, store.core.reader() as reader:
            assert store.messages.count("kept") == 200
            assert int(reader.pragma("freelist_count")) > 40
        assert written(db) == before


def written(db: Path) -> list[tuple[int, int]]:
    """Size and time of the last write of the file and its WAL, to the nanosecond."""
    return [(state.st_size, state.st_mtime_ns) for state in (os.stat(db), os.stat(f"{db}-wal"))]


# --- 74: parallel programs stall on the write lock ---------------------------------------------------------------

FOUR = """
import sys, gates
from hermes_state import open_store

with open_store(path=sys.argv[1]) as store:
    store.sessions.create(id=sys.argv[2], source="cli")
    gates.reach("ready")
    gates.wait("go")
    ids = [store.messages.append(sys.argv[2], role="user", content=f"{number}") for number in range(200)]
    print(len(set(ids)), ids == sorted(ids))
"""


@pytest.mark.slow
def test_four_writers_beside_each_other_get_all_their_rows_in(db: Path, child: Children) -> None:
    with open_store(path=db):
        pass
    writers = {name: child(FOUR, db, name) for name in ("a", "b", "c", "d")}
    for writer in writers.values():
        writer.wait_for("ready")
    for writer in writers.values():
        writer.release("go")
    assert [writer.finish() for writer in writers.values()] == ["200 True\n"] * 4
    with open_store(path=db) as store:
        for name in writers:
            assert [message["content"] for message in store.messages.context(name)] == [str(n) for n in range(200)]


# --- 76, 216: no lock, so the chat is nowhere, or a healthy file is called damaged -------------------------------


class Hurried(SystemClock):
    """The machine's clock, on which nobody really waits."""

    slept = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds



def writing(child: Children, db: Path) -> Child:
    """A process that keeps the write lock until `end`."""
    holder = child(
        """
        import sys, gates
        from hermes_state.engine import open_write
        with open_write(sys.argv[1]) as store, store.transaction() as tx:
            tx.rows("SELECT 1")
            gates.reach("writing")
            gates.wait("end")
        """,
        db,
    )
    holder.wait_for("writing")
    return holder


@pytest.mark.slow
def test_a_session_that_could_not_be_created_is_an_error_and_three_messages_flushed_twice_are_three_rows(
    db: Path, child: Children
) -> None:
    flushed = [
        {"role": "user", "content": f"message {number}", "client_key": f"turn-1-{number}"} for number in range(3)
    ]
    with open_store(path=db, clock=Hurried()) as store:
        holder = writing(child, db)
        with pytest.raises(LockTimeout) as caught:
            store.sessions.create(id="chat", source="telegram")
        assert str(caught.value) == (
            f"The write lock of {db} did not come within 20.0 s; it is held by PID {holder.pid} (wal-writer)."
        )
        holder.release("end")
        holder.finish()
        with pytest.raises(SessionNotFound) as missing:
            store.messages.append_many("chat", flushed)
        assert str(missing.value) == f"There is no session 'chat' in {db}."
        store.sessions.create(id="chat", source="telegram")
        first = store.messages.append_many("chat", flushed)
        assert store.messages.append_many("chat", flushed) == first
        assert [message["content"] for message in store.messages.context("chat")] == [
            f"message {number}" for number in range(3)
        ]


@pytest.mark.slow
def test_a_lock_that_does_not_come_at_once_is_busy_and_never_damage(db: Path, child: Children, run_cli: RunCli) -> None:
    with open_store(path=db) as store:
        store.sessions.create(id="chat", source="cli")
        holder = writing(child, db)
        for _ in range(3):
            with pytest.raises(LockTimeout) as caught:
                store.core.write(lambda tx: tx.execute("UPDATE sessions SET model = 'm'"), deadline_seconds=0.0)
            assert str(caught.value) == (
                f"The write lock of {db} did not come within 0.0 s; it is held by PID {holder.pid} (wal-writer)."
            )
            assert (caught.value.retryable, caught.value.exit_code) == (True, 75)
        # Reading goes on, and so does the check of the file.
        assert store.sessions.get("chat").model is None
        checked = run_cli("doctor", "--db", db)
        assert (checked.exit_code, "Verdict: healthy." in checked.stdout) == (0, True), checked.stdout
        holder.release("end")
        holder.finish()
        assert store.core.write(lambda tx: tx.execute("UPDATE sessions SET model = 'm'"), deadline_seconds=0.0) == 1
