"""The identity row in the database file: another store over ours is seen, and nothing else ever looks like one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import errors
from hermes_state.clock import SYSTEM
from hermes_state.engine import open_write
from hermes_state.engine.core import Core, acquire, release
from hermes_state.engine.create import create_store
from hermes_state.engine.generation import _TICK_NS
from hermes_state.engine.wal_index import last_frame_of, read_guard_numbers
from tests.support.children import Children

# A dropped table's root page goes to the table whose root is last: to the filler, so that the new table stays away.
MOVE = (
    "DROP TABLE IF EXISTS filler",
    "CREATE TABLE moved (one INTEGER PRIMARY KEY CHECK (one = 1), store_id TEXT NOT NULL, incarnation TEXT NOT NULL, "
    "created_at REAL NOT NULL, adopted_from TEXT, message_floor INTEGER NOT NULL DEFAULT 0, "
    "change_floor INTEGER NOT NULL DEFAULT 0) STRICT",
    "INSERT INTO moved SELECT * FROM store",
    "CREATE TABLE filler (x)",
    "DROP TABLE store",
    "ALTER TABLE moved RENAME TO store",
)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    core = acquire(tmp_path / "state.db", read_only=False, create=True, clock=SYSTEM)
    yield core
    release(core)


@pytest.fixture
def staged(live_store_audit_hook) -> Iterator[None]:
    """These tests stage the accident on purpose."""
    with live_store_audit_hook.allowing():
        yield


def touch_row(core: Core) -> None:
    core.write(lambda tx: tx.execute("UPDATE store SET change_floor = change_floor + 1"))


def write(core: Core) -> None:
    core.write(lambda tx: tx.execute("INSERT INTO shared_texts (hash, text_bytes, body) VALUES (1, 1, x'78')"))


def put_another_over(core: Core) -> None:
    """Another store of the same page size over ours, on the same inode, as `cp` does it."""
    other = core.path.with_name("other.db")
    create_store(other)
    subprocess.run(["cp", str(other), str(core.path)], check=True)  # in our process it would drop our locks as well


def refused(core: Core) -> errors.GenerationLost:
    with pytest.raises(errors.GenerationLost) as caught:
        write(core)
    return caught.value


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("checkpointed", [True, False])
def test_another_store_over_ours_is_seen_before_the_next_commit(core: Core, checkpointed: bool) -> None:
    write(core)
    if checkpointed:
        core.writer.checkpoint()
    put_another_over(core)
    lost = refused(core)
    assert (lost.lost, lost.committed) == (("main",), False)


@pytest.mark.usefixtures("staged")
def test_closing_copies_no_wal_into_another_store_that_lies_over_ours(core: Core) -> None:
    write(core)
    core.writer.checkpoint()
    write(core)
    put_another_over(core)
    theirs = core.path.with_name("other.db").read_bytes()
    with pytest.raises(errors.GenerationLost) as caught:
        core.writer.close()
    assert caught.value.lost == ("main",)
    assert core.path.read_bytes() == theirs


@pytest.mark.usefixtures("staged")
def test_another_store_over_ours_is_seen_however_long_ours_was_quiet(core: Core) -> None:
    write(core)
    core.writer.checkpoint()
    wait_for_settled(core)
    put_another_over(core)
    assert refused(core).lost == ("main",)


def wait_for_settled(core: Core) -> None:
    """Until the last change of the file is so old that the guard takes its time for a fact."""
    changed = os.stat(core.path).st_ctime_ns
    while time.time_ns() - changed < 2 * _TICK_NS:
        pass
    write(core)
    assert core.writer._guard._looked_at[1] == changed


def test_file_that_nobody_changed_is_not_read_again(core: Core) -> None:
    wait_for_settled(core)
    mark = core.writer._guard._mark
    assert mark is not None
    looks = []
    mark._is_there = looks.append  # type: ignore[method-assign, assignment]
    for _ in range(5):
        write(core)
    assert looks == []


def test_checkpoints_of_the_row_itself_are_no_alarm(core: Core) -> None:
    for _ in range(20):
        touch_row(core)
        write(core)
        core.writer.checkpoint()
        write(core)
    assert core.writer.stopped is None


def test_table_that_moved_is_followed_while_its_frames_are_copied(core: Core) -> None:
    """As a VACUUM by another process moves it, and a checkpoint that was killed half way leaves the file."""
    write(core)
    mark = core.writer._guard._mark
    assert mark is not None and mark._seen
    before = mark._root
    with open_write(core.path) as other:
        other.write(lambda tx: [tx.execute(sql) for sql in MOVE])
        after = int(other.rows("SELECT rootpage FROM sqlite_schema WHERE name = 'store'")[0][0])
        assert after != before
        write(core)
        copy_frame_of(core, before)  # the file's old place of the row is gone, its new one not there yet
        write(core)
        assert (mark._root, mark._seen) == (after, False)
        other.checkpoint()
        write(core)
        assert (mark._root, mark._seen) == (after, True)
        other.vacuum()
        other.checkpoint()
        write(core)
        assert mark._seen
    assert core.writer.stopped is None


@pytest.mark.usefixtures("staged")
def test_another_store_is_seen_after_the_table_moved(core: Core) -> None:
    with open_write(core.path) as other:
        other.write(lambda tx: [tx.execute(sql) for sql in MOVE])
        other.checkpoint()
    write(core)
    put_another_over(core)
    assert refused(core).lost == ("main",)


def copy_frame_of(core: Core, page: int) -> None:
    """What a checkpoint does first: one page from the WAL into the file, its progress not yet noted."""
    files = core.writer.descriptors
    assert files.main is not None and files.wal is not None and files.shm is not None
    frames, _pages, _salt, _done, size = read_guard_numbers(files.shm)
    number = last_frame_of(files.wal, page, frames, size)
    assert number > 0
    content = os.pread(files.wal, size, 32 + (number - 1) * (24 + size) + 24)
    os.pwrite(files.main, content, (page - 1) * size)


ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "60"))
VACUUMS = """
import sys, gates
from hermes_state import errors
from hermes_state.engine import open_write

