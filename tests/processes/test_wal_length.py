"""The WAL of a store stays short however many processes write to it, and checkpoints stay passive beside Litestream."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.engine import writer
from tests.support.children import Children

WRITE = """
import sys, gates
from hermes_state import open_store
with open_store(path=sys.argv[1]) as store:
    name = store.sessions.create(source="cli").id
    gates.reach("ready"); gates.wait("go")
    for number in range(int(sys.argv[2])):
        store.messages.append(name, role="user", content="x" * (number % 300))
"""


@pytest.mark.slow
def test_writers_that_never_pause_do_not_let_the_wal_grow_without_end(child: Children, tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    with open_store(path=db) as store:
        page = store.core.writer.page_size
        children = [child(WRITE, str(db), "4000") for _ in range(6)]
        for one in children:
            one.wait_for("ready")
        for one in children:
            one.release("go")
        for one in children:
            one.finish(120)
        assert store.messages.count() == 24_000
    frames = db.with_name("state.db-wal").stat().st_size // (page + 24)
    # Twice the mark: others commit while one process waits for its turn to copy.
    assert frames < 2 * writer.LONG_WAL_FRAMES


@pytest.mark.slow
def test_a_reader_of_an_old_state_costs_a_writer_no_more_than_its_short_wait(tmp_path: Path) -> None:
    with open_store(path=tmp_path / "state.db") as store, store.core.new_reader() as reader, reader.snapshot():
        reader.row("SELECT count(*) FROM messages")
        session = store.sessions.create(source="cli").id
        for _ in range(3):
            store.messages.append_many(session, [{"role": "user", "content": "x" * 2_000}] * 5_000)
        state = store.core.writer.wal_state()
        assert state is not None and state.frames > writer.LONG_WAL_FRAMES
        assert store.messages.count(session) == 15_000


def test_beside_litestream_no_checkpoint_keeps_writers_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LONG_WAL_FRAMES", 10)
    monkeypatch.setattr(writer, "CHECKPOINT_FRAMES", 5)
    asked: list[str] = []
    with open_store(path=tmp_path / "state.db") as store, store.core.new_reader() as reader, reader.snapshot():
        reader.row("SELECT count(*) FROM messages")
        own, checkpoint = store.core.writer, store.core.writer._checkpoint
        monkeypatch.setattr(own, "_checkpoint", lambda mode: (asked.append(mode), checkpoint(mode))[1])
        session = store.sessions.create(source="cli").id
        (tmp_path / ".state.db-litestream").mkdir()
        for _ in range(10):
            store.messages.append(session, role="user", content="replicated")
        assert set(asked) == {"passive"}
        (tmp_path / ".state.db-litestream").rmdir()
        for _ in range(10):
            store.messages.append(session, role="user", content="alone")
        assert "full" in asked
