"""`leftovers`: every side file is found and named, compared with the store, and only proven ones may go."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import open_read, open_write
from hermes_state.errors import NotFound
from hermes_state.store import open_store
from maintenance.ledger import ledger_path
from maintenance.leftovers import Leftover, inventory, prune
from maintenance.leftovers.names import KINDS
from maintenance.recovery.captures.merge import merge_wal
from tests.maintenance.recovery.captures.making import foreign_capture
from tests.support.children import Children
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow
OLD = 1_700_000_000.0


@pytest.fixture
def db(store_copy: Callable[[str], Path]) -> Path:
    return store_copy("0.19.0")


def put(path: Path, content: bytes | Path = b"x", *, at: float = OLD) -> Path:
    """A file or a copy of one, with its time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_bytes(content)
    os.utime(path, (at, at))
    return path


def beside(db: Path, ending: str) -> Path:
    return db.with_name(db.name + ending)


def one_of(found: tuple[Leftover, ...], path: Path) -> Leftover:
    return next(one for one in found if one.path == path)


def delete_a_session(db: Path) -> str:
    """Remove the session with the most messages, as a program of another release would: without our ledger."""
    with open_write(db, foreign=True, deadline_seconds=5.0) as store, store.transaction() as tx:
        (key,) = tx.rows("SELECT session_id FROM messages GROUP BY 1 ORDER BY count(*) DESC LIMIT 1")[0]
        tx.rows("PRAGMA defer_foreign_keys = ON")
        tx.execute("UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?", (key,))
        for (table,) in tx.rows(
            "SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND "
            "c.name = 'session_id' AND m.name NOT LIKE 'messages_fts%'"
        ):
            tx.execute(f'DELETE FROM "{table}" WHERE session_id = ?', (key,))
        tx.execute("DELETE FROM sessions WHERE id = ?", (key,))
    return str(key)


def test_every_name_is_known_by_its_kind_and_the_stores_own_files_are_not_listed(db: Path) -> None:
    pid = 2**22 + 7
    kinds = {
        ".malformed-backup-20260913_101500": "malformed_backup", ".malformed-backup-20260913_101500_2":
        "malformed_backup", ".zeroed-20260913-41.bak": "quarantined", ".notadb-20260913-41.bak": "quarantined",
        ".pre-update-emergency-1.bak": "emergency_copy", ".repair-scratch": "agent_scratch",
        ".fts_rebuild.lock": "agent_record", ".repair-attempts.json": "agent_record", ".repair.lock": "agent_record",
        f".adopting-20260913T101500Z-{pid}.native": "adopting",
        ".adopted-from-hermes-agent-20260913T101500Z.db": "original",
        f".replaced-20260913T101500Z-{pid}.partial": "unfinished_replaced",
        f".replacing-{pid}-0a1b2c3d.db": "replacing", ".hermes-state.replacing.json": "replacement_note",
        ".hermes-state.repairs.json": "repair_record", ".hermes-state.repair.lock": "repair_record",
        ".hermes-state.json": "marks", ".hermes-state.json.lock": "marks", ".hermes-state.ledger.jsonl": "ledger",
        f".compact-copy-20260913T101500Z-{pid}": "compact_copy", ".recovered.db": "recovered",
        ".recovered.db.partial": "recovered", ".recovered.db.recovery.json": "recovery_report",
        ".recovered.db.recovery-apart.jsonl": "recovery_apart", ".retired-wal-1-4711.recovered.db": "recovered",
        ".bak": "unknown", "-old": "unknown", ".hermes-state.litestream.yml": "replication",
    }
    for ending in kinds:
        put(beside(db, ending))
    folders = {
        ".retired-wal-20260913T101500Z-4711": "capture", ".retired-wal-20260913T101500Z-4712.partial":
        "unfinished_capture", ".replaced-20260913T101500Z-1": "replaced", ".replaced-damage-0011": "replaced",
        ".hermes-state.repairing": "repair_work", ".recovered.db.recovering": "recovery_work",
        ".hermes-state.spool": "spool", ".damaged-copy": "damaged_copy",
    }
    for ending in folders:
        beside(db, ending).mkdir()
    others = {
        "state-snapshots/20260913-pre-update": "snapshot", ".backup-staging-1": "agent_scratch", "owners": "owners",
        ".state.db.hermes-state.json.77.0a0b0c0d": "working", ".state.db.0a0b0c0d0e0f.new": "working",
        ".capture-abc": "working", ".state.db-litestream": "replication", "search.db": "search_index",
    }
    for name in others:
        put(db.parent / name / "file" if "." not in name[1:] else db.parent / name)
    for name in ("notes.txt", "config.yaml", "state.db-wal", "state.db-shm"):
        put(db.with_name(name), b"")
    found = inventory(db)
    assert {one.path: one.kind for one in found} == {
        **{beside(db, ending): kind for ending, kind in (kinds | folders).items()},
        **{db.parent / name: kind for name, kind in others.items()},
    }
    assert {one.kind for one in found} <= set(KINDS)
    assert all(one.why.endswith(".") for one in found)


