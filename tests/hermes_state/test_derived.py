"""A derived file: made, emptied in place and let go, whatever is at its path and whoever has it open."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM
from hermes_state.engine.derived import (
    make_derived,
    open_derived_reader,
    open_derived_writer,
    unicode61,
)
from hermes_state.errors import ForeignStore, GenerationLost, InvalidInput, LockTimeout, NotAStore, NotFound, Refused

MARK = 0x48535831
STATEMENTS = [("CREATE TABLE note (body TEXT NOT NULL) STRICT", ()), ("INSERT INTO note VALUES (?)", ("first",))]


def made(path: Path) -> Path:
    assert make_derived(path, STATEMENTS, application_id=MARK)
    return path


def notes(path: Path) -> list[str]:
    with open_derived_reader(path, auxiliaries={}, clock=SYSTEM) as reader:
        return [body for (body,) in reader.rows("SELECT body FROM note ORDER BY rowid")]


def add(path: Path, body: str) -> None:
    with open_derived_writer(path, application_id=MARK, clock=SYSTEM) as writer, writer.transaction() as tx:
        tx.execute("INSERT INTO note VALUES (?)", (body,))


def test_a_file_is_made_whole_private_and_in_wal_mode(tmp_path: Path) -> None:
    path = made(tmp_path / "derived.db")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with open_derived_reader(path, auxiliaries={}, clock=SYSTEM) as reader:
        assert (reader.journal_mode, reader.application_id, reader.pragma("auto_vacuum")) == ("wal", MARK, 2)
    assert sorted(os.listdir(tmp_path)) == ["derived.db", "derived.db-shm", "derived.db-wal"]


@pytest.mark.parametrize("content", [b"", b"short", bytes(4096), os.urandom(9000), b"SQLite format 3\0" + bytes(5000)])
def test_whatever_is_there_is_emptied_in_place(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "derived.db"
    path.write_bytes(content)
    inode = os.stat(path).st_ino
    made(path)
    assert (notes(path), os.stat(path).st_ino) == (["first"], inode)
    add(path, "second")
    assert notes(path) == ["first", "second"]


def test_emptying_drops_what_was_in_the_file_under_open_readers(tmp_path: Path) -> None:
    path = made(tmp_path / "derived.db")
    add(path, "second")
    with open_derived_reader(path, auxiliaries={}, clock=SYSTEM) as reader:
        assert len(reader.rows("SELECT * FROM note")) == 2
        made(path)
        assert reader.rows("SELECT * FROM note") == [("first",)]
    assert notes(path) == ["first"]


def test_emptying_a_file_that_is_being_written_fails_at_once_and_harms_nobody(tmp_path: Path) -> None:
    path = made(tmp_path / "derived.db")
    with open_derived_writer(path, application_id=MARK, clock=SYSTEM) as writer:
        with writer.transaction() as tx:
            tx.execute("INSERT INTO note VALUES ('second')")
            with pytest.raises(LockTimeout) as caught:
                make_derived(path, STATEMENTS, application_id=MARK)
            assert caught.value.message == f"{path} is in use and cannot be emptied now."
        # The descriptor that SQLite kept for the failed try is known as SQLite's, not taken for another library's.
        assert notes(path) == ["first", "second"]
        with writer.transaction() as tx:
            tx.execute("INSERT INTO note VALUES ('third')")
    assert notes(path) == ["first", "second", "third"]


@pytest.mark.parametrize("size", [None, 0])
def test_emptying_needs_nobody_to_let_go_although_the_wal_is_empty(tmp_path: Path, size: int | None) -> None:
    path = made(tmp_path / "derived.db")
    for name in ("-wal", "-shm"):
        Path(f"{path}{name}").unlink(missing_ok=True)
    with open_derived_reader(path, auxiliaries={}, clock=SYSTEM) as idle:
        assert idle.rows("SELECT * FROM note") == [("first",)]
        assert Path(f"{path}-wal").stat().st_size == 0
        if size is not None:
            os.truncate(path, size)
        made(path)
        add(path, "second")
        assert idle.rows("SELECT body FROM note") == [("first",), ("second",)]


def test_sidecars_of_a_deleted_file_do_not_come_back_in_the_new_one(tmp_path: Path) -> None:
    path = made(tmp_path / "derived.db")
    add(path, "in the WAL")
    path.unlink()
    assert Path(f"{path}-wal").stat().st_size > 0
    made(path)
    assert notes(path) == ["first"]


def test_a_writer_whose_file_was_deleted_writes_nothing_and_captures_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "derived.db")
    with open_derived_writer(path, application_id=MARK, clock=SYSTEM) as writer:
        path.unlink()
        with pytest.raises(GenerationLost) as caught, writer.transaction() as tx:
            tx.execute("INSERT INTO note VALUES ('lost')")
        assert caught.value.message == (
            f"{path} was deleted or replaced while it was open; it holds nothing that cannot be made again."
        )
    made(path)
    assert notes(path) == ["first"]
    assert not list(tmp_path.glob("*retired*"))


def test_a_stale_reader_of_this_process_does_not_block_a_new_open(tmp_path: Path) -> None:
    path = made(tmp_path / "derived.db")
    stale = open_derived_reader(path, auxiliaries={}, clock=SYSTEM)
    path.unlink()
    made(path)
    add(path, "second")
    assert notes(path) == ["first", "second"]
    stale.let_go()


def test_a_file_without_our_mark_is_not_opened_for_writing(tmp_path: Path) -> None:
    path = made(tmp_path / "derived.db")
    with pytest.raises(ForeignStore) as caught:
        open_derived_writer(path, application_id=7, clock=SYSTEM)
    assert caught.value.message == f"{path} was not made by this library."


def test_a_file_that_is_cut_off_is_not_opened_at_all(tmp_path: Path) -> None:
    """SQLite would delete the WAL beside it, under whoever has it open."""
    path = made(tmp_path / "derived.db")
    add(path, "in the WAL")
    os.truncate(path, 0)
    with pytest.raises(NotAStore) as caught:
        open_derived_reader(path, auxiliaries={}, clock=SYSTEM)
    assert caught.value.message == f"{path} was cut off."
    assert Path(f"{path}-wal").stat().st_size > 0


def test_a_folder_a_missing_file_and_a_hard_link_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_derived_reader(tmp_path / "none.db", auxiliaries={}, clock=SYSTEM)
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(InvalidInput):
        open_derived_reader(tmp_path / "folder.db", auxiliaries={}, clock=SYSTEM)
    path = made(tmp_path / "derived.db")
    os.link(path, tmp_path / "other name")
    with pytest.raises(Refused):
        make_derived(path, STATEMENTS, application_id=MARK)


def test_only_one_process_makes_a_file_and_the_others_do_not_wait(tmp_path: Path, child) -> None:
    holder = child(
        """
        import fcntl, gates, os, sys
        descriptor = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        gates.reach("making")
        gates.wait("done")
        """, tmp_path,
    )
    holder.wait_for("making")
    assert not make_derived(tmp_path / "derived.db", STATEMENTS, application_id=MARK)
    holder.release("done")
    holder.finish()
    assert make_derived(tmp_path / "derived.db", STATEMENTS, application_id=MARK)


def test_a_file_that_others_made_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    path = made(tmp_path / "derived.db")
    add(path, "second")
    assert make_derived(path, STATEMENTS, application_id=MARK, unless=lambda: True)
    assert notes(path) == ["first", "second"]


def test_auxiliary_functions_rank_rows_of_a_query(tmp_path: Path) -> None:
    path = tmp_path / "derived.db"
    statements = [("CREATE VIRTUAL TABLE words USING fts5(text)", ()), ("INSERT INTO words VALUES ('a b a')", ())]
    assert make_derived(path, statements, application_id=MARK)
    counted = {"counted": lambda api, factor: factor * len(api.phrase_locations(0)[0])}
    with open_derived_reader(path, auxiliaries=counted, clock=SYSTEM) as reader:
        assert reader.rows("SELECT counted(words, 2.5) FROM words WHERE words MATCH 'a'") == [(5.0,)]


def test_the_tokenizer_can_be_asked_about_a_text() -> None:
    terms = unicode61("remove_diacritics", "2")
    assert terms("It\u2019s ÅRHUS, wrong-book") == ["it", "s", "arhus", "wrong", "book"]
