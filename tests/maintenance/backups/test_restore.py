"""Restores: what comes back, what is kept, what is refused, and what the gap is said to be."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import zstandard

from hermes_state import open_store
from hermes_state.errors import BackupDamaged, Corrupt, InvalidInput, NotFound, Refused, StoreHeld
from maintenance.backups import RestorePlan, backup, restore
from maintenance.backups.drilling import drill
from maintenance.replacement import unfinished
from tests.maintenance.backups.making import (
    both_files,
    copied,
    damage_table,
    leave_journal,
    leave_wal,
    put_back,
    query,
    tidy,
)
from tests.maintenance.native_stores import add_session, new_store
from tests.maintenance.replacement.replacing import STATES, files_of
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.space import grow
from tests.support.stores import StoreCopy

MORE = (
    "INSERT INTO sessions(id, source, started_at) VALUES ('later', 'cli', 1900000000)",
    "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('later', 'user', 'after it', 1900000001)",
    "INSERT INTO messages(session_id, role, content, timestamp) VALUES ('later', 'user', 'and more', 1900000009)",
)


def seen(plans: list[RestorePlan]) -> object:
    def agreed(plan: RestorePlan) -> bool:
        plans.append(plan)
        return False

    return agreed


def test_the_gap_is_said_before_anything_changes(store_copy: StoreCopy) -> None:
    db = tidy(store_copy())
    made = backup(db)
    leave_wal(db, *MORE)
    tidy(db)
    before, plans = db.read_bytes(), list[RestorePlan]()
    done = put_back(made.path, db, agreed=seen(plans))
    (plan,) = plans
    highest = made.manifest.content.highest_message_id or 0
    assert done.replaced is None and db.read_bytes() == before
    assert plan.verified and (plan.gap.sessions_missing, plan.gap.examples) == (1, ("later",))
    assert (plan.gap.messages_missing, plan.gap.lowest_missing_id, plan.gap.highest_missing_id) == (
        2, highest + 1, highest + 2,
    )
    assert (plan.gap.first_missing_at, plan.gap.last_missing_at) == (1900000001.0, 1900000009.0)
    assert plan.gap.tables["messages"] == (74, 72) and plan.gap.tables["sessions"] == (13, 12)


def test_the_backup_comes_back_whole_and_the_replaced_files_stay(store_copy: StoreCopy) -> None:
    db = tidy(store_copy())
    made = backup(db)
    leave_wal(db, *MORE)
    before = tidy(db).read_bytes()
    done = put_back(made.path, db)
    assert query(db, "SELECT count(*), max(id) FROM messages") == [(72, made.manifest.content.highest_message_id)]
    assert query(db, "PRAGMA integrity_check") == query(made.path, "PRAGMA integrity_check")
    assert done.replaced is not None and done.replaced.aside is not None
    assert {name: content for name, content in files_of(done.replaced.aside).items() if content} == {"state.db": before}
    assert unfinished(db) is None


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_a_store_in_any_state_is_restored(store_copy: StoreCopy, state: str) -> None:
    db = tidy(store_copy())
    made = backup(db)
    STATES[state](db)
    done = put_back(made.path, db)
    assert query(db, "SELECT count(*) FROM messages") == [(72,)]
    assert done.plan.gap.readable is (state == "healthy")
    assert state != "missing" or done.plan.gap.why == f"There is no store at {db}."


def test_a_wal_with_commits_of_its_own_refuses_it_until_it_is_allowed(store_copy: StoreCopy) -> None:
    db = store_copy()
    leave_wal(db, "PRAGMA journal_mode = wal")
    made = backup(tidy(db))
    leave_wal(db, *MORE)
    wal = Path(f"{db}-wal").read_bytes()
    with pytest.raises(Refused) as refused:
        put_back(made.path, db)
    frames = refused.value.facts["wal_frames"]
    assert frames > 0 and str(refused.value) == (
        f"The WAL beside {db} holds {frames} pages of commits that are not in the database file. {made.path} does not "
        "have them, and a restore would take them out of use. Nothing was changed."
    )
    assert Path(f"{db}-wal").read_bytes() == wal
    done = put_back(made.path, db, over_wal=True)
    assert query(db, "SELECT count(*) FROM messages") == [(72,)]
    assert done.replaced is not None and done.replaced.aside is not None
    assert files_of(done.replaced.aside)["state.db-wal"] == wal


def test_a_wal_whose_commits_are_all_in_the_file_does_not_refuse_it(store_copy: StoreCopy) -> None:
    db = store_copy()
    leave_wal(db, "PRAGMA journal_mode = wal")
    made = backup(tidy(db))
    leave_wal(db, *MORE, "PRAGMA wal_checkpoint(passive)")
    assert Path(f"{db}-wal").stat().st_size > 4096
    assert put_back(made.path, db).replaced is not None


def test_a_holder_refuses_it_before_the_backup_is_even_read(store_copy: StoreCopy, child: Children) -> None:
    db = tidy(store_copy())
    made = backup(db)
    holder = child(
        """
        import sys, apsw, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("SELECT count(*) FROM messages").fetchall()
        gates.reach("open")
        gates.wait("never")
        """,
        db,
    )
    holder.wait_for("open")
    with pytest.raises(StoreHeld) as refused:
        restore(made.path, db)
    assert str(refused.value).startswith(
        f"`sessions restore` needs {db} for itself, and 1 other process has it open. Nothing was changed."
    )


def test_a_backup_of_another_store_is_refused_by_identity(tmp_path: Path) -> None:
    one, other = new_store(tmp_path / "one"), new_store(tmp_path / "other")
    add_session(one, "a")
    made = backup(one)
    (mine,), (theirs,) = query(other, "SELECT store_id FROM store"), query(one, "SELECT store_id FROM store")
    tidy(other)
    with pytest.raises(Refused) as refused:
        put_back(made.path, other)
    assert str(refused.value) == (
        f"{made.path} is not a backup of this store: {other} is store {mine[0]}, and the backup is of store "
        f"{theirs[0]}. Nothing was changed."
    )
    put_back(made.path, other, new_store=True)
    assert query(other, "SELECT store_id FROM store") == [theirs]


def test_a_backup_of_the_other_dialect_and_of_strangers_sessions_are_refused(
    store_copy: StoreCopy, tmp_path: Path
) -> None:
    db, native = tidy(store_copy()), new_store(tmp_path / "native")
    with pytest.raises(Refused, match="is a native store, and the backup is a file of hermes-agent"):
        put_back(backup(db).path, tidy(native))
    other = store_copy()
    query(other, "PRAGMA foreign_keys = off; UPDATE sessions SET id = 'x' || id")
    with pytest.raises(Refused, match="have no session in common"):
        put_back(backup(db).path, tidy(other))


@pytest.mark.parametrize("how", ["altered", "cut", "manifest"])
def test_a_backup_that_is_not_what_its_manifest_says_is_refused(
    store_copy: StoreCopy, tmp_path: Path, how: str
) -> None:
    db = tidy(store_copy())
    bad = copied(backup(db).path, tmp_path / "copy")
    before = db.read_bytes()
    raw = bytearray(bad.read_bytes())
    if how == "altered":
        raw[len(raw) // 2] ^= 1
        bad.write_bytes(raw)
    elif how == "cut":
        bad.write_bytes(raw[:-4096])
    else:
        Path(f"{bad}.manifest.json").write_text("{}")
    with pytest.raises(BackupDamaged) as refused:
        put_back(bad, db)
    said = {
        "altered": f"{bad} is not what its manifest says: its content was altered.",
        "cut": f"{bad} is not what its manifest says: it has {len(raw) - 4096} bytes instead of {len(raw)}.",
        "manifest": f"The manifest {bad}.manifest.json cannot be read: 'format'.",
    }
    assert str(refused.value) == said[how] and refused.value.exit_code == 65
    assert db.read_bytes() == before and not list(db.parent.glob("*.replaced-*"))


@pytest.mark.parametrize(
    ("fact", "wrong"), [("sessions", 999), ("messages", 1), ("highest_message_id", 10**6), ("last_at", 1.0)]
)
def test_a_manifest_whose_summary_is_not_that_of_its_file_is_refused(
    store_copy: StoreCopy, tmp_path: Path, fact: str, wrong: float
) -> None:
    """The hashes of the tables are right: it is the numbers by which people choose a backup that are not."""
    db = tidy(store_copy())
    made = backup(db)
    bad = copied(made.path, tmp_path / "copy")
    manifest = Path(f"{bad}.manifest.json")
    said = json.loads(manifest.read_text())
    right = said["content"][fact]
    said["content"][fact] = wrong
    manifest.write_text(json.dumps(said))
    for attempt in (lambda: put_back(bad, db), lambda: drill(bad)):
        with pytest.raises(BackupDamaged) as refused:
            attempt()
        assert str(refused.value) == f"{bad} is not what its manifest says: {fact} is {right} instead of {wrong}."


@pytest.mark.parametrize("kind", ["plain", "snapshot with a WAL", "gzip", "zstd"])
def test_a_file_without_a_manifest_is_checked_and_said_to_be_without(
    store_copy: StoreCopy, tmp_path: Path, kind: str
) -> None:
    db = tidy(store_copy())
    folder = tmp_path / "state-snapshots" / "20260101-pre-update"
    folder.mkdir(parents=True)
    snapshot = Path(shutil.copy(db, folder / "state.db"))
    if kind == "snapshot with a WAL":
        one = "DELETE FROM messages WHERE id = (SELECT max(id) FROM messages)"
        leave_wal(snapshot, "PRAGMA journal_mode = wal", one)
    if kind == "gzip":
        packed = folder / "state.db.gz"
        packed.write_bytes(gzip.compress(snapshot.read_bytes()))
        snapshot = packed
    if kind == "zstd":
        packed = folder / "state.db.zst"
        packed.write_bytes(zstandard.compress(snapshot.read_bytes()))
        snapshot = packed
    names = {path.name: path.read_bytes() for path in folder.iterdir()}
    plans: list[RestorePlan] = []
    put_back(snapshot, db, agreed=seen(plans))
    assert not plans[0].verified and plans[0].staged.content.sessions == 12
    assert plans[0].staged.content.messages == (71 if kind == "snapshot with a WAL" else 72)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == names  # only read, nothing left beside it


def test_a_cut_packed_file_is_not_restored(store_copy: StoreCopy, tmp_path: Path) -> None:
    db = tidy(store_copy())
    raw = db.read_bytes()
    for name, packed in (("a.gz", gzip.compress(raw)), ("a.zst", zstandard.compress(raw))):
        bad = tmp_path / name
        bad.write_bytes(packed[: len(packed) // 2])
        with pytest.raises((BackupDamaged, Corrupt)) as refused:
            put_back(bad, db)
        assert refused.value.exit_code == 65 and str(refused.value).startswith(f"{bad} cannot be ")
    assert db.read_bytes() == raw


def test_a_damaged_file_is_not_restored(store_copy: StoreCopy, tmp_path: Path) -> None:
    db = store_copy()
    grow(db, sessions=10)
    bad = Path(shutil.copy(tidy(db), tmp_path / "copy.db"))
    damage_table(bad)
    with pytest.raises(Corrupt) as refused:
        put_back(bad, db)
    assert str(refused.value).startswith(f"{bad} cannot be restored: its database is damaged: ")
    assert refused.value.hint == f"Use another backup, or `hermes-state sessions recover --source {bad}`."


def test_what_is_no_backup_is_said(store_copy: StoreCopy, tmp_path: Path) -> None:
    db = tidy(store_copy())
    with pytest.raises(NotFound, match="There is no backup"):
        put_back(tmp_path / "none.db", db)
    with pytest.raises(InvalidInput, match="is the store itself"):
        put_back(db, db)


def test_a_restored_native_store_goes_on_and_its_search_is_built_anew(tmp_path: Path) -> None:
    db = new_store(tmp_path)
    add_session(db, "one", messages=3, text="a lighthouse at night")
    with open_store(path=db) as store:
        assert len(store.search("lighthouse")) == 3
    made = backup(db)
    add_session(db, "two", messages=3, text="a lighthouse by day")
    with open_store(path=db) as store:
        assert len(store.search("lighthouse")) == 6
    highest = query(db, "SELECT max(id) FROM messages")[0][0]
    tidy(db)
    done = put_back(made.path, db)
    assert done.replaced is not None and done.replaced.incarnation != made.manifest.content.incarnation
    assert query(db, "SELECT message_floor FROM store") == [(highest,)]
    add_session(db, "three", messages=1, text="a windmill")
    with open_store(path=db) as store:
        assert len(store.search("lighthouse")) == 3
        assert [hit.session_id for hit in store.search("windmill")] == ["three"]


def test_the_command_asks_shows_and_restores(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = tidy(store_copy())
    made = backup(db)
    leave_wal(db, *MORE)
    tidy(db)
    plan = run_cli("sessions", "restore", made.path, "--db", db, "--dry-run")
    assert plan.exit_code == 0, plan.stderr
    assert "gone from the store: 1 sessions and 2 messages" in plan.stdout
    asked = run_cli("sessions", "restore", made.path, "--db", db)
    assert asked.exit_code == 1 and "no terminal to ask on" in asked.stderr
    assert query(db, "SELECT count(*) FROM messages") == [(74,)]


def test_a_store_with_an_unfinished_change_is_restored_and_its_journal_kept(
    store_copy: StoreCopy, child: Children
) -> None:
    db = tidy(store_copy())
    made = backup(db)
    before, plans = leave_journal(db, child), list[RestorePlan]()
    put_back(made.path, db, agreed=seen(plans))
    assert both_files(db) == before and plans[0].gap.readable
    assert (plans[0].gap.messages_missing, plans[0].gap.tables) == (0, {})
    done = put_back(made.path, db)
    assert done.replaced is not None and done.replaced.aside is not None
    assert (done.replaced.aside / f"{db.name}-journal").read_bytes() == before["-journal"]
    assert query(db, "SELECT count(*) FROM messages WHERE content LIKE 'half of it %'") == [(0,)]


def test_a_linked_backup_is_compared_with_the_manifest_of_the_file(store_copy: StoreCopy, tmp_path: Path) -> None:
    db = tidy(store_copy())
    link = tmp_path / "link.db"
    link.symlink_to(backup(db).path)
    plans: list[RestorePlan] = []
    put_back(link, db, agreed=seen(plans))
    assert plans[0].verified


def test_equal_ids_of_another_store_are_other_messages(store_copy: StoreCopy, tmp_path: Path) -> None:
    db = tidy(store_copy())
    other = new_store(tmp_path / "native.db")
    add_session(other, "s1")
    plans: list[RestorePlan] = []
    put_back(backup(other, tmp_path / "backups").path, db, new_store=True, agreed=seen(plans))
    assert (plans[0].gap.sessions_shared, plans[0].gap.messages_missing) == (0, 72)
