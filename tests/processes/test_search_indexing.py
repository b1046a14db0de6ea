"""Several processes and one search index: they index at once, die, freeze, and make no search and no append wait."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import SYSTEM
from tests.faults.test_search_damage import damage

OPEN = """
    import sys, gates
    from hermes_state import open_store
    store = open_store(path=sys.argv[1])
"""


def fill(path: Path, count: int) -> list[int]:
    with open_store(path=path, clock=SYSTEM) as store:
        session = store.sessions.create(source="cli").id
        return store.messages.append_many(
            session, [{"role": "user", "content": f"apple word{number}"} for number in range(count)]
        )


@pytest.mark.slow
def test_processes_that_index_at_once_add_each_message_once(tmp_path: Path, child) -> None:
    path = tmp_path / "state.db"
    numbers = fill(path, 3000)
    indexers = [
        child(OPEN + """
    gates.wait("go")
    while True:
        work = store.search.index_idle(1)
        assert not work.degraded or "in use" in work.degraded or "is making" in work.degraded, work.degraded
        if not work.pending and not work.degraded:
            break
    store.close()
        """, path)
        for _ in range(4)
    ]
    for indexer in indexers:
        indexer.release("go")
    for indexer in indexers:
        indexer.finish()
    with open_store(path=path, clock=SYSTEM) as store:
        check = store.search.verify()
        assert (check.sound, check.messages, check.entries) == (True, 3000, 3000)
        result = store.search("word1234")
        assert ([hit.message_id for hit in result], result.indexed_to) == ([numbers[1234]], numbers[-1])


@pytest.mark.slow
def test_an_indexer_that_is_killed_leaves_a_whole_index(tmp_path: Path, child) -> None:
    path = tmp_path / "state.db"
    numbers = fill(path, 2000)
    for round_number in range(4):
        indexer = child(OPEN + """
    gates.reach("started")
    while store.search.index_idle(1).pending:
        pass
    gates.reach("all")
        """, path)
        indexer.wait_for("started")
        deadline = time.monotonic() + 0.02 * round_number
        while time.monotonic() < deadline:
            pass
        indexer.kill()
        with open_store(path=path, clock=SYSTEM) as store:
            check = store.search.verify() if store.search.path.exists() and len(store.search("word7")) else None
            assert check is None or (check.sound, check.stale) == (True, ())
    with open_store(path=path, clock=SYSTEM) as store:
        assert store.search.index_idle(100).pending == 0
        check = store.search.verify()
        assert (check.sound, check.entries) == (True, len(numbers))


def test_a_frozen_indexer_keeps_neither_searches_nor_appends_waiting(tmp_path: Path, child) -> None:
    path = tmp_path / "state.db"
    numbers = fill(path, 500)
    holder = child(OPEN + """
    store.search.index_idle(1)
    with store.search._index.writer() as writer, writer.transaction() as tx:
        tx.execute("UPDATE marks SET sweep_at = sweep_at")
        gates.reach("writing")
        gates.wait("never")
    """, path)
    holder.wait_for("writing")
    holder.freeze()
    with open_store(path=path, clock=SYSTEM) as store:
        started = time.monotonic()
        result = store.search("apple", limit=1000, budget_seconds=30.0)
        assert ({hit.message_id for hit in result}, result.complete) == (set(numbers), True)
        assert (result.indexed_to, result.scanned) == (numbers[199], 300)
        store.messages.append(store.sessions.list()[0].id, role="user", content="pear")
        assert len(store.search("pear")) == 1
        # Nothing waited for the lock, which is held for as long as the process is frozen.
        assert time.monotonic() - started < 10.0


@pytest.mark.parametrize("kind", ["garbage", "empty", "half", "delete", "delete all", "text"])
def test_an_idle_holder_does_not_keep_a_damaged_index_from_being_made_anew(tmp_path: Path, child, kind: str) -> None:
    """The path keeps its file (but where the file was deleted), and the holder goes on with the new content."""
    path = tmp_path / "state.db"
    numbers = fill(path, 300)
    holder = child(OPEN + """
    assert store.search.index_idle(10).pending == 0
    first = store.search("apple", limit=1000)
    assert (len(first), first.degraded) == (300, ""), first.degraded
    gates.reach("holding")
    gates.wait("search")
    for _ in range(3):
        again = store.search("apple", limit=1000)
        assert len(again) == 300 and again.complete, (len(again), again.complete, again.degraded)
    assert (again.degraded, again.scanned) == ("", 0), again.degraded
    store.messages.append(store.sessions.list()[0].id, role="user", content="pear")
    assert len(store.search("pear")) == 1
    work = store.search.index_idle(10)
    assert work.degraded == "", work.degraded
    assert store.search("pear").scanned == 0
    store.close()
    """, path)
    holder.wait_for("holding")
    index = tmp_path / "search.db"
    inode = os.stat(index).st_ino
    damage(index, kind)
    with open_store(path=path, clock=SYSTEM) as store:
        for _ in range(3):
            result = store.search("apple", limit=1000)
            assert ({hit.message_id for hit in result}, result.complete) == (set(numbers), True)
        store.search.index_idle(10)
        result = store.search("apple", limit=1000)
        assert (len(result), result.degraded, result.scanned) == (300, "", 0)
        assert (os.stat(index).st_ino == inode) == (not kind.startswith("delete"))
        holder.release("search")
        holder.finish()
        assert len(store.search("pear")) == 1
        check = store.search.verify()
        assert (check.sound, check.entries) == (True, 301)
    assert not list(tmp_path.glob("*retired*"))


def test_two_processes_that_find_no_index_make_one(tmp_path: Path, child) -> None:
    path = tmp_path / "state.db"
    fill(path, 300)
    searchers = [
        child(OPEN + """
    gates.reach("ready")
    gates.wait("go")
    for _ in range(20):
        result = store.search("apple", limit=1000)
        assert len(result) == 300 and result.complete, (len(result), result.degraded)
    store.close()
        """, path)
        for _ in range(3)
    ]
    for searcher in searchers:
        searcher.wait_for("ready")
    for searcher in searchers:
        searcher.release("go")
    for searcher in searchers:
        searcher.finish()
    with open_store(path=path, clock=SYSTEM) as store:
        store.search.index_idle(10)
        check = store.search.verify()
        assert (check.sound, check.entries) == (True, 300)
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith((".", "search"))) == [
        "search.db", "search.db-shm", "search.db-wal"
    ]


def test_appends_go_on_while_the_index_is_locked_for_long(tmp_path: Path, child) -> None:
    """The store's writer never attaches the index, so the index's lock is nothing to it."""
    path = tmp_path / "state.db"
    fill(path, 10)
    holder = child(OPEN + """
    store.search.index_idle(1)
    with store.search._index.writer() as writer, writer.transaction() as tx:
        tx.execute("UPDATE marks SET sweep_at = sweep_at")
        gates.reach("writing")
        gates.wait("append is done")
    """, path)
    holder.wait_for("writing")
    with open_store(path=path, clock=SYSTEM) as store:
        session = store.sessions.list()[0].id
        made = [
            store.core.write(lambda tx: tx.rows("SELECT 1"), deadline_seconds=0.0),
            store.messages.append(session, role="user", content="pear"),
        ]
    assert made == [[(1,)], 11]
    holder.release("append is done")
    holder.finish()
