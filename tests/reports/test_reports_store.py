"""Reports 31, 73 to 77, 81 to 85, 109, 216: what opening a store costs, and what its users share."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import SystemClock
from hermes_state.engine import open_read
from hermes_state.errors import LockTimeout, SessionNotFound
from hermes_state.store import Store
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
    assert [name for kind, name, _table, sql in fresh[:-1] if "VIRTUAL" in str(sql)] == []
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


# --- 81 to 85: descriptors ---------------------------------------------------------------------------------------


def descriptors(db: Path) -> dict[str, int]:
    """How many descriptors this process has on each file beside the store, and in all."""
    gc.collect()  # what other tests left open is not what this one counts
    counts = {"all": 0}
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # that of the listing itself
        counts["all"] += 1
        if name.startswith(str(db.parent)):
            counts[name] = counts.get(name, 0) + 1
    return counts


def in_threads(count: int, work: Callable[[], object]) -> None:
    """Run `work` in `count` threads, ten at a time; each of them ends."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    for _ in range(count // 10):
        threads = [threading.Thread(target=run) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []


@pytest.fixture
def chat(db: Path) -> Store:
    """A store with 50 sessions, open for as long as the test wants it."""
    store = open_store(path=db)
    for number in range(50):
        session = store.sessions.create(source="cli", title=f"chat {number}")
        store.messages.append(session.id, role="user", content=f"hello {number}")
    return store


@pytest.mark.slow
def test_three_hundred_threads_that_read_once_and_end_leave_no_descriptor(chat: Store, db: Path) -> None:
    def read_once() -> None:
        assert len(chat.sessions.list(limit=50)) == 50
        assert len(chat.search("hello", limit=5)) == 5

    in_threads(20, read_once)  # the pool is bounded; fill it
    before = descriptors(db)
    in_threads(300, read_once)
    after = descriptors(db)
    # Readers are opened when threads meet, so a run may have fewer than the most: one writer, four readers, the index.
    assert max(after.values()) <= before["all"] + 3 * 4
    assert after[str(db)] <= 1 + 4
    chat.close()
    assert set(descriptors(db)) == {"all"}


@pytest.mark.slow
def test_a_thousand_polls_leave_the_descriptors_as_they_were(chat: Store, db: Path) -> None:
    position = chat.changes.position()
    counts = []
    for number in range(1000):
        chat.sessions.list(limit=20)
        if number % 10 == 0:
            chat.sessions.count_by_source()
            chat.changes.since(position)
        if number in (20, 999):
            counts.append(descriptors(db))
    assert counts[0] == counts[1]
    chat.close()


@pytest.mark.slow
def test_a_hundred_and_twenty_opens_of_an_hour_leave_no_descriptor(chat: Store, db: Path) -> None:
    chat.close()
    before = descriptors(db)
    for number in range(120):
        with open_store(path=db, read_only=number % 2 == 1) as store:
            assert len(store.sessions.list(limit=3)) == 3
            if number % 20 == 0:
                store.search("hello", limit=1)
    assert descriptors(db) == before
    assert set(before) == {"all"}


SATURATED = """
import os, resource, sys
from pathlib import Path
from hermes_state import open_store

folder = Path(sys.argv[1]).parent
main = open_store(path=sys.argv[1])
session = main.sessions.create(id="chat", source="telegram").id
main.messages.append(session, role="user", content="before")
with open_store(path=folder / "there.db"):
    pass
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
filler = []
while True:
    try:
        filler.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        break
said, opened = set(), 0
for room in range(14):  # from none left, one more each time, until the open succeeds
    try:
        open_store(path=folder / sys.argv[2].format(room)).close()
        opened += 1
    except Exception as problem:
        said.add(f"{type(problem).__name__} {problem.errno} {'(EMFILE: Too many open files)' in str(problem)} "
                 f"{'ulimit -n' in getattr(problem, 'hint', '')}")
    os.close(filler.pop())
print(*sorted(said), sep="\\n")
print(opened > 0)
main.messages.append(session, role="user", content="while descriptors were short")
print([message["content"] for message in main.messages.context(session)])
print([name for name in os.listdir(folder) if name.endswith(".new")])
main.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["there.db", "new {}.db"])
def test_a_gateway_that_runs_out_of_descriptors_is_told_that_and_loses_nothing(
    db: Path, child: Children, name: str
) -> None:
    assert child(SATURATED, db, name).finish().splitlines() == [
        "CannotOpen 24 True True", "True", "['before', 'while descriptors were short']", "[]",
    ]


@pytest.mark.slow
def test_the_doctor_counts_the_descriptors_of_a_holder_on_the_store(db: Path, child: Children, run_cli: RunCli) -> None:
    holder = child(
        """
        import sys, gates
        from hermes_state import open_store
        with open_store(path=sys.argv[1]) as store:
            store.sessions.list()
            gates.reach("open")
            gates.wait("end")
        """,
        db,
    )
    holder.wait_for("open")
    told = run_cli("doctor", "--db", db, "--json").json
    (found,) = [finding for finding in told["findings"] if finding["code"] == "holder"]
    on_store = sum(
        os.readlink(f"/proc/{holder.pid}/fd/{number}").startswith(str(db))
        for number in os.listdir(f"/proc/{holder.pid}/fd")
    )
    assert f"{on_store} descriptors on the store" in found["sentence"]
    holder.release("end")
    holder.finish()