def test_a_copy_with_a_wal_is_counted_with_it_and_nothing_is_left_beside_it(db: Path, child: Children) -> None:
    capture = foreign_capture(db, child, session=first_session(db))
    folder = beside(db, ".replaced-20260913T101500Z-1")
    folder.mkdir()
    for ending in ("", "-wal"):
        put(folder / f"{db.name}{ending}", capture / f"{db.name}{ending}")
    backup = put(beside(db, ".malformed-backup-20260913_101500"), db)
    shutil.rmtree(capture)
    before = everything_beside(db)
    found = inventory(db, deep=True)
    assert everything_beside(db) == before
    replaced, copy = one_of(found, folder), one_of(found, backup)
    assert replaced.holds is not None and copy.holds is not None
    assert replaced.holds.messages == (copy.holds.messages or 0) + 4
    assert (replaced.holds.lacking, replaced.holds.compared) == ({"messages": 4, "sessions": 1}, "rows")
    assert (replaced.safe, replaced.why) == (False, "The store lacks 5 rows of it.")
    assert (copy.safe, copy.holds.all_in_store, copy.holds.dialect) == (True, True, "hermes-agent")


def everything_beside(db: Path) -> list[Path]:
    return sorted(set(db.parent.rglob("*")) - {beside(db, "-wal"), beside(db, "-shm")})


def first_session(db: Path) -> str:
    with open_read(db) as reader:
        return str(reader.rows("SELECT id FROM sessions ORDER BY id LIMIT 1")[0][0])


def test_a_quick_look_counts_and_only_a_deep_one_proves(db: Path) -> None:
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    quick, deep = one_of(inventory(db), copy), one_of(inventory(db, deep=True), copy)
    assert (quick.safe, quick.why) == (
        False, "By ids and counts the store has everything in it; --deep compares the rows."
    )
    assert quick.holds is not None and quick.holds.all_in_store is None
    assert deep.safe and deep.why.startswith("Every row in it is in the store (")
    # The same number of rows with another content is seen by the deep look only.
    with open_write(db, foreign=True, deadline_seconds=5.0) as store, store.transaction() as tx:
        tx.execute("UPDATE messages SET content = 'other' WHERE id = (SELECT max(id) FROM messages)")
    changed = one_of(inventory(db, deep=True), copy)
    assert (changed.safe, changed.why, changed.could_restore) == (False, "The store lacks 1 row of it.", True)
    assert not one_of(inventory(db), copy).could_restore


def test_what_the_store_lost_is_named_and_what_was_deleted_on_purpose_is_not(db: Path, run_cli: RunCli) -> None:
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    key = delete_a_session(db)
    lost = one_of(inventory(db), copy)
    assert lost.holds is not None and lost.holds.lacking is not None and lost.holds.lacking["sessions"] == 1
    assert lost.could_restore
    shown = run_cli("sessions", "leftovers", "--db", db)
    assert shown.exit_code == 3
    assert shown.stdout.splitlines()[-1] == f"Next: hermes-state sessions list --db {copy}"
    # The same delete with a line in the ledger is nobody's loss.
    line = {"at": "2026-09-13T10:15:00Z", "sessions": [key], "run": "r", "pid": 1}
    ledger_path(db).write_text(json.dumps(line) + "\n")
    assert not one_of(inventory(db), copy).could_restore


def test_of_identical_copies_only_the_newest_counts(db: Path, tmp_path: Path) -> None:
    damaged = put(tmp_path / "damaged", b"SQLite format 3\0" + bytes(range(1, 255)) * 40)
    copies = [
        put(beside(db, f".malformed-backup-2026091{day}_101500"), damaged, at=OLD + day) for day in range(3)
    ]
    other = put(beside(db, ".malformed-backup-20260919_101500"), damaged.read_bytes()[:-1] + b"!", at=OLD + 9)
    found = inventory(db)
    assert [(one_of(found, path).safe, one_of(found, path).same_as) for path in copies] == [
        (True, copies[2]), (True, copies[2]), (False, None)
    ]
    assert one_of(found, copies[0]).why == (
        f"It is the same as {copies[2].name}, byte for byte, which is newer."
    )
    done = prune(db)
    assert [one.path for one in done.dropped] == copies[:2]
    assert copies[2].exists() and other.exists()
    lines = [json.loads(line) for line in ledger_path(db).read_text().splitlines()]
    assert [(line["verb"], line["filters"]["path"], line["sessions"]) for line in lines] == [
        ("sessions leftovers", str(path), []) for path in copies[:2]
    ]


