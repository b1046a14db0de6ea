"""Opening a store through the one door."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import apsw
import pytest

from hermes_state import errors
from hermes_state.clock import FakeClock
from hermes_state.engine import is_open, open_exclusive, open_read, open_stores, open_write
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db", rows=3)


def test_read_only_open_reads_and_refuses_to_write(store: Path) -> None:
    with open_read(store) as reader:
        assert reader.rows("SELECT id, body FROM note WHERE id < 3") == [(1, "row 0"), (2, "row 1")]
        assert reader.journal_mode == "wal"
        with pytest.raises(errors.ReadOnlyStore) as refused:
            reader.rows("DELETE FROM note")
    assert str(refused.value) == (
        f"{store} can only be read here: reading was refused. "
        "SQLite said: attempt to write a readonly database (code 8, extended 8)."
    )


def test_first_reader_of_a_quiet_store_says_that_the_wal_index_was_rebuilt(store: Path) -> None:
    with open_read(store) as first:
        assert first.index_rebuilt
        assert first.recovered_frames == 0
        with open_read(store) as second:
            assert not second.index_rebuilt


def test_reader_after_a_crash_says_how_many_frames_were_found(store: Path, child) -> None:
    writer = child(
        """
        import sys, gates
        from hermes_state.engine import open_write
        store = open_write(sys.argv[1])
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO note(body) VALUES('late')")
        gates.reach("committed")
        gates.wait("never")
        """,
        store,
    )
    writer.wait_for("committed")
    writer.kill()
    with open_read(store) as reader:
        assert reader.index_rebuilt
        assert reader.recovered_frames >= 1
        assert reader.row("SELECT body FROM note WHERE id = 4") == ("late",)


def test_reader_beside_a_writer_rebuilds_nothing(store: Path, child) -> None:
    writer = child(
        """
        import sys, gates
        from hermes_state.engine import open_write
        store = open_write(sys.argv[1])
        gates.reach("open")
        gates.wait("end")
        """,
        store,
    )
    writer.wait_for("open")
    with open_read(store) as reader:
        assert not reader.index_rebuilt
    writer.release("end")
    writer.finish()


def test_missing_file_is_not_found_and_not_created(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "state.db"
    with pytest.raises(errors.NotFound, match=r"^There is no store at ") as refused:
        open_read(missing)
    assert str(refused.value) == f"There is no store at {missing}."
    assert not missing.parent.exists()


def test_empty_file_is_not_taken_for_a_new_store(tmp_path: Path) -> None:
    empty = tmp_path / "state.db"
    empty.touch()
    with pytest.raises(errors.NotAStore) as refused:
        open_write(empty)
    assert str(refused.value) == f"{empty} is empty (0 bytes)."
    assert empty.stat().st_size == 0
    assert sorted(os.listdir(tmp_path)) == ["state.db"]


@pytest.mark.parametrize(("size", "named"), [(0, "0 bytes"), (1, "1 byte")])
@pytest.mark.parametrize("opens", [open_read, open_write, open_exclusive])
def test_empty_file_is_not_opened_so_that_sqlite_does_not_delete_the_wal_beside_it(
    tmp_path: Path, opens, size: int, named: str
) -> None:
    store = make_store(tmp_path / "state.db")
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            transaction.execute("INSERT INTO note(body) VALUES('only in the WAL')")
        writer._wrote = False  # the close copies nothing back
    os.truncate(store, size)
    wal = Path(f"{store}-wal").read_bytes()
    with pytest.raises(errors.NotAStore) as refused:
        opens(store)
    assert str(refused.value) == (
        f"{store} is empty ({named}), but the WAL beside it is not ({len(wal)} bytes): SQLite would delete that "
        "when it opens the file."
    )
    assert refused.value.hint == (
        f"Run `hermes-state doctor --db {store}`; do not start Hermes on it before its content is found."
    )
    assert Path(f"{store}-wal").read_bytes() == wal



def test_file_of_another_kind_is_not_a_store(tmp_path: Path) -> None:
    text = tmp_path / "state.db"
    text.write_text("not a database, but long enough to have a header of one hundred bytes. " * 20)
    with pytest.raises(errors.NotAStore) as refused:
        open_read(text)
    assert str(refused.value) == (
        f"{text} is not an SQLite database. SQLite said: file is not a database (code 26, extended 26)."
    )


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput) as refused:
        open_read(tmp_path)
    assert str(refused.value) == f"{tmp_path} is not a regular file."


def test_store_of_another_program_opens_for_writing_only_when_asked(store_copy) -> None:
    path = store_copy("0.19.0")
    with pytest.raises(errors.ForeignStore) as refused:
        open_write(path)
    assert str(refused.value) == (
        f"{path} was written by hermes-agent or another program, not by this library."
    )
    with open_write(path, foreign=True) as opened:
        assert opened.row("SELECT count(*) FROM sessions") == (12,)


def test_symbolic_link_is_resolved_once(store: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(store)
    with open_read(link) as reader:
        assert reader.path == store
        assert is_open(link)


def test_name_that_looks_like_a_uri_is_a_plain_name(tmp_path: Path) -> None:
    odd = make_store(tmp_path / "file:state.db?mode=memory", rows=1)
    with open_read(odd) as reader:
        assert reader.row("SELECT body FROM note") == ("row 0",)


def test_open_stores_names_all_three_files_until_the_last_close(store: Path) -> None:
    before = open_stores()  # what other tests parked on purpose stays open for the life of the process
    reader = open_read(store)
    expected = {(os.stat(f"{store}{s}").st_dev, os.stat(f"{store}{s}").st_ino) for s in ("", "-wal", "-shm")}
    assert open_stores() - before == expected
    reader.close()
    assert open_stores() == before


def test_closing_never_removes_or_checkpoints_the_wal(store: Path) -> None:
    with open_write(store) as writer, writer.transaction() as transaction:
        transaction.execute(ADD, ("kept",))
    wal = os.stat(f"{store}-wal")
    with open_read(store) as reader:
        assert reader.row("SELECT count(*) FROM note") == (4,)
    assert os.stat(f"{store}-wal").st_ino == wal.st_ino
    assert os.stat(f"{store}-wal").st_size == wal.st_size


def test_closed_connection_cannot_be_used(store: Path) -> None:
    reader = open_read(store)
    reader.close()
    reader.close()
    with pytest.raises(errors.StateError) as refused:
        reader.rows("SELECT 1")
    assert str(refused.value) == f"The connection to {store} is closed."


def test_connection_is_refused_in_a_forked_child_and_so_is_a_new_open(store: Path, child) -> None:
    parent = child(
        """
        import os, sys
        from hermes_state.engine import open_read, open_write
        from hermes_state.errors import ForkedConnection
        store = open_write(sys.argv[1])
        pid = os.fork()
        if pid == 0:
            for use in (lambda: store.rows("SELECT 1"), lambda: open_read(sys.argv[1])):
                try:
                    use()
                except ForkedConnection as refused:
                    print(type(refused).__name__, refused.opened_by_pid == os.getppid())
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(pid, 0)
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO note(body) VALUES('parent goes on')")
        """,
        store,
    )
    assert parent.finish().splitlines() == ["ForkedConnection True", "ForkedConnection True"]
    assert bodies(store)[-1] == "parent goes on"


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_exclusive_store_keeps_everybody_out_until_it_is_closed(tmp_path: Path, child, journal_mode: str) -> None:
    store = make_store(tmp_path / "state.db", journal_mode=journal_mode, rows=3)
    script = """
        import apsw, sys
        for flags in (apsw.SQLITE_OPEN_READONLY, apsw.SQLITE_OPEN_READWRITE):
            try:
                print(apsw.Connection(sys.argv[1], flags=flags).execute("SELECT count(*) FROM note").fetchall())
            except apsw.BusyError:
                print("busy")
        """
    with open_exclusive(store) as alone:
        assert child(script, store).finish().split() == ["busy", "busy"]
        with alone.transaction() as transaction:
            transaction.execute(ADD, ("x" * 5000,))
        alone.vacuum()
        assert child(script, store).finish().split() == ["busy", "busy"]
    assert child(script, store).finish().split() == ["[(4,)]", "[(4,)]"]


def test_exclusive_lock_that_does_not_come_is_a_timeout(store: Path, child, fake_clock: FakeClock) -> None:
    holder = child(
        """
        import apsw, sys, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("SELECT count(*) FROM note").fetchall()
        gates.reach("idle")
        gates.wait("end")
        """,
        store,
    )
    holder.wait_for("idle")
    with pytest.raises(errors.LockTimeout) as refused:
        open_exclusive(store, deadline_seconds=2.0, clock=fake_clock)
    assert refused.value.exit_code == 75
    assert refused.value.sqlite_code == apsw.SQLITE_BUSY
    assert refused.value.waited_seconds == pytest.approx(2.0)
    holder.release("end")
    holder.finish()


def test_backup_of_a_reader_holds_the_content_of_the_wal(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with open_write(store) as writer:
        with writer.transaction() as transaction:
            transaction.execute(ADD, ("in the wal",))
        with open_read(store) as reader:
            reader.backup_to(copy)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert bodies(copy) == ["row 0", "row 1", "row 2", "in the wal"]
    with open_read(store) as reader, pytest.raises(errors.InvalidInput) as refused:
        reader.backup_to(copy)
    assert str(refused.value) == f"{copy} exists already."


def test_reader_without_search_modules_checks_pages_only(store_copy) -> None:
    path = store_copy("0.13.0")
    with open_read(path) as reader:
        assert reader.rows("PRAGMA quick_check") != [("ok",)]
    with open_read(path, search_modules=False) as pages:
        assert pages.rows("PRAGMA quick_check") == [("ok",)]


def test_iterate_gives_every_row_once_across_batches(tmp_path: Path) -> None:
    store = make_store(tmp_path / "state.db", rows=1001)
    with open_read(store) as reader:
        assert [i for (i,) in reader.iterate("SELECT id FROM note ORDER BY id", batch=100)] == list(range(1, 1002))
        assert list(reader.iterate("SELECT id FROM note WHERE id < 0")) == []


def test_snapshot_does_not_see_later_commits(store: Path) -> None:
    with open_read(store) as reader, open_write(store) as writer:
        with reader.snapshot():
            assert reader.row("SELECT count(*) FROM note") == (3,)
            with writer.transaction() as transaction:
                transaction.execute(ADD, ("later",))
            assert reader.row("SELECT count(*) FROM note") == (3,)
        assert reader.row("SELECT count(*) FROM note") == (4,)


def test_damaged_cell_does_not_hide_its_cause(store: Path) -> None:
    with open_read(store) as reader, pytest.raises(errors.StatementFailed) as refused:
        reader.rows("SELECT nothing FROM note")
    assert isinstance(refused.value.__cause__, apsw.SQLError)
    assert (refused.value.sqlite_code, refused.value.sqlite_extended) == (1, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_reader_that_may_not_create_sidecars_is_told_so(child) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        store = make_store(Path(folder) / "state.db")
        os.chmod(store, 0o644)
        reader = child(
            """
            import os, sys
            from hermes_state.engine import open_read
            from hermes_state.errors import CannotOpen
            os.setgid(65534)
            os.setuid(65534)
            try:
                open_read(sys.argv[1])
            except CannotOpen as refused:
                print(refused.code, refused.sqlite_code)
            """,
            store,
        )
        assert reader.finish().split() == ["cannot_open", "8"]
        assert os.listdir(folder) == ["state.db"]
