"""Backups: what is made, what is refused, what stays."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from hermes_state.errors import BackupStopped, Corrupt, InsufficientSpace, InvalidInput, Refused
from maintenance.backups import backup, read_manifest
from maintenance.backups.catalog import backups_of, working_name
from maintenance.space import disk
from tests.maintenance.backups.making import both_files, damage_table, leave_journal, leave_wal, query, tidy
from tests.maintenance.native_stores import add_session, new_store
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.space import grow
from tests.support.stores import StoreCopy


def test_a_backup_is_one_private_file_with_all_rows_and_a_manifest(store_copy: StoreCopy) -> None:
    db = store_copy()
    done = backup(db)
    assert done.path.parent == db.parent / "backups" and done.path.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in done.path.parent.iterdir()) == [
        done.path.name, f"{done.path.name}.manifest.json",
    ]
    for path in done.path.parent.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    content = done.manifest.content
    assert (content.sessions, content.messages, content.dialect) == (12, 72, "hermes-agent")
    assert query(done.path, "SELECT count(*), max(id) FROM messages") == [(72, content.highest_message_id)]
    assert done.manifest.sha256 == hashlib.sha256(done.path.read_bytes()).hexdigest()
    assert done.manifest.compared and read_manifest(done.path) == done.manifest
    assert backups_of(db) == (done.path,)


def test_a_native_store_is_named_by_its_identity(tmp_path: Path) -> None:
    db = new_store(tmp_path)
    add_session(db, "one", messages=5)
    content = backup(db).manifest.content
    assert (content.dialect, content.sessions, content.messages) == ("native", 1, 5)
    assert [(content.store_id, content.incarnation)] == query(db, "SELECT store_id, incarnation FROM store")


def test_what_is_in_the_wal_only_is_in_the_backup(store_copy: StoreCopy) -> None:
    db = store_copy()
    leave_wal(db, "PRAGMA journal_mode = wal", "UPDATE sessions SET title = 'in the WAL ' || id")
    before = Path(f"{db}-wal").stat().st_size
    done = backup(db)
    assert query(done.path, "SELECT count(*) FROM sessions WHERE title LIKE 'in the WAL%'") == [(12,)]
    assert Path(f"{db}-wal").stat().st_size == before  # nothing was checkpointed


@pytest.mark.slow
def test_a_backup_beside_a_busy_writer_is_one_moment_of_it_and_the_writer_never_waits(
    store_copy: StoreCopy, child: Children
) -> None:
    db = store_copy()
    grow(db, sessions=10)
    leave_wal(db, "PRAGMA journal_mode = wal", "CREATE TABLE pair(a, b)", "INSERT INTO pair VALUES (0, 0)")
    writer = child(
        """
        import os, sys, apsw, gates
        connection = apsw.Connection(sys.argv[1])  # no busy timeout: whoever kept it waiting would fail it
        for count in range(10**9):
            connection.execute("BEGIN IMMEDIATE; UPDATE pair SET a = a + 1; UPDATE pair SET b = a; COMMIT").fetchall()
            if count == 20:
                gates.reach("writing")
            if os.path.exists(sys.argv[2]):
                break
        """,
        db, db.parent / "end",
    )
    writer.wait_for("writing")
    made = [backup(db) for _ in range(3)]
    (db.parent / "end").touch()
    writer.finish()
    seen = [query(done.path, "SELECT a, b FROM pair")[0] for done in made]
    assert all(a == b for a, b in seen) and seen == sorted(seen)


def test_a_damaged_store_gives_no_backup_and_costs_none(store_copy: StoreCopy) -> None:
    db = store_copy()
    grow(db, sessions=10)
    good = backup(db, keep=1)
    damage_table(db)
    with pytest.raises(Corrupt) as refused:
        backup(db, keep=1)
    assert refused.value.exit_code == 65
    assert str(refused.value).startswith(
        f"No backup was made of {db}, which is damaged. Backups that exist were not touched. "
    )
    assert sorted(path.name for path in good.path.parent.iterdir()) == [
        good.path.name, f"{good.path.name}.manifest.json",
    ]


def test_keep_removes_the_oldest_of_this_store_only(store_copy: StoreCopy, tmp_path: Path) -> None:
    one, other, folder = store_copy(), store_copy(), tmp_path / "all"
    others = backup(other, folder)
    stray = folder / "state-20200101T000000Z.db"
    stray.write_bytes(b"put here by hand")
    made = [backup(one, folder) for _ in range(3)]
    last = backup(one, folder, keep=2)
    assert last.removed == (made[0].path, made[1].path)
    left = {path.name for path in folder.iterdir() if not path.name.endswith(".json")}
    assert left == {others.path.name, stray.name, made[2].path.name, last.path.name}
    assert backup(one, folder, keep=1).removed == (made[2].path, last.path)
    with pytest.raises(InvalidInput, match="keep is 1 or more"):
        backup(one, folder, keep=0)


def test_a_full_disk_is_refused_before_anything_is_written(
    store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = store_copy()
    monkeypatch.setattr(disk.rooms, "__kwdefaults__", {**(disk.rooms.__kwdefaults__ or {}), "free": lambda _dir: 1000})
    with pytest.raises(InsufficientSpace, match=r"A backup of .* needs"):
        backup(db)
    assert not (db.parent / "backups").exists()


def test_cancelling_leaves_nothing(store_copy: StoreCopy) -> None:
    db = store_copy()
    with pytest.raises(BackupStopped) as stopped:
        backup(db, cancel=lambda: True)
    assert str(stopped.value) == f"The work on {db} was cancelled; nothing was changed."
    assert list((db.parent / "backups").iterdir()) == []


def test_a_rollback_store_is_backed_up_without_comparing_under_its_lock(store_copy: StoreCopy) -> None:
    db = store_copy()
    query(db, "PRAGMA journal_mode = delete")
    done = backup(db)
    assert (done.manifest.journal_mode, done.manifest.compared) == ("delete", False)
    assert query(done.path, "SELECT count(*) FROM messages") == [(72,)]


def test_a_virtual_table_of_a_module_that_is_not_here_is_copied_and_not_asked(store_copy: StoreCopy) -> None:
    db = store_copy()
    query(
        db,
        "PRAGMA writable_schema = on; INSERT INTO sqlite_schema(type, name, tbl_name, rootpage, sql) VALUES"
        " ('table', 'vectors', 'vectors', 0, 'CREATE VIRTUAL TABLE vectors USING nobody_has_this(a)')",
    )
    done = backup(tidy(db))
    assert "vectors" not in done.manifest.content.tables
    assert query(done.path, "SELECT count(*) FROM sqlite_schema WHERE name = 'vectors'") == [(1,)]


def test_half_written_files_of_killed_runs_go_and_those_of_living_ones_stay(store_copy: StoreCopy) -> None:
    db = store_copy()
    folder = db.parent / "backups"
    folder.mkdir()
    dead = folder / ".state-20260101T000000Z.db-999999999.partial"
    mine = working_name(folder / "state-20260101T000000Z.db")
    for path in (dead, mine):
        path.touch()
    assert backup(db).cleared == (dead,)
    assert mine.exists() and not dead.exists()


def test_the_command_says_what_it_made(store_copy: StoreCopy, run_cli: RunCli, tmp_path: Path) -> None:
    db = store_copy()
    plan = run_cli("sessions", "backup", "--db", db, "--to", tmp_path / "there", "--keep", "3", "--dry-run")
    assert plan.exit_code == 0 and not (tmp_path / "there").exists()
    assert "afterwards the newest 3 verified backups of this store stay" in plan.stdout
    done = run_cli("sessions", "backup", "--db", db, "--to", tmp_path / "there", "--json")
    assert done.exit_code == 0 and Path(done.json["backup"]).is_file()
    assert done.json["manifest"]["content"]["messages"] == 72
    assert json.loads(Path(f"{done.json['backup']}.manifest.json").read_text()) == done.json["manifest"]


def test_nothing_is_left_beside_the_store(store_copy: StoreCopy) -> None:
    db = store_copy()
    tidy(db)
    backup(db)
    names = {path.name for path in db.parent.iterdir()}
    assert names <= {"state.db", "state.db-wal", "state.db-shm", "backups"}
    assert os.path.getsize(db) == db.stat().st_size


def test_a_store_with_an_unfinished_change_gives_no_backup_and_says_what_to_do(
    store_copy: StoreCopy, child: Children
) -> None:
    db = tidy(store_copy())
    before = leave_journal(db, child)
    with pytest.raises(Refused) as caught:
        backup(db)
    assert str(caught.value) == (
        f"{db} has a rollback journal beside it: a change was never finished, and no backup is made of half of it. "
        "Nothing was changed."
    )
    assert caught.value.hint == (
        f"Start Hermes once, which undoes it, or run `hermes-state sessions recover --source {db}`."
    )
    assert both_files(db) == before


def test_a_dry_run_leaves_nothing_beside_the_store(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = tidy(store_copy())
    before = db.stat()
    plan = run_cli("sessions", "backup", "--db", db, "--dry-run", "--json")
    assert plan.exit_code == 0 and plan.json["bytes"] == before.st_size
    assert [path.name for path in db.parent.iterdir()] == ["state.db"]
    assert (db.stat().st_mtime_ns, db.stat().st_size) == (before.st_mtime_ns, before.st_size)


def test_a_folder_that_cannot_be_written_to_is_refused(store_copy: StoreCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    db = store_copy()
    # Whoever runs the tests may write everywhere.
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(InvalidInput) as caught:
        backup(db)
    assert str(caught.value) == f"Nothing can be written to the folder {db.parent}."
    assert caught.value.hint == "Name another folder with --to."
