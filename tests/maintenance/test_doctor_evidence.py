"""Files that hold nothing, and new stores, are judged by what lies beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hermes_state.store import open_store
from maintenance.backups import backup, restore
from maintenance.doctor.findings import Severity
from maintenance.marks import set_mark
from tests.maintenance.adopting import nobody
from tests.maintenance.damage import change, examined, only
from tests.maintenance.native_stores import add_session, new_store, rows
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy


def emptied(path: Path) -> None:
    """The file of hermes-agent as its first start makes it: all tables, no row, and no sign that there ever was one."""
    change(path, "DELETE FROM messages", "DELETE FROM sessions", "DELETE FROM sqlite_sequence", triggers=False)
    change(path, *(f"DELETE FROM {name}" for name in ("messages_fts", "messages_fts_trigram")))


def test_a_file_of_zeros_is_called_that_and_what_lies_beside_it_is_named(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    (path.parent / "state.db.zeroed-1").write_bytes(path.read_bytes())
    path.write_bytes(bytes(path.stat().st_size))
    found = examined(path)
    assert only(found, "zeroed_file").sentence == (
        f"All {path.stat().st_size:,} bytes of the file are zero: nothing of the store is left in it. Do not start "
        "Hermes on it. Beside it lies a file that was put aside."
    )
    assert (found.exit_code, found.next_command) == (65, f"hermes-state sessions leftovers --db {path}")


def test_a_file_of_zeros_beside_a_verified_backup_names_that_backup(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    made = backup(path)
    path.write_bytes(bytes(4096))
    found = examined(path)
    assert "Beside it lies a backup." in only(found, "zeroed_file").sentence
    assert found.next_command == f"hermes-state sessions restore --db {path} {made.path}"


def test_an_empty_file_with_a_wal_is_sent_to_recovery_and_one_without_to_what_lies_beside_it(
    store_copy: StoreCopy,
) -> None:
    path = store_copy("0.17.0")
    path.write_bytes(b"")
    assert examined(path).next_command == f"hermes-state sessions leftovers --db {path}"


def test_a_new_store_beside_the_traces_of_another_is_a_problem(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    emptied(path)
    assert examined(path).exit_code == 0
    folder = path.parent / "sessions"
    folder.mkdir()
    for number in range(3):
        (folder / f"session_{number}.jsonl").write_text("{}\n")
    set_mark(path, ["20250101_000000_aaaaaa"], "archived", True)
    found = examined(path)
    assert only(found, "fresh_store").sentence == (
        "The store is new and never held a message, and beside it lies marks of 1 session and 3 session files: the "
        "store that this one stands in for was lost or moved."
    )
    assert (found.exit_code, found.next_command) == (3, f"hermes-state sessions leftovers --db {path}")


def test_a_store_that_was_emptied_on_purpose_is_no_new_one(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, "DELETE FROM messages", "DELETE FROM sessions", triggers=False)
    change(path, *(f"DELETE FROM {name}" for name in ("messages_fts", "messages_fts_trigram")))
    path.with_name("state.db.hermes-state.ledger.jsonl").write_text(json.dumps({"sessions": ["a"]}) + "\n")
    assert [one for one in examined(path).findings if one.code == "fresh_store"] == []


def test_a_new_native_store_beside_the_index_of_another_is_a_problem(tmp_path: Path) -> None:
    old = new_store(tmp_path / "old")
    add_session(old, "one", messages=3)
    with open_store(path=old) as store:
        store.search.catch_up(5.0)
    path = new_store(tmp_path / "new")
    for ending in ("", "-wal"):
        shutil.copy(old.with_name(f"search.db{ending}"), path.with_name(f"search.db{ending}"))
    finding = only(examined(path), "fresh_store")
    assert "a search index of another store" in finding.sentence
    assert finding.severity is Severity.WARNING


def test_pinned_sessions_that_vanished_without_a_delete_are_a_problem(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    set_mark(path, ["gone"], "pinned", True)
    found = examined(path)
    assert only(found, "sessions_vanished").sentence == (
        "1 pinned session (gone) is not in the store, and no delete of ours removed them: the store is older than its "
        "marks, or rows were lost."
    )
    path.with_name("state.db.hermes-state.ledger.jsonl").write_text(json.dumps({"sessions": ["gone"]}) + "\n")
    assert examined(path).exit_code == 0


@pytest.mark.slow
def test_a_capture_names_the_command_that_brings_it_back(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    path.with_name("state.db.retired-wal-20260101T000000Z-77").mkdir()
    assert examined(path).next_command == f"hermes-state sessions captures --db {path} --merge"


def test_an_older_copy_in_the_place_of_a_backed_up_store_is_a_problem(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path)
    older = path.read_bytes()
    with_more = (
        "INSERT INTO messages (session_id, role, content, timestamp) SELECT id, 'user', 'new', 1.0 FROM sessions"
    )
    change(path, f"{with_more} LIMIT 3")
    made = backup(path)
    assert examined(path, quick=True).exit_code == 0
    path.write_bytes(older)
    found = only(examined(path, quick=True), "behind_backup")
    highest, here = found.facts["highest_in_backup"], found.facts["highest_here"]
    assert highest == here + 3
    assert found.sentence.startswith(f"The store never had a message with an id above {here:,}, and its backup of ")
    assert found.sentence.endswith(
        f" has one with {highest:,}: an older copy stands in its place, or its newest rows were lost."
    )
    assert found.next_command == f"hermes-state sessions restore --db {path} {made.path} --dry-run"


def test_a_native_store_that_went_back_is_told_by_its_backup_and_a_restored_one_is_not(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    add_session(path, "first")
    early = backup(path)
    add_session(path, "second")
    backup(path)
    assert "behind_backup" not in {one.code for one in examined(path, quick=True).findings}
    shutil.copyfile(early.path, path)
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    assert only(examined(path, quick=True), "behind_backup").severity is Severity.WARNING
    restore(early.path, path, scanner=nobody)
    assert "behind_backup" not in {one.code for one in examined(path, quick=True).findings}


def test_sessions_that_went_without_a_record_are_a_note_and_recorded_ones_are_not(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    path = store_copy("0.17.0")
    change(path)
    made = backup(path)
    first, second = (row[0] for row in rows(path, "SELECT id FROM sessions ORDER BY id LIMIT 2"))
    assert run_cli("sessions", "delete", first, "--yes", "--db", str(path)).exit_code == 0
    assert "fewer_than_backup" not in {one.code for one in examined(path, quick=True).findings}
    change(path, f"DELETE FROM messages WHERE session_id = '{second}'", f"DELETE FROM sessions WHERE id = '{second}'")
    found = only(examined(path, quick=True), "fewer_than_backup")
    assert (found.severity, found.facts["backup"], found.facts["deleted_since"]) == (Severity.INFO, str(made.path), 1)
    assert found.sentence.startswith("The store has 1 session fewer than its backup of ")
