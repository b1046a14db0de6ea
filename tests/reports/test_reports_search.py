"""Reports 71, 116, 180: the search index is beside the store, costs no append anything, and no chat depends on it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.store import Store
from tests.support.children import Children


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def frames(store: Store) -> int:
    state = store.core.writer.wal_state()
    assert state is not None
    return state.frames


# --- 71: every thousandth write rebuilt the index under the write lock -------------------------------------------


@pytest.mark.slow
def test_no_append_out_of_two_thousand_pays_for_the_index(store: Store) -> None:
    session = store.sessions.create(source="cli").id
    store.messages.append_many(session, [{"role": "user", "content": f"apple {n}"} for n in range(1000)])
    assert store.search.index_idle(100).pending == 0
    store.core.writer.checkpoint()
    files = [store.search.path, Path(f"{store.search.path}-wal")]
    index = [(os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in files]
    costs = []
    for number in range(2000):
        before = frames(store)
        store.messages.append(session, role="user", content=f"apple {number} " + "and some words of a person " * 4)
        after = frames(store)
        if after > before:  # else the WAL began anew
            costs.append(after - before)
    assert len(costs) > 1990
    # Two leaves for nearly every one: of the table and of its index; the rest are splits and the minute's stamp.
    assert sum(costs) / len(costs) < 2.5
    assert max(costs) <= 10
    assert [(os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in files] == index


# --- 116: the index is broken, so the chat begins anew -----------------------------------------------------------

RESTARTED = """
import sys
from hermes_state import open_store

with open_store(path=sys.argv[1]) as store:
    (entry,) = store.sessions.list(source="telegram")
    session = store.sessions.reopen(entry.id)
    print(session.id, len(store.messages.context(session.id)), store.messages.count(session.id))
    print(store.messages.append(session.id, role="user", content="message 40"))
    found = store.search("message", limit=100)
    print(len(found), found.complete, len(store.sessions.list()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["garbage", "emptied", "gone", "a folder"])
def test_a_broken_index_changes_nothing_about_which_session_goes_on_and_what_it_has(
    tmp_path: Path, child: Children, damage: str
) -> None:
    with open_store(path=tmp_path / "state.db") as store:
        session = store.sessions.create(id="chat", source="telegram", session_key="telegram:7").id
        store.messages.append_many(session, [{"role": "user", "content": f"message {n}"} for n in range(40)])
        store.search.index_idle()
        index = store.search.path
    for suffix in ("-wal", "-shm"):
        Path(f"{index}{suffix}").unlink(missing_ok=True)
    if damage == "garbage":
        index.write_bytes(b"\xa5" * index.stat().st_size)
    elif damage == "emptied":
        index.write_bytes(b"")
    else:
        index.unlink()
        if damage == "a folder":
            index.mkdir()
    restarted = child(RESTARTED, tmp_path / "state.db")
    assert restarted.finish().splitlines() == ["chat 40 40", "41", "41 True 1"]


# --- 180: 560 seconds for a store of 7.6 MB ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_in_seven_megabytes_takes_no_tenth_of_a_second(store: Store) -> None:
    for at in range(12):
        session = store.sessions.create(source="telegram").id
        store.messages.append_many(session, [
            {"role": "assistant", "content": f"answer {at} {n} " + f"some words about subject{n} and more " * 300}
            for n in range(57)  # 684 messages in all, of 11 KB each
        ])
    store.search.index_idle(100)
    expected = {"subject31": 12, "some words": 20, '"words about subject31"': 12, "subject31 -answer": 0}
    for query, hits in expected.items():
        taken = []
        for _ in range(3):
            started = time.perf_counter()
            result = store.search(query)
            taken.append(time.perf_counter() - started)
            assert (len(result), result.complete, result.degraded) == (hits, True, "")
        assert min(taken) < 0.1, query