def test_of_backups_only_an_older_equal_of_a_verified_one_may_go(db: Path) -> None:
    folder = db.parent / "backups"
    paths = [put(folder / f"state-2026091{day}T101500Z.db", db, at=OLD + day) for day in range(3)]
    working = put(folder / f".state-20260919T101500Z.db-{2**22 + 7}.partial", db)
    found = inventory(db)
    assert [one_of(found, path).safe for path in paths] == [False, False, False]
    assert one_of(found, paths[0]).why == "Backups are let go by `hermes-state sessions backup --keep N`."
    assert one_of(found, working).kind == "working"
    for path in (paths[0], paths[2]):
        put(path.with_name(f"{path.name}.manifest.json"), b"{}", at=OLD)
    assert [one.path for one in prune(db).dropped] == [working, paths[0], paths[1]]
    assert sorted(path.name for path in folder.iterdir()) == [paths[2].name, f"{paths[2].name}.manifest.json"]


def test_a_wal_that_differs_makes_two_copies_different(db: Path) -> None:
    first = put(beside(db, ".malformed-backup-20260913_101500"), b"garbage", at=OLD)
    put(beside(db, ".malformed-backup-20260913_101500-wal"), b"one", at=OLD)
    second = put(beside(db, ".malformed-backup-20260914_101500"), b"garbage", at=OLD + 1)
    found = inventory(db)
    assert [one_of(found, path).same_as for path in (first, second)] == [None, None]
    assert one_of(found, first).parts == (first, beside(db, ".malformed-backup-20260913_101500-wal"))


def test_a_capture_goes_only_after_it_was_merged_and_while_its_rows_are_there(db: Path, child: Children) -> None:
    capture = foreign_capture(db, child, session=first_session(db))
    before = one_of(inventory(db), capture)
    assert (before.safe, before.could_restore, before.why) == (False, True, "The store lacks 5 rows of it.")
    assert prune(db, [capture]).kept[0].why == before.why
    merge_wal(capture, db)
    merged = one_of(inventory(db), capture)
    assert (merged.safe, merged.why) == (True, "It was merged, and every row in it is in the store.")
    (capture / "merged.json").rename(capture.parent / "note")
    assert one_of(inventory(db), capture).why == (
        "Its rows are all in the store, and it was never merged: `sessions captures --merge` notes that."
    )
    (capture.parent / "note").rename(capture / "merged.json")
    with open_write(db, foreign=True, deadline_seconds=5.0) as store, store.transaction() as tx:
        tx.execute("DELETE FROM messages WHERE content = 'new 1'")
    assert one_of(inventory(db), capture).why == "The store lacks 1 row of it."
    merge_wal(capture, db)
    assert [one.path for one in prune(db).dropped] == [capture]
    assert not capture.exists()


def test_an_altered_capture_and_a_partial_one_stay(db: Path, child: Children) -> None:
    capture = foreign_capture(db, child, session=first_session(db))
    merge_wal(capture, db)
    with open(capture / "state.db-wal", "ab") as wal:
        wal.write(b"more")
    partial = beside(db, ".retired-wal-20260913T101500Z-9.partial")
    shutil.copytree(capture, partial)
    done = prune(db, [capture, partial])
    assert done.dropped == () and done.ledger is None
    assert not one_of(inventory(db), capture).safe and capture.exists() and partial.exists()


