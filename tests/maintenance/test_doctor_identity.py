"""Files that SQLite refuses are told apart, and what lies beside a store is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import NotFound
from maintenance.doctor.examine import Options, examine
from maintenance.doctor.findings import Severity
from tests.maintenance.damage import change, examined, only, opened, overwrite
from tests.support.children import Children
from tests.support.stores import StoreCopy


def test_a_missing_store_is_an_error_and_not_a_verdict(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        examined(tmp_path / "state.db")
    assert str(missing.value) == f"There is no store at {tmp_path / 'state.db'}."


def test_an_empty_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    found = examined(path)
    assert only(found, "empty_file").sentence == (
        "The file is empty (0 bytes): its content was lost or is elsewhere. Do not start Hermes on it."
    )
    assert (found.exit_code, found.verdict) == (65, "damaged")


def test_a_zeroed_header_is_told_apart_from_a_file_that_never_was_a_database(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    overwrite(path, 0, b"\0" * 100)
    found = examined(path)
    assert only(found, "zeroed_header").sentence == (
        "The first 100 bytes are zero, so SQLite does not see a database; the rest of the 999,424 bytes may still hold "
        "the rows."
    )
    assert found.exit_code == 65
    assert found.next_command == f"hermes-state sessions recover --source {path}"


def test_a_text_file_is_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("a letter to a friend\n" * 100)
    found = examined(path)
    assert only(found, "not_sqlite").sentence == "The file is not an SQLite database."
    assert only(found, "not_sqlite").facts["first_bytes"] == b"a letter to a fr".hex()
    assert found.exit_code == 65


def test_a_file_cut_short_says_how_much_is_missing(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    size = path.stat().st_size
    os.truncate(path, 700_000)
    found = examined(path)
    assert only(found, "file_cut").sentence == (
        f"The file was cut: it has 700,000 bytes and its header counts {size:,}. SQLite refuses it; what stands before "
        "the cut can be read."
    )
    assert found.exit_code == 65


def test_an_unreadable_schema_is_damage_and_not_a_missing_feature(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    overwrite(path, 100, b"\0" * 3996)
    found = examined(path)
    assert only(found, "schema_damaged").sentence == (
        "The schema of the file cannot be read, so no table can be reached by SQL; the rows may still be there."
    )
    assert found.exit_code == 65


@pytest.mark.slow
def test_a_store_that_another_process_has_for_itself_is_busy_and_not_damaged(
    store_copy: StoreCopy, child: Children, fake_clock: FakeClock
) -> None:
    path = store_copy("0.17.0")
    holder = child(
        """
        import sys, gates
        from hermes_state.engine import open_exclusive
        with open_exclusive(sys.argv[1], foreign=True):
            gates.reach("held")
            gates.wait("end")
        """,
        path,
    )
    holder.wait_for("held")
    found = examine(path, path.parent, Options(), clock=fake_clock)
    finding = only(found, "cannot_open")
    assert finding.severity is Severity.WARNING
    assert finding.sentence.startswith("The store could not be opened, so nothing in it was checked. ")
    assert finding.next_command == f"hermes-state locks --db {path}"
    assert only(found, "holder").facts["pid"] == holder.pid
    assert found.exit_code == 3


def test_captures_beside_the_store_are_named(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    capture = path.with_name("state.db.retired-wal-20260101T000000Z-77")
    capture.mkdir()
    found = examined(path)
    assert only(found, "captures").sentence == (
        "1 capture of lost WAL generations lies beside the store; committed rows may be in there. Keep them "
        "(docs/recovery.md)."
    )
    assert (only(found, "captures").object, found.exit_code) == (str(capture), 3)


def test_an_interrupted_capture_is_said_to_be_one(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    path.with_name("state.db.retired-wal-20260101T000000Z-77.partial").mkdir()
    assert only(examined(path), "unfinished_capture").severity is Severity.WARNING


def test_a_readable_store_is_mentioned_and_its_mode_is_left_alone(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    path.chmod(0o644)
    path.parent.chmod(0o755)
    note = only(examined(path), "readable_by_all")
    assert note.sentence == (
        "Every user of this machine can read the conversations (mode 0644); modes are never changed here."
    )
    assert note.severity is Severity.INFO
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o644, 0o755)


def test_group_bits_of_a_shared_folder_are_kept(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    path.chmod(0o660)
    path.parent.chmod(0o2770)
    assert only(examined(path), "permissions").sentence == "File mode 0660, folder mode 2770; never changed here."
    assert (path.stat().st_mode & 0o7777, path.parent.stat().st_mode & 0o7777) == (0o660, 0o2770)


def test_a_run_of_the_doctor_changes_neither_the_file_nor_its_wal(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(path, "PRAGMA journal_mode = wal")
    connection = opened(path)
    connection.execute("UPDATE sessions SET title = 'changed' WHERE rowid = 1").fetchall()
    connection.close()
    before = [(item.stat().st_ino, item.read_bytes()) for item in (path, Path(f"{path}-wal"))]
    assert examined(path, sizes=True).exit_code == 0
    assert [(item.stat().st_ino, item.read_bytes()) for item in (path, Path(f"{path}-wal"))] == before


def test_a_file_with_several_names_is_a_problem_because_each_name_gets_its_own_wal(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    os.link(path, path.with_name("linked.db"))
    found = examined(path, quick=True)
    problem = only(found, "several_names")
    assert problem.sentence == (
        "The file has 2 names (hard links), and each of them gets a WAL of its own: programs that use different names "
        "damage the store. Stop them, remove the other names, and copy the store instead of linking it."
    )
    assert (problem.severity, problem.facts["names"], found.exit_code) == (Severity.WARNING, 2, 3)


def test_a_compact_copy_that_a_killed_optimize_left_is_noted_with_its_size_and_age(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    copy = path.with_name("state.db.compact-copy-20260919T080000Z-4711")
    copy.write_bytes(b"x" * 2048)
    os.utime(copy, (1_800_000_000, 1_800_000_000))
    found = examined(path, quick=True)
    assert only(found, "compact_copy_left").sentence == (
        "state.db.compact-copy-20260919T080000Z-4711 is a compact copy (2.0 KiB, from 2027-01-15T08:00:00.000Z) that "
        "an interrupted `sessions optimize --via-copy` left. Nothing uses it again; delete it when no optimize runs."
    )
    assert found.exit_code == 0


def test_marks_that_cannot_be_read_are_a_problem(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    marks = path.with_name("state.db.hermes-state.json")
    marks.write_text("{", encoding="utf-8")
    found = examined(path, quick=True)
    assert only(found, "marks_damaged").sentence == (
        f"The marks file {marks} is not valid JSON. Every command that filters sessions is refused meanwhile. Restore "
        "the file from a backup, or move it away if its pins and archive marks may be lost."
    )
    assert found.exit_code == 3


def test_names_in_the_schema_that_are_not_utf8_are_damage_and_never_an_exception(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    change(
        path, "CREATE TABLE strange(session_id TEXT REFERENCES sessions(id))", "INSERT INTO strange VALUES ('gone')"
    )
    path.write_bytes(path.read_bytes().replace(b"strange", b"str\xffnge"))
    found = examined(path, deep=True, sizes=True)
    said = [finding.sentence for finding in found.findings if finding.code == "schema_damaged"]
    assert "The check of foreign keys could not be made: it holds text that is not UTF-8." in said
    assert found.exit_code == 65
