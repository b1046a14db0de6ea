"""The WAL is judged by frames, its pins are named by PID, and a broken end is seen that every page check passes."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from hermes_state.engine import open_read, open_write
from lockowners import LockOwner, LockReport, Process
from maintenance.doctor.findings import Severity
from maintenance.doctor.wal import pinning, wal_findings
from tests.maintenance.damage import PAGE, examined, only, opened, overwrite
from tests.support.children import Children
from tests.support.stores import StoreCopy

HEADER = 32
FRAME = 24 + PAGE


def with_wal(path: Path, *, commits: int = 20) -> Path:
    """Some commits that stay in the WAL."""
    connection = opened(path)
    for number in range(commits):
        connection.execute("UPDATE sessions SET title = ? WHERE rowid = 1", (f"title {number}",)).fetchall()
    connection.close()
    return Path(f"{path}-wal")


def nobody(path: Path) -> LockReport:
    return LockReport(path=path, owners=(), waiters=(), hidden=(), complete=True, method="procfs")


def test_a_long_wal_file_without_pending_frames_is_no_problem(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    with open_write(path, foreign=True) as writer:
        with writer.transaction(durability="process") as tx:
            tx.execute("CREATE TABLE filler(x)")
            tx.execute("INSERT INTO filler VALUES (zeroblob(400000))")
        writer.checkpoint("passive")
        with open_read(path) as store:
            (finding,) = wal_findings(store, lambda: nobody(path))
    assert finding.severity is Severity.OK
    assert finding.facts["pending_frames"] == 0
    assert finding.facts["wal_bytes"] > 400_000
    assert finding.sentence.startswith("The WAL has 0 frames to copy of ")


def test_frames_that_a_reader_keeps_back_are_blamed_on_its_pid_and_age(store_copy: StoreCopy, child: Children) -> None:
    path = store_copy("0.17.0")
    with_wal(path, commits=1)
    reader = child(
        """
        import sys, gates
        from hermes_state.engine import open_read
        with open_read(sys.argv[1]) as store, store.snapshot():
            store.rows("SELECT count(*) FROM sessions")
            gates.reach("reading")
            gates.wait("end")
        """,
        path,
    )
    reader.wait_for("reading")
    with_wal(path, commits=10)
    found = examined(path)
    pinned = only(found, "wal_pinned")
    assert pinned.severity is Severity.INFO
    assert f"Kept from being copied by PID {reader.pid} (" in pinned.sentence
    assert "reading for" not in pinned.sentence
    assert [entry["pid"] for entry in pinned.facts["readers"]] == [reader.pid]
    assert pinned.facts["pending_frames"] > 0


def test_only_readers_that_a_checkpoint_cannot_pass_pin_the_wal(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    with_wal(path)
    process = Process(pid=1_000_000, start_ticks=1, uid=0, user="root", command="reader")
    with open_read(path) as store:
        state = store.wal_state()
        assert state is not None
        current = next(slot for slot, mark in enumerate(state.read_marks) if slot and mark == state.frames)
        owners = [LockOwner(lock="reader", mode="read", process=process, slot=slot) for slot in (0, current)]
        assert [owner.slot for owner in pinning(state, owners)] == [0]


def test_a_wal_whose_header_was_overwritten_is_damage_although_the_pages_are_whole(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    wal = with_wal(path)
    overwrite(wal, 0, b"\0" * HEADER)
    found = examined(path)
    damage = only(found, "wal_header_damaged")
    assert damage.sentence == (
        "The header of the WAL is damaged, so SQLite ignores all 161.0 KiB of it; committed rows may be in there. Copy "
        "both files before Hermes runs again."
    )
    assert only(found, "pages").severity is Severity.OK
    assert found.exit_code == 65
    assert found.next_command == f"hermes-state sessions recover --source {path}"


@pytest.mark.parametrize("byte", [0, 3, 7, 11, 15, 16, 19, 20, 23, 24, 31])
def test_a_wrong_bit_anywhere_in_the_header_of_the_wal_is_damage(store_copy: StoreCopy, byte: int) -> None:
    path = store_copy("0.17.0")
    wal = with_wal(path)
    overwrite(wal, byte, bytes([wal.read_bytes()[byte] ^ 1]))
    found = examined(path, quick=True)
    assert only(found, "wal_header_damaged").severity is Severity.DAMAGE
    assert found.exit_code == 65


def test_frames_at_the_end_that_no_commit_covers_are_noted(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    wal = with_wal(path)
    last = HEADER + ((wal.stat().st_size - HEADER) // FRAME - 1) * FRAME
    overwrite(wal, last + 24 + 100, b"\xff" * 8)
    found = examined(path, quick=True)
    note = only(found, "wal_unfinished")
    assert (note.severity, note.sentence) == (
        Severity.INFO,
        "2 frames at the end of the WAL belong to no complete commit; SQLite does not read them.",
    )
    assert found.exit_code == 0


def test_frames_of_an_earlier_generation_are_not_spoken_of(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    connection = opened(path)
    for number in range(20):
        connection.execute("UPDATE sessions SET title = ? WHERE rowid = 1", (f"title {number}",)).fetchall()
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    connection.execute("UPDATE sessions SET title = 'next' WHERE rowid = 1").fetchall()
    connection.close()
    with open_read(path) as store:
        codes = [finding.code for finding in wal_findings(store, lambda: nobody(path))]
    assert codes == ["wal", "wal_index_rebuilt"]


def test_a_damaged_frame_with_commits_behind_it_is_damage(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    wal = with_wal(path, commits=20)
    overwrite(wal, HEADER + 5 * FRAME + 24 + 100, b"\xff" * 8)
    found = examined(path)
    assert only(found, "wal_end_damaged").sentence == (
        "Frame 6 of the WAL is damaged, so SQLite stops before it; 17 commits in 34 frames behind it cannot be seen. "
        "Copy both files before Hermes runs again."
    )
    assert only(found, "pages").severity is Severity.OK
    assert found.exit_code == 65


def test_what_a_killed_writer_left_behind_its_last_commit_is_no_damage(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    connection = opened(path)
    connection.execute("PRAGMA cache_size = 1").fetchall()
    connection.execute("BEGIN IMMEDIATE").fetchall()
    connection.execute("CREATE TABLE spilled(x)").fetchall()
    for _ in range(50):
        connection.execute("INSERT INTO spilled VALUES (zeroblob(3000))").fetchall()
    unfinished = os.stat(f"{path}-wal").st_size
    connection.close(True)
    assert unfinished > 10 * FRAME
    found = examined(path)
    assert found.exit_code == 0
    assert only(found, "wal_unfinished").severity is Severity.INFO


def test_frames_that_are_being_written_are_not_called_damaged(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    wal = with_wal(path, commits=20)
    overwrite(wal, HEADER + 5 * FRAME + 24 + 100, b"\xff" * 8)
    process = Process(pid=1_000_000, start_ticks=1, uid=0, user="root", command="writer")
    writing = LockReport(
        path=path,
        owners=(LockOwner(lock="wal-writer", mode="write", process=process),),
        waiters=(),
        hidden=(),
        complete=True,
        method="procfs",
    )
    with open_read(path) as store:
        codes = [finding.code for finding in wal_findings(store, lambda: writing)]
    assert codes == ["wal", "wal_index_rebuilt"]


def test_a_rollback_store_has_no_wal_to_speak_of(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = delete").fetchall()
    connection.close()
    found = examined(path)
    assert [finding.code for finding in found.findings if finding.code.startswith("wal")] == []
    assert only(found, "journal_mode").sentence == "The journal mode in force is delete; none is configured."
