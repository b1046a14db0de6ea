"""What may be recovered from, what is refused, and that a source is never written."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from hermes_state.errors import InsufficientSpace, InvalidInput, LockTimeout, NotAStore, NotFound, Refused
from hermes_state.testing.page_damage import zero_header
from hermes_state.testing.reference import reference_database
from hermes_state.testing.wal_damage import cut_wal
from maintenance.recovery import inspect, recover, run
from maintenance.recovery.sources import find_source
from tests.maintenance.recovery.recovering import everything, foreign_store, little_space
from tests.support.children import Children

__all__ = ["little_space"]


def facts(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        path.name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.iterdir() if path.is_file()
    }


def test_a_missing_source_is_said_as_such(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        recover(tmp_path / "gone.db")
    assert str(caught.value) == f"There is no file or folder {tmp_path / 'gone.db'}."
    assert caught.value.hint == "Name it with --source."


def test_a_zeroed_file_without_wal_holds_no_rows(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    db.write_bytes(bytes(200_000))
    Path(f"{db}-wal").touch()
    with pytest.raises(NotAStore) as caught:
        recover(db)
    assert str(caught.value) == (
        f"{db} holds nothing but zeros, and no WAL with content is beside it: there are no rows in it."
    )
    assert caught.value.exit_code == 65
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.db", "state.db-wal"]


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
def test_a_file_without_any_row_of_a_store_is_refused(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    db.write_text("nothing of SQLite in here\n" * 1000)
    with pytest.raises(NotAStore) as caught:
        recover(db)
    assert str(caught.value) == f"{db} has no tables and no rows that fit the tables of any known release."
    assert list(tmp_path.glob("*.recovering")) == []


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
def test_the_source_keeps_every_byte_and_its_times(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    db = folder / "state.db"
    reference_database(db, rows=300, wal_rows=100)
    cut_wal(db)
    zero_header(db)
    before = facts(folder)
    inspect(db)
    recover(db, tmp_path / "out.db", allow_partial=True)
    assert facts(folder) == before


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
def test_the_report_has_size_inode_and_hash_of_each_file(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    reference_database(db, rows=200, wal_rows=60)
    report = recover(db, tmp_path / "out.db", allow_partial=True)
    wal = Path(f"{db}-wal")
    assert [(file.path, file.part, file.size_bytes, file.inode, file.sha256) for file in report.files] == [
        (path, part, path.stat().st_size, path.stat().st_ino, hashlib.sha256(path.read_bytes()).hexdigest())
        for path, part in ((db, "main"), (wal, "wal"))
    ]
    written = json.loads(report.report_path.read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(report.document()))


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
def test_of_a_folder_one_file_is_taken_and_all_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine"
    folder.mkdir()
    whole = foreign_store(folder, "0.19.0")
    rows = everything(whole)
    (folder / "state.db.malformed-1").write_bytes(bytes(70_000))
    (folder / "empty.db").touch()
    (folder / "notes.txt").write_text("looked at it on Monday")
    report = recover(folder)
    assert report.output == tmp_path / "quarantine.recovered.db"
    assert report.source.kind == "directory" and report.source.main == whole
    assert {(one.path.name, one.looks, one.chosen) for one in report.source.candidates} == {
        ("state.db", "sqlite", True), ("state.db.malformed-1", "zeroed", False), ("empty.db", "empty", False),
        ("notes.txt", "other", False),
    }
    assert everything(report.output) == rows


def test_a_folder_without_any_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(NotAStore) as caught:
        find_source(tmp_path)
    assert str(caught.value) == (
        f"No file in {tmp_path} is a database or a WAL with content (1 files were looked at)."
    )


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
def test_of_a_capture_the_copy_in_it_is_taken(tmp_path: Path) -> None:
    capture = tmp_path / "state.db.retired-wal-20261129T120000Z-7"
    capture.mkdir()
    foreign_store(capture, "0.19.0").rename(capture / "copy.db")
    (capture / "state.db-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(28))
    (capture / "manifest.json").write_text(json.dumps({"version": 1, "store": "/home/somebody/state.db"}))
    report = recover(capture)
    assert (report.source.kind, report.source.main) == ("capture", capture / "copy.db")
    assert report.table("messages").rows == 72 and not report.lost


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
def test_a_wal_alone_gives_the_rows_of_its_frames(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    rows = reference_database(db, rows=200, wal_rows=200)
    alone = tmp_path / "alone" / "state.db-wal"
    alone.parent.mkdir()
    shutil.copy(f"{db}-wal", alone)
    report = recover(alone, allow_partial=True)
    assert (report.source.kind, report.source.main) == ("bare file", None)
    written = {row[0]: row for row in rows}
    found = [row for (table, _key), row in everything(report.output).items() if table == "messages"]
    assert len(found) >= 200  # those that the WAL added, and others of the pages that it changed
    assert [row for row in found if row != written[row[0]]] == []


def test_an_output_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0")
    (tmp_path / "out.db").write_text("mine")
    with pytest.raises(Refused) as caught:
        recover(db, tmp_path / "out.db")
    assert str(caught.value) == f"{tmp_path / 'out.db'} exists already."
    with pytest.raises(InvalidInput) as same:
        recover(db, db)
    assert str(same.value) == "--output names the source itself."


def test_a_disk_without_room_is_said_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = foreign_store(tmp_path, "0.19.0")
    monkeypatch.setattr(run, "MARGIN_BYTES", 1 << 62)
    with pytest.raises(InsufficientSpace) as caught:
        recover(db, tmp_path / "out.db")
    assert str(caught.value).startswith(f"Recovering {db} needs 4194304.0 TiB on the file system of {tmp_path}, and ")
    assert [path.name for path in tmp_path.iterdir()] == ["state.db"]


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
def test_a_store_that_is_written_to_meanwhile_is_busy_and_its_holder_is_named(
    tmp_path: Path, child: Children
) -> None:
    db = tmp_path / "state.db"
    reference_database(db, rows=2000)
    writer = child(
        """
        import sys, apsw, gates, os
        db = apsw.Connection(sys.argv[1])
        db.execute("PRAGMA synchronous = off").fetchall()
        gates.reach("writing")
        while not os.path.exists(sys.argv[2]):
            db.execute("UPDATE messages SET created_at = created_at + 1 WHERE id = 1").fetchall()
        """,
        db, tmp_path / "stop",
    )
    writer.wait_for("writing")
    try:
        with pytest.raises(LockTimeout) as caught:
            recover(db, tmp_path / "out.db")
    finally:
        (tmp_path / "stop").touch()
    writer.finish()
    first = f"{db} was written to while it was copied, so there is no copy of one moment. It is open in: "
    assert str(caught.value).startswith(f"{first}PID {writer.pid} (")
    assert caught.value.exit_code == 75 and list(tmp_path.glob("out.db*")) == []


@pytest.mark.slow
@pytest.mark.usefixtures("little_space")
def test_a_hot_rollback_journal_is_rolled_back_in_the_copy_only(tmp_path: Path, child: Children) -> None:
    db = foreign_store(tmp_path, "0.19.0")
    writer = child(
        """
        import sys, apsw, gates
        db = apsw.Connection(sys.argv[1])
        db.execute("PRAGMA journal_mode = delete").fetchall()
        db.execute("PRAGMA cache_size = 1").fetchall()
        db.execute("PRAGMA cache_spill = 1").fetchall()
        db.execute("BEGIN IMMEDIATE").fetchall()
        db.execute("DROP TRIGGER messages_fts_update").fetchall()
        db.execute("DROP TRIGGER messages_fts_trigram_update").fetchall()
        for number in range(40):
            db.execute("UPDATE messages SET content = hex(zeroblob(3000))").fetchall()
        gates.reach("half written")
        gates.wait("never")
        """,
        db,
    )
    writer.wait_for("half written")
    writer.kill()
    journal = Path(f"{db}-journal")
    assert journal.stat().st_size > 0
    kept = hashlib.sha256(db.read_bytes()).hexdigest(), hashlib.sha256(journal.read_bytes()).hexdigest()
    report = recover(db, tmp_path / "out.db")
    assert report.table("messages").certain == report.table("messages").confirmed == 72
    assert (hashlib.sha256(db.read_bytes()).hexdigest(), hashlib.sha256(journal.read_bytes()).hexdigest()) == kept


def test_packed_fixtures_are_not_taken_for_databases(tmp_path: Path) -> None:
    packed = tmp_path / "state.db.gz"
    packed.write_bytes(gzip.compress(b"SQLite format 3\0" + bytes(5000)))
    with pytest.raises(NotAStore):
        find_source(tmp_path)
