"""The WAL of a long run beside others: copied back to its end, so that it starts over."""

from __future__ import annotations

from pathlib import Path

from hermes_state.engine import Store, open_read, open_write
from maintenance.space import copy_back as module
from maintenance.space.copy_back import copy_back, keep_short
from tests.maintenance.native_stores import add_session, new_store


def write(store: Store, rows: int) -> None:
    with store.transaction() as tx:
        tx.executemany(
            "INSERT INTO changes (id, table_name, key, operation, at) VALUES (NULL, 'sessions', ?, 'update', 1)",
            [("k" * 3000,)] * rows,
        )


def frames(store: Store) -> tuple[int, int]:
    state = store.wal_state()
    assert state is not None
    return state.frames, state.pending_frames


def test_a_wal_that_was_copied_to_its_end_starts_over(tmp_path: Path) -> None:
    with open_write(new_store(tmp_path)) as store:
        write(store, 200)
        long, _pending = frames(store)
        assert copy_back(store) is True
        assert frames(store) == (long, 0)
        write(store, 1)
        assert frames(store)[0] < 10


def test_an_old_reader_keeps_the_end_out_of_reach_and_is_not_waited_for(tmp_path: Path) -> None:
    db = new_store(tmp_path)
    add_session(db, "one")
    with open_write(db) as store, open_read(db) as reader, reader.snapshot():
        reader.rows("SELECT count(*) FROM messages")
        write(store, 50)
        assert copy_back(store) is False
        assert reader.rows("SELECT count(*) FROM changes") == [(0,)]


def test_a_short_wal_is_left_alone(tmp_path: Path) -> None:
    with open_write(new_store(tmp_path)) as store:
        write(store, 20)
        keep_short(store)
        assert frames(store)[1] > 0
        write(store, module.LONG_FRAMES)
        keep_short(store)
        assert frames(store)[1] == 0
