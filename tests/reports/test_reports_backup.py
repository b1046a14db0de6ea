"""Reports 25, 86 to 92, 209, 261: backups that are whole, verified and come back; restores that nothing mixes into."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw
import pytest

from hermes_state.errors import GenerationLost
from maintenance.backups import backup, drill
from tests.maintenance.backups.making import damage_table, leave_wal, put_back, query, tidy
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.space import grow
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


# --- 25: after an update the store is all NUL bytes ---------------------------------------------------------------


def test_a_store_of_nul_bytes_gets_its_last_verified_backup_back(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = tidy(store_copy())
    made = backup(db)
    db.write_bytes(bytes(db.stat().st_size))
    Path(f"{db}-wal").touch()
    refused = run_cli("sessions", "backup", "--db", db, "--keep", "1")
    assert refused.exit_code == 65 and made.path.exists()
    done = put_back(made.path, db)
    assert query(db, "SELECT count(*) FROM messages") == [(72,)]
    # What there was is quarantined as it was.
    assert done.replaced is not None and done.replaced.aside is not None
    assert not any((done.replaced.aside / "state.db").read_bytes())


# --- 87: a store above a size cap is not backed up, with a warning at most ----------------------------------------


@pytest.mark.campaign
def test_a_store_above_a_gigabyte_is_backed_up_in_little_memory(store_copy: StoreCopy, child: Children) -> None:
    db = store_copy()
    connection = apsw.Connection(str(db))
    # 1.1 GB, nearly all of it one hole: free pages that cost no room on the disk.
    connection.execute("CREATE TABLE hole(body); INSERT INTO hole VALUES (zeroblob(900000000))").fetchall()
    connection.execute("INSERT INTO hole VALUES (zeroblob(250000000)); DELETE FROM hole").fetchall()
    connection.close()
    assert tidy(db).stat().st_size > 1 << 30
    worker = child(
        """
        import sys
        from maintenance.backups import backup
        done = backup(sys.argv[1])
        # Not getrusage: its peak begins with the memory of the process that started this one.
        peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
        print(done.manifest.bytes, done.manifest.content.messages, peak)
        """,
        db,
    )
    size, messages, kilobytes = map(int, worker.finish(300).split())
    assert size > 1 << 30 and messages == 72 and kilobytes < 200 * 1024
    shutil.rmtree(db.parent)


# --- 88: staged in a small /tmp, "complete", and the store is not in it -------------------------------------------


def test_a_backup_is_written_beside_its_target_and_never_in_tmpdir(
    store_copy: StoreCopy, run_cli: RunCli, tmp_path: Path
) -> None:
    db, small = store_copy(), tmp_path / "small"
    small.mkdir(mode=0o500)  # nothing can be written there
    env = {"TMPDIR": str(small), "SQLITE_TMPDIR": str(small), "HERMES_BACKUP_PASSPHRASE": "opens it"}
    for more in ((), ("--encrypt",)):
        done = run_cli("sessions", "backup", "--db", db, "--json", *more, env=env)
        assert done.exit_code == 0, done.stderr
        proven = run_cli("sessions", "restore", "--drill", done.json["backup"], "--json", env=env)
        assert proven.exit_code == 0 and proven.json["messages"] == 72
    assert list(small.iterdir()) == []


# --- 89: a damaged store is copied without a word, and the only restore point is bad ------------------------------


def test_a_damaged_store_never_replaces_the_last_good_backup(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    grow(db, sessions=10)
    made = backup(db)
    damage_table(db)
    done = run_cli("sessions", "backup", "--db", db, "--keep", "1")
    assert done.exit_code == 65
    assert f"No backup was made of {db}, which is damaged. Backups that exist were not touched." in done.stderr
    assert drill(made.path).messages == made.manifest.content.messages


# --- 90: only the main file is replaced, and the stale WAL is replayed over it ------------------------------------


def test_the_wal_of_a_killed_process_is_never_replayed_over_a_restored_store(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    leave_wal(db, "PRAGMA journal_mode = wal")
    made = backup(tidy(db))
    writer = child(
        """
        import sys, apsw, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("UPDATE messages SET content = 'from the stale WAL'").fetchall()
        gates.reach("written")
        gates.wait("never")
        """,
        db,
    )
    writer.wait_for("written")
    writer.kill()
    refused = run_cli("sessions", "restore", made.path, "--db", db, "--yes")
    assert refused.exit_code == 1 and "pages of commits that are not in the database file" in refused.stderr
    assert f"hermes-state sessions backup --db {db}" in refused.stderr
    put_back(made.path, db, over_wal=True)
    assert query(db, "SELECT count(*) FROM messages WHERE content = 'from the stale WAL'") == [(0,)]
    assert query(db, "SELECT count(*) FROM messages") == [(72,)]
    (aside,) = db.parent.glob("state.db.replaced-*")
    assert query(aside / "state.db", "SELECT count(*) FROM messages WHERE content = 'from the stale WAL'") == [(72,)]


# --- 91: running processes go on with the old file after a restore ------------------------------------------------


def test_a_restore_refuses_beside_a_process_and_keeps_the_inode_without_one(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = tidy(store_copy())
    made, inode = backup(db), db.stat().st_ino
    holder = child(
        """
        import sys, apsw, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("SELECT count(*) FROM messages").fetchall()
        gates.reach("open")
        gates.wait("end")
        """,
        db,
    )
    holder.wait_for("open")
    refused = run_cli("sessions", "restore", made.path, "--db", db, "--yes")
    assert refused.exit_code == 1 and f"PID {holder.pid}" in refused.stderr
    holder.release("end")
    holder.finish()
    put_back(made.path, db)
    assert db.stat().st_ino == inode


# --- 92: the store is swapped under a live process ----------------------------------------------------------------


@pytest.mark.parametrize("how", ["onto the inode", "onto the path"])
def test_a_swap_by_hand_stops_the_next_write_of_a_live_process(tmp_path: Path, how: str) -> None:
    from hermes_state import open_store
    from tests.maintenance.native_stores import add_session, new_store

    db = new_store(tmp_path / "one")
    other = tidy(new_store(tmp_path / "other"))
    add_session(db, "mine")
    with open_store(path=db) as store:
        store.sessions.create(source="cli")
        swapped = tmp_path / "copy.db"
        shutil.copy(other, swapped)
        if how == "onto the path":
            os.replace(swapped, db)
        else:
            os.system(f"cat '{swapped}' > '{db}'")  # another process: this one has the file open
        with pytest.raises(GenerationLost):
            store.sessions.create(source="cli")


# --- 209: encryption at rest --------------------------------------------------------------------------------------


def test_an_encrypted_backup_has_no_message_text_and_gives_equal_rows_back(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    db = tidy(store_copy())
    rows = query(db, "SELECT * FROM messages ORDER BY id")
    words = [content for (content,) in query(db, "SELECT content FROM messages") if content and len(content) > 8]
    texts = [word.encode() for word in words]
    env = {"HERMES_BACKUP_PASSPHRASE": "opens it"}
    done = run_cli("sessions", "backup", "--db", db, "--encrypt", "--json", env=env)
    assert done.exit_code == 0, done.stderr
    for path in (db.parent / "backups").iterdir():
        raw = path.read_bytes()
        assert not [text for text in texts if text in raw]
    query(db, "DELETE FROM messages")
    put_back(Path(done.json["backup"]), tidy(db), passphrase="opens it")
    assert query(db, "SELECT * FROM messages ORDER BY id") == rows


# --- 261: a restored copy fails the check, months later -----------------------------------------------------------


def test_a_nightly_drill_exits_0_for_a_good_backup_and_65_for_one_that_rotted(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    made = backup(tidy(store_copy()))
    good = run_cli("sessions", "restore", "--drill", made.path, "--json")
    assert good.exit_code == 0 and (good.json["messages"], good.json["findings"]) == (72, [])
    raw = bytearray(made.path.read_bytes())
    raw[-2000] ^= 1
    made.path.write_bytes(raw)
    rotted = run_cli("sessions", "restore", "--drill", made.path)
    assert rotted.exit_code == 65 and "its content was altered" in rotted.stderr
    made.path.with_name(f"{made.path.name}.manifest.json").unlink()  # without hashes only damaged pages can be seen
    assert {path.name for path in made.path.parent.iterdir()} == {made.path.name}
