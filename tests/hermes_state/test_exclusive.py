"""What is done to a whole file under SQLite's exclusive lock."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from hermes_state import errors
from hermes_state.engine import open_exclusive, open_write
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"


@pytest.fixture
def half_empty(tmp_path: Path) -> Path:
    store = make_store(tmp_path / "state.db")
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            transaction.executemany(ADD, ((f"{n} " + "x" * 2000,) for n in range(500)))
        with writer.transaction() as transaction:
            transaction.execute("DELETE FROM note WHERE id <= 250")
    return store


def test_vacuum_in_place_returns_pages_and_keeps_the_inode(half_empty: Path) -> None:
    before, kept, steps = half_empty.stat(), bodies(half_empty), []
    with open_exclusive(half_empty) as alone:
        assert alone.freelist_count > 100
        alone.vacuum(on_progress=steps.append)
        assert alone.freelist_count == 0
    assert half_empty.stat().st_ino == before.st_ino
    assert half_empty.stat().st_size < 0.6 * before.st_size
    assert os.stat(f"{half_empty}-wal").st_size == 0
    assert bodies(half_empty) == kept
    assert steps == sorted(steps)


def test_promoting_a_copy_replaces_the_content_in_place(half_empty: Path, tmp_path: Path) -> None:
    kept, inode, copy = bodies(half_empty), half_empty.stat().st_ino, tmp_path / "compact.db"
    with open_exclusive(half_empty) as alone:
        alone.vacuum_into(copy)
        alone.promote(copy)
        assert alone.freelist_count == 0
        assert alone.row("PRAGMA journal_mode") == ("wal",)
    assert half_empty.stat().st_ino == inode
    assert bodies(half_empty) == kept


def test_copy_of_another_page_size_is_refused_and_changes_nothing(half_empty: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other.db"
    connection = apsw.Connection(str(copy))
    connection.execute("PRAGMA page_size = 8192").fetchall()
    connection.execute("CREATE TABLE t(x)").fetchall()
    connection.close()
    kept = bodies(half_empty)
    with open_exclusive(half_empty) as alone, pytest.raises(errors.StateError):
        alone.promote(copy)
    assert bodies(half_empty) == kept


def test_tuning_is_read_back(half_empty: Path) -> None:
    with open_exclusive(half_empty) as alone:
        alone.tune(cache_size=-50_000, temp_store=2)
        assert alone.row("PRAGMA cache_size") == (-50_000,)
        with pytest.raises(errors.PragmaRefused) as refused:
            alone.tune(temp_store=17)
    assert str(refused.value) == f"SQLite kept temp_store = 1 of {half_empty} although 17 was asked for."


def test_a_store_that_keeps_its_wal_copies_every_frame_and_never_empties_it(half_empty: Path) -> None:
    with open_exclusive(half_empty) as alone:
        alone.keep_wal = True
        alone.vacuum()
        done = alone.checkpoint("truncate")
        assert (done.busy, done.wal_frames) == (False, done.moved_frames)
        assert done.moved_frames > 100
        with alone.transaction() as transaction:
            transaction.execute(ADD, ("last",))
    assert os.stat(f"{half_empty}-wal").st_size > 0
    assert bodies(half_empty)[-1] == "last"


def test_a_store_that_wrote_empties_its_wal_at_close_unless_told_to_keep_it(half_empty: Path) -> None:
    with open_exclusive(half_empty) as alone, alone.transaction() as transaction:
        transaction.execute(ADD, ("last",))
    assert os.stat(f"{half_empty}-wal").st_size == 0


def test_vacuum_beside_a_reader_in_normal_mode_works_and_beside_a_writer_times_out(
    half_empty: Path, child, fake_clock
) -> None:
    holder = child(
        """
        import apsw, sys, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("SELECT count(*) FROM note").fetchall()
        gates.reach("idle")
        gates.wait("write")
        connection.execute("BEGIN IMMEDIATE").fetchall()
        gates.reach("writing")
        gates.wait("end")
        """,
        half_empty,
    )
    holder.wait_for("idle")
    with open_write(half_empty, deadline_seconds=0.5, clock=fake_clock) as writer:
        writer.vacuum()
        assert writer.freelist_count == 0
        holder.release("write")
        holder.wait_for("writing")
        with pytest.raises(errors.LockTimeout):
            writer.vacuum()
    holder.kill()


def test_incremental_vacuum_returns_at_most_what_was_asked(tmp_path: Path) -> None:
    store = tmp_path / "state.db"
    connection = apsw.Connection(str(store))
    for setting in ("auto_vacuum = incremental", "journal_mode = wal", "application_id = 0x48535431"):
        connection.execute(f"PRAGMA {setting}").fetchall()
    connection.execute("CREATE TABLE note(id INTEGER PRIMARY KEY, body TEXT NOT NULL)").fetchall()
    connection.close()
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            transaction.executemany(ADD, (("x" * 3000,) for _ in range(100)))
        with writer.transaction() as transaction:
            transaction.execute("DELETE FROM note")
        free = writer.freelist_count
        assert writer.incremental_vacuum(10) == 10
        assert writer.freelist_count == free - 10
        assert writer.incremental_vacuum(10_000) == free - 10