def test_working_files_go_when_their_process_is_gone_and_they_were_left_alone(db: Path, fake_clock: FakeClock) -> None:
    gone, ours = 2**22 + 7, os.getpid()
    dead = put(beside(db, f".compact-copy-20260913T101500Z-{gone}"), at=OLD)
    alive = put(beside(db, f".compact-copy-20260913T101500Z-{ours}"), at=OLD)
    fresh = put(beside(db, f".replacing-{gone}-0a1b2c3d.db"), at=fake_clock.now() - 60)
    scratch = put(beside(db, ".repair-scratch"), at=fake_clock.now() - 7200)
    held = put(beside(db, f".adopting-20260913T101500Z-{gone}.native"), at=OLD)
    with held.open("rb"):
        found = inventory(db, clock=fake_clock)
        assert {path.name: one_of(found, path).safe for path in (dead, alive, fresh, scratch, held)} == {
            dead.name: True, alive.name: False, fresh.name: False, scratch.name: False, held.name: False,
        }
        assert one_of(found, alive).why == (
            f"PID {ours}, which made it, is running, or another process has that number now."
        )
        assert one_of(found, fresh).why == "It was changed less than an hour ago."
        assert one_of(found, scratch).why == "It was changed less than a day ago."
        assert one_of(found, held).why.startswith(f"It is open in PID {ours} (")


def test_what_a_killed_prune_had_moved_away_is_no_copy_any_more_and_goes_later(
    db: Path, fake_clock: FakeClock
) -> None:
    gone = 2**22 + 7
    moved = db.parent / f".leftover-{gone}-abc"
    put(moved / "state.db.malformed-backup-20260913_101500", db, at=fake_clock.now() - 60)
    inside = db.parent / "state-snapshots" / f".leftover-{gone}-def"
    put(inside / "20260913-pre-update" / "state.db", db, at=fake_clock.now() - 2 * 86_400)
    found = inventory(db, clock=fake_clock)
    assert [(one.path, one.kind, one.safe, one.holds) for one in found] == [
        (moved, "working", False, None), (inside, "working", True, None),
    ]
    fake_clock.advance(3600)
    assert [one.path for one in prune(db, clock=fake_clock).dropped] == [inside, moved]
    assert list(inside.parent.iterdir()) == [] and not moved.exists()


def test_the_newest_snapshot_and_what_only_it_holds_stay(db: Path) -> None:
    folders = [db.parent / "state-snapshots" / f"2026091{day}-pre-update" for day in range(3)]
    for day, folder in enumerate(folders):
        put(folder / "state.db", db, at=OLD + day)
        put(folder / "config.yaml", b"a: 1" if day else b"a: 0", at=OLD + day)
        put(folder / "note", str(day).encode(), at=OLD + day) if day == 2 else None
    found = inventory(db, deep=True)
    assert [one_of(found, folder).why for folder in folders] == [
        "It also holds config.yaml.",
        one_of(found, folders[1]).why,
        "It is the newest one, and the way back from the last update.",
    ]
    assert [one_of(found, folder).safe for folder in folders] == [False, True, False]
    by_hand = db.parent / "state-snapshots" / "mine"
    put(by_hand / "state.db", db, at=OLD - 5)
    assert one_of(inventory(db, deep=True), by_hand).why == "It was made by hand."


def test_nothing_is_safe_by_its_rows_while_the_store_is_damaged_or_gone(db: Path, run_cli: RunCli) -> None:
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    with open(db, "r+b") as file:
        file.seek(4096 * 20)
        file.write(os.urandom(4096))
    assert not one_of(inventory(db, deep=True), copy).safe
    db.unlink()
    for ending in ("-wal", "-shm"):
        beside(db, ending).unlink(missing_ok=True)
    gone = one_of(inventory(db, deep=True), copy)
    assert (gone.safe, gone.could_restore) == (False, True)
    ran = run_cli("sessions", "leftovers", "--db", db, "--json")
    assert ran.exit_code == 3
    assert ran.json["leftovers"][0]["holds"]["problem"] == f"there is no store at {db}"
    with pytest.raises(NotFound, match=f"^There is no store at {db}\\."):
        prune(db)


def test_other_names_of_the_store_and_links_are_never_opened_nor_dropped(db: Path, tmp_path: Path) -> None:
    folder = beside(db, ".replaced-20260913T101500Z-1")
    folder.mkdir()
    os.link(db, folder / "state.db")
    os.link(db, beside(db, ".malformed-backup-20260913_101500"))
    away = put(tmp_path / "elsewhere", db)
    link = beside(db, ".malformed-backup-20260914_101500")
    link.symlink_to(away)
    found = inventory(db, deep=True)
    assert [one.path for one in found] == [link, folder]
    assert [(one.safe, one.holds) for one in found] == [(False, None), (False, None)]
    assert one_of(found, link).why == f"{link} is a link, or another name of the store's own file."
    assert prune(db).dropped == ()
    assert away.exists()