move = sys.argv[2].split(";")
gates.reach("ready")
with open_write(sys.argv[1]) as store:
    for number in range(int(sys.argv[3])):
        try:
            store.write(lambda tx: [tx.execute(sql) for sql in move])
            store.vacuum()
            store.write(lambda tx: tx.execute("DELETE FROM shared_texts WHERE no % 3 = 0"))
            store.incremental_vacuum(50)
            store.checkpoint()
        except errors.LockTimeout:
            pass
gates.reach("done")
"""
CHECKPOINTS = """
import sys, gates
from hermes_state.engine import open_write

gates.reach("ready")
for number in range(int(sys.argv[2])):
    with open_write(sys.argv[1]) as store:
        store.write(lambda tx: tx.execute("UPDATE store SET message_floor = message_floor + 1000003"))
        store.checkpoint()
gates.reach("done")
"""


@pytest.mark.slow
def test_nothing_that_other_processes_do_to_their_store_is_an_alarm(core: Core, child: Children) -> None:
    mark = core.writer._guard._mark
    assert mark is not None
    asked, root_now = [], mark._root_now
    mark._root_now = lambda: asked.append(1) or root_now()  # type: ignore[method-assign, func-returns-value]
    others = [child(VACUUMS, core.path, ";".join(MOVE), ROUNDS)]
    others += [child(CHECKPOINTS, core.path, ROUNDS), child(CHECKPOINTS, core.path, ROUNDS)]
    for other in others:
        other.wait_for("ready")
    waiting, rounds = list(others), 0
    while waiting:
        rounds += 1
        core.write(lambda tx: tx.execute(
            "INSERT INTO shared_texts (hash, text_bytes, body) VALUES (1, 1, zeroblob(3000))"
        ))
        waiting = [other for other in waiting if not other.reached("done")]
    assert rounds > 100
    assert core.writer.stopped is None
    assert asked != []  # the row was not where it had been
    core.writer.checkpoint()
    write(core)
    assert mark._seen
