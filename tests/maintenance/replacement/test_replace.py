"""Replacing the content of stores in every state: what stands there afterwards, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.errors import Corrupt, InvalidInput, Refused, StoreHeld
from maintenance.replacement import unfinished
from maintenance.replacement.marker import marker_path
from tests.maintenance.replacement.replacing import (
    STATES,
    files_of,
    make,
    native,
    overwrite,
    query,
    replace,
    words,
)
from tests.support.children import Children
from tests.support.space import context


def family(db: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in db.parent.glob("state.db*") if path.name[8:] in ("", "-wal")}


@pytest.mark.parametrize("wal", [False, True], ids=["no WAL", "a WAL"])
@pytest.mark.parametrize("state", STATES)
def test_a_store_in_any_state_gets_the_new_content_and_its_files_are_kept(
    tmp_path: Path, state: str, wal: bool
) -> None:
    db = make(tmp_path / "home" / "state.db", "old", wal=wal)
    inode = db.stat().st_ino
    STATES[state](db)
    before = family(db)
    new = make(tmp_path / "new.db", "new", rows=900)
    new_bytes = new.read_bytes()
    done = replace(db, new)
    assert words(db) == {"new"} and query(db, "SELECT count(*) FROM note") == [(900,)]
    assert query(db, "PRAGMA integrity_check") == [("ok",)] and query(db, "PRAGMA journal_mode") == [("wal",)]
    assert state == "missing" or db.stat().st_ino == inode
    assert done.aside is not None and files_of(done.aside) == before
    assert new.read_bytes() == new_bytes and unfinished(db) is None
    left = {path.name for path in db.parent.iterdir()} - {"state.db", "state.db-wal", "state.db-shm"}
    assert left == {done.aside.name}


@pytest.mark.parametrize("state", ["healthy", "zeroed header"])
@pytest.mark.parametrize(("old", "new"), [(1024, 4096), (4096, 1024), (8192, 4096)])
def test_a_file_of_another_page_size_is_put_in_place_beside_a_wal_too(
    tmp_path: Path, state: str, old: int, new: int
) -> None:
    db = make(tmp_path / "state.db", "old", wal=True, page_size=old)
    STATES[state](db)
    replace(db, make(tmp_path / "new.db", "new", page_size=new))
    assert words(db) == {"new"} and query(db, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_the_journal_mode_stays_that_of_the_store_and_can_be_chosen(tmp_path: Path, mode: str) -> None:
    db = make(tmp_path / "state.db", "old", mode=mode)
    new = make(tmp_path / "new.db", "new", mode="wal" if mode == "delete" else "delete")
    assert replace(db, new).journal_mode == mode
    assert query(db, "PRAGMA journal_mode") == [(mode,)]
    other = "delete" if mode == "wal" else "wal"
    assert replace(db, new, journal_mode=other).journal_mode == other
    assert query(db, "PRAGMA journal_mode") == [(other,)]


def test_a_hot_journal_is_kept_as_it_was_with_the_file_that_it_belongs_to(tmp_path: Path, child: Children) -> None:
    db = make(tmp_path / "state.db", "old", mode="delete", rows=5000)
    victim = child(
        """
        import sys, apsw, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("PRAGMA cache_size = 10").fetchall()
        connection.execute("BEGIN; UPDATE note SET body = 'half ' || hex(randomblob(150))").fetchall()
        gates.reach("half")
        gates.wait("never")
        """,
        db,
    )
    victim.wait_for("half")
    victim.kill()
    half, journal = db.read_bytes(), Path(f"{db}-journal").read_bytes()
    assert b"half " in half
    done = replace(db, make(tmp_path / "new.db", "new"))
    assert words(db) == {"new"} and done.aside is not None
    kept = files_of(done.aside)
    # SQLite plays the journal back when it opens the store, so the file is kept in both states.
    assert (kept["state.db"], kept["state.db-journal"]) == (half, journal)
    assert set(kept) == {"state.db", "state.db-journal", "state.db.under-lock"}
    assert words(done.aside / "state.db.under-lock") == {"old"}


def test_a_native_store_gets_another_incarnation_and_no_fence_or_id_falls(tmp_path: Path) -> None:
    db, new = native(tmp_path / "home" / "state.db"), native(tmp_path / "new" / "state.db")
    for path, fence, floor in ((db, 7, 900), (new, 3, 500)):
        query(path, f"INSERT INTO leases (name, fence) VALUES ('agent', {fence}), ('only-{path.parent.name}', 2)")
        query(path, f"UPDATE store SET message_floor = {floor}; PRAGMA wal_checkpoint(truncate)")
        for ending in ("-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
    (before,) = query(new, "SELECT store_id, incarnation FROM store")
    done = replace(db, new)
    (now,) = query(db, "SELECT store_id, incarnation, message_floor FROM store")
    assert now == (before[0], done.incarnation, 900) and done.incarnation != before[1]
    assert query(db, "SELECT name, fence, owner FROM leases ORDER BY name") == [
        ("agent", 7, None), ("only-home", 2, None), ("only-new", 2, None),
    ]
    assert query(new, "SELECT store_id, incarnation FROM store") == [before]


def test_fences_of_a_store_that_cannot_be_read_rise_by_more_than_was_ever_given_out(tmp_path: Path) -> None:
    db, new = native(tmp_path / "home" / "state.db"), native(tmp_path / "new" / "state.db")
    query(new, "INSERT INTO leases (name, fence) VALUES ('agent', 3)")
    query(new, "PRAGMA wal_checkpoint(truncate)")
    for ending in ("-wal", "-shm"):
        Path(f"{new}{ending}").unlink(missing_ok=True)
    overwrite(db, bytes(100))
    done = replace(db, new)
    assert query(db, "SELECT fence FROM leases") == [(1_000_003,)] and done.fences == 1


def test_a_damaged_new_file_is_refused_before_anything_happens(tmp_path: Path) -> None:
    db, new = make(tmp_path / "home" / "state.db", "old"), make(tmp_path / "new.db", "new")
    with new.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(bytes(4096))
    before = family(db)
    with pytest.raises(Corrupt, match=r"is damaged: (?s:.*) The store was not changed"):
        replace(db, new)
    assert family(db) == before and [path.name for path in db.parent.iterdir()] == ["state.db"]


def test_a_new_file_with_a_wal_is_refused(tmp_path: Path) -> None:
    db, new = make(tmp_path / "state.db", "old"), make(tmp_path / "new.db", "new", wal=True)
    size = Path(f"{new}-wal").stat().st_size
    with pytest.raises(InvalidInput) as refused:
        replace(db, new)
    assert str(refused.value) == f"{new} has a WAL beside it ({size} bytes), so the file alone may not be all of it."


def test_what_the_caller_raises_while_pages_are_copied_leaves_no_trace(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(what: str, _done: int, _total: int | None) -> None:
        if what == "putting the new content in place":
            raise Stopped

    db = make(tmp_path / "home" / "state.db", "old")
    with pytest.raises(Stopped):
        replace(db, make(tmp_path / "new.db", "new", rows=60_000), progress=stop)
    assert words(db) == {"old"} and query(db, "PRAGMA integrity_check") == [("ok",)]
    assert {path.name for path in db.parent.iterdir()} <= {"state.db", "state.db-shm", "state.db-wal"}


def test_a_holder_refuses_it(tmp_path: Path, child: Children) -> None:
    from maintenance.replacement import replace_content

    db, new = make(tmp_path / "state.db", "old"), make(tmp_path / "new.db", "new")
    holder = child(
        """
        import sys, apsw, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("SELECT count(*) FROM note").fetchall()
        gates.reach("open")
        gates.wait("never")
        """,
        db,
    )
    holder.wait_for("open")
    with pytest.raises(StoreHeld) as refused:
        replace_content(context(db), "sessions repair", new)
    assert str(refused.value).startswith(
        f"`sessions repair` needs {db} for itself, and 1 other process has it open. Nothing was changed."
    )
    holder.kill()
    assert words(db) == {"old"}


def test_a_store_with_two_names_is_refused(tmp_path: Path) -> None:
    db = make(tmp_path / "state.db", "old")
    (tmp_path / "other.db").hardlink_to(db)
    with pytest.raises(Refused, match="has 2 names"):
        replace(db, make(tmp_path / "new.db", "new"))


def test_an_unreadable_note_is_said_and_does_not_stop_the_next_run(tmp_path: Path) -> None:
    db = make(tmp_path / "state.db", "old")
    marker_path(db).write_text("{", encoding="utf-8")
    found = unfinished(db)
    assert found is not None and found.note is None
    assert found.next == (
        f"The note {marker_path(db)} cannot be read. Check the store with `hermes-state doctor --db {db}`; when it is "
        "sound, move the note away."
    )
    replace(db, make(tmp_path / "new.db", "new"))
    assert unfinished(db) is None


def test_the_manifest_of_the_kept_files_has_their_hashes(tmp_path: Path) -> None:
    import hashlib

    db = make(tmp_path / "state.db", "old", wal=True)
    before = family(db)
    done = replace(db, make(tmp_path / "new.db", "new"))
    assert done.aside is not None
    manifest = json.loads((done.aside / "manifest.json").read_text())
    assert (manifest["store"], manifest["verb"]) == (str(db), "sessions repair")
    assert {name: found["sha256"] for name, found in manifest["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in before.items()
    }
    assert done.aside.stat().st_mode & 0o777 == 0o700