def test_a_zeroed_file_says_nothing_and_a_single_byte_does(db: Path) -> None:
    zero = put(beside(db, ".zeroed-20260913-41.bak"), bytes(70_000))
    other = put(beside(db, ".zeroed-20260914-41.bak"), bytes(69_999) + b"\1")
    found = inventory(db)
    assert (one_of(found, zero).safe, one_of(found, zero).why) == (True, "Every byte of it is zero.")
    assert not one_of(found, other).safe


def test_copies_of_a_native_store_are_compared_by_the_check_of_each_message(tmp_path: Path) -> None:
    db = tmp_path / "native" / "state.db"
    with open_store(path=db) as store:
        session = store.sessions.create(source="cli", title="Plans").id
        for number in range(20):
            store.messages.append(session, role="user", content=f"message {number}")
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    with open_store(path=db) as store:
        store.messages.append(session, role="user", content="a later one")
    found = one_of(inventory(db, deep=True), copy)
    assert found.holds is not None
    assert (found.safe, found.holds.dialect, found.holds.messages, found.holds.lacking) == (True, "native", 20, {})
    later = put(beside(db, ".malformed-backup-20260914_101500"), db)
    assert [one.path for one in prune(db, [copy]).dropped] == [copy]
    with open_store(path=db) as store:
        store.sessions.delete([session], actor="test", reason="asked for")
    # Deleted on purpose, which the store's own ledger says.
    assert one_of(inventory(db, deep=True), later).could_restore is False


def test_prune_asks_lists_and_repeats_to_nothing(db: Path, run_cli: RunCli) -> None:
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    refused = run_cli("sessions", "leftovers", "--prune", "--db", db)
    assert refused.exit_code == 1 and "there is no terminal to ask on" in refused.stderr and copy.exists()
    dry = run_cli("sessions", "leftovers", "--prune", "--dry-run", "--db", db)
    assert dry.stdout.startswith(f"Drop 1 leftover beside {db}, ") and copy.exists()
    done = run_cli("sessions", "leftovers", "--prune", "--yes", "--db", db, "--json")
    assert done.exit_code == 0
    assert [one["path"] for one in done.json["dropped"]] == [str(copy)] and not copy.exists()
    assert done.json["ledger"] == str(ledger_path(db))
    again = run_cli("sessions", "leftovers", "--prune", "--yes", "--db", db)
    assert (again.exit_code, again.stdout) == (0, "0 leftovers dropped, 0 B returned.\n")
    assert run_cli("doctor", "--db", db).exit_code == 0


@pytest.mark.parametrize("native", [False, True])
def test_a_row_of_a_table_that_nobody_here_knows_keeps_its_copy(db: Path, tmp_path: Path, native: bool) -> None:
    if native:
        db = tmp_path / "native" / "state.db"
        with open_store(path=db) as store:
            store.sessions.create(id="s", source="cli")
    with open_write(db, foreign=not native, deadline_seconds=5.0) as opened, opened.transaction() as tx:
        tx.execute("CREATE TABLE notes_of_a_plugin(text)")
        tx.execute("INSERT INTO notes_of_a_plugin VALUES ('both'), ('both')")
    with open_write(db, foreign=not native, deadline_seconds=5.0) as opened:
        opened.checkpoint("truncate")
    same = put(beside(db, ".malformed-backup-20260913_101500"), db)
    with open_write(db, foreign=not native, deadline_seconds=5.0) as opened, opened.transaction() as tx:
        tx.execute("DELETE FROM notes_of_a_plugin WHERE rowid = 1")
    found = one_of(inventory(db, deep=True), same)
    assert found.holds is not None
    assert (found.safe, found.holds.lacking) == (False, {"notes_of_a_plugin": 1})
    assert found.why == "The store lacks 1 row of it."
    with open_write(db, foreign=not native, deadline_seconds=5.0) as opened, opened.transaction() as tx:
        tx.execute("DROP TABLE notes_of_a_plugin")
    assert one_of(inventory(db, deep=True), same).why == "The store lacks 2 rows of it."


def test_pages_of_a_search_index_are_no_rows_that_a_store_lacks(db: Path) -> None:
    copy = put(beside(db, ".malformed-backup-20260913_101500"), db)
    with open_write(copy, foreign=True, deadline_seconds=5.0) as opened:
        with opened.transaction() as tx:
            tx.execute("UPDATE messages SET content = 'an older text' WHERE id = (SELECT min(id) FROM messages)")
        opened.checkpoint("truncate")
    for ending in ("-wal", "-shm"):
        copy.with_name(copy.name + ending).unlink(missing_ok=True)
    found = one_of(inventory(db, deep=True), copy)
    assert found.holds is not None
    assert found.holds.lacking == {"messages": 1}
