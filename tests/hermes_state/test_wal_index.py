"""The WAL index is read through SQLite's own descriptors and takes no lock."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from hermes_state.engine import open_read, open_write
from hermes_state.engine.own_lock import WAL_WRITE_BYTE, own_lock
from hermes_state.engine.wal_index import has_frame_of, header_is_settled, last_frame_of, read_guard_numbers
from tests.support.native import make_store

ADD = "INSERT INTO note(body) VALUES(?)"


def test_frames_are_pending_until_a_checkpoint_copies_them(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db")
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("x" * 20_000,))
        before = writer.wal_state()
        assert before is not None
        assert before.frames == before.pending_frames > 0
        assert before.wal_bytes == 32 + before.frames * (24 + before.page_size)
        assert before.page_size == writer.page_size
        assert before.database_pages == writer.page_count
        done = writer.checkpoint()
        after = writer.wal_state()
        assert after is not None
        assert (done.busy, done.wal_frames, done.moved_frames) == (False, before.frames, before.frames)
        assert (after.pending_frames, after.wal_bytes) == (0, before.wal_bytes)


def test_reader_pins_frames_and_its_mark_shows_where(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db")
    with open_write(store) as writer, open_read(store) as reader:
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("first",))
        with reader.snapshot():
            reader.row("SELECT count(*) FROM note")
            pinned = writer.wal_state()
            assert pinned is not None
            with writer.transaction() as transaction:
                transaction.execute(ADD, ("second" * 5000,))
            done = writer.checkpoint()
            assert done.busy
            assert done.moved_frames == pinned.frames < done.wal_frames
            state = writer.wal_state()
            assert state is not None
            assert pinned.frames in state.read_marks


def test_guard_numbers_agree_with_the_whole_state(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db")
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("x" * 9000,))
        state, shm = writer.wal_state(), writer.descriptors.shm
        assert state is not None
        assert shm is not None
        assert read_guard_numbers(shm) == (
            state.frames, state.database_pages, state.salt, state.backfilled_frames, state.page_size
        )


def test_rollback_journal_has_no_state(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db", journal_mode="delete")
    with open_write(store) as writer:
        assert writer.wal_state() is None
        assert writer.checkpoint().wal_frames == 0


def test_large_page_size_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA page_size = 65536").fetchall()
    connection.execute("PRAGMA journal_mode = wal").fetchall()
    connection.execute("PRAGMA application_id = 0x48535431").fetchall()
    connection.execute("CREATE TABLE note(id INTEGER PRIMARY KEY, body TEXT)").fetchall()
    connection.close()
    with open_write(path) as writer:
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("one",))
        state = writer.wal_state()
        assert state is not None
        assert state.page_size == 65536
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("two",))


def test_header_that_a_writer_is_half_way_through_is_seen_and_a_settled_one_too(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db")
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("one",))
        shm = writer.descriptors.shm
        assert shm is not None
        assert header_is_settled(shm)
        whole = os.pread(shm, 48, 0)
        os.pwrite(shm, bytes([whole[8] ^ 1]), 8)  # the first copy's change counter
        assert not header_is_settled(shm)
        os.pwrite(shm, whole[8:9], 8)
        assert header_is_settled(shm)


def test_reader_waits_for_a_half_written_header_and_takes_no_lock_meanwhile(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db", rows=2)
    with open_write(store) as writer, open_read(store) as reader:
        shm = writer.descriptors.shm
        assert shm is not None
        whole = os.pread(shm, 48, 0)
        naps = []

        def settle(tries: int) -> bool:
            naps.append(own_lock(shm, WAL_WRITE_BYTE))
            os.pwrite(shm, whole[8:9], 8)
            return True

        reader._wait.nap = settle  # type: ignore[method-assign]
        os.pwrite(shm, bytes([whole[8] ^ 1]), 8)
        assert reader.row("SELECT count(*) FROM note") == (2,)
        assert naps == ["none"]


def test_list_of_pages_in_the_index_says_what_the_frames_hold_across_its_blocks(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db")
    with open_write(store) as writer:
        writer._copy_back = lambda frames: None  # type: ignore[method-assign]
        marks = []
        for size in (10_000, 3_900 * 4096, 400 * 4096, 4_000 * 4096, 20_000):
            with writer.transaction() as transaction:
                transaction.execute("INSERT INTO note(body) VALUES(zeroblob(?))", (size,))
            marks.append(writer.wal_state().frames)  # type: ignore[union-attr]
        wal, shm = writer.descriptors.wal, writer.descriptors.shm
        assert wal is not None and shm is not None
        frames, pages, _salt, _copied, size = read_guard_numbers(shm)
        assert frames > 4062 + 4096
        edges = [0, *marks, 4061, 4062, 4063, 4062 + 4095, 4062 + 4096, 4062 + 4097, frames - 1]
        for page in (1, 2, 3, 4, 5, 3_000, 3_900, 4_100, 4_300, 8_000, pages - 1, pages, pages + 1):
            last = last_frame_of(wal, page, frames, size)
            for above in edges:
                assert has_frame_of(shm, page, above, frames) == (last > above), (page, above, last)
            if last:
                assert has_frame_of(shm, page, last - 1, last) and not has_frame_of(shm, page, last, last)
