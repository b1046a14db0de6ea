"""Reports 75, 242: what a change of flags writes, and what repeated content keeps, in a native store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.store import Store
from tests.support.cli import RunCli


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(path=tmp_path / "home" / "state.db") as opened:
        yield opened


# --- 75: a compaction turned the flags of all rows, and each was indexed anew ------------------------------------


def compact(store: Store) -> None:
    """What a compaction hides: one row, whatever it covers."""
    store.core.write(lambda tx: tx.execute(
        "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at) VALUES (1, 'compact', 1, 1400, 1)"
    ))


CHANGES: dict[str, Callable[[Store], object]] = {
    "rewind": lambda store: store.messages.rewind("a", 3),
    "compaction": compact,
    "continuation": lambda store: store.sessions.continue_as("a"),
    "archive": lambda store: store.sessions.archive("a"),
    "pin": lambda store: store.sessions.pin("a"),
    "end": lambda store: store.sessions.end("a", "done"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_1500_messages_writes_a_handful_of_pages_and_no_index(store: Store, change: str) -> None:
    store.sessions.create(id="a", source="cli", title="Plan")
    store.messages.append_many("a", [{"role": "user", "content": f"message {n} " + "w " * 200} for n in range(1500)])
    store.search.index_idle(100)
    index = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(
        store.path.parent.glob(f"{store.search.path.name}*")
    ) if not path.name.endswith("-shm")]
    state = store.core.writer.wal_state()
    assert state is not None
    CHANGES[change](store)
    after = store.core.writer.wal_state()
    assert after is not None and after.salt == state.salt
    assert 0 < after.frames - state.frames <= 10  # 1.2 MB, 290 pages, were the better of the two that were measured
    assert [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(
        store.path.parent.glob(f"{store.search.path.name}*")
    ) if not path.name.endswith("-shm")] == index


# --- 242: 32 threads, 1.24 GB, the same static data in every step ------------------------------------------------


@pytest.mark.slow
def test_a_hundred_steps_with_static_data_are_reported_by_kind_and_shrink_to_the_last_one(
    store: Store, run_cli: RunCli
) -> None:
    store.sessions.create(id="thread", source="api")
    static = "".join(f"tool {number}: a description that never changes\n" for number in range(4500))  # 200 KB
    ids = []
    for step in range(100):
        ids += store.messages.append_many("thread", [
            {"role": "system", "content": static}, {"role": "assistant", "content": f"step {step} " + "state " * 200},
        ])
    told = run_cli("sessions", "stats", "--json").json
    assert {channel["name"] for channel in told["channels"]} == {"system content", "assistant content"}
    store.core.writer.checkpoint()
    # A tenth of what a full snapshot a step would take.
    assert store.path.stat().st_size < 100 * len(static) / 10
    store.messages.delete("thread", ids[:-2], reason="keep the last step", actor="test")
    assert run_cli("sessions", "optimize").exit_code == 0
    store.core.writer.checkpoint()
    assert store.path.stat().st_size < 1_000_000
    context = store.messages.context("thread")
    assert [message["content"] for message in context] == [static, "step 99 " + "state " * 200]
