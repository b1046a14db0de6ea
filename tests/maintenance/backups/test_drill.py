"""Drills: proof that a backup gives a store back, and a damaged one found before it is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.errors import BackupDamaged
from maintenance.backups import backup, drill
from tests.maintenance.backups.making import copied, query, tidy
from tests.maintenance.native_stores import add_session, new_store
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy


@pytest.mark.slow
def test_a_drill_of_either_dialect_leaves_nothing_and_touches_no_store(store_copy: StoreCopy, tmp_path: Path) -> None:
    native = new_store(tmp_path)
    add_session(native, "one", messages=4)
    for db in (tidy(store_copy()), tidy(native)):
        done = backup(db)
        before = {path: path.read_bytes() for path in done.path.parent.iterdir()}
        mine = {path.name: path.stat().st_mtime_ns for path in db.parent.iterdir() if path.is_file()}
        found = drill(done.path)
        assert (found.sessions, found.messages) == (done.manifest.content.sessions, done.manifest.content.messages)
        assert found.verified and found.tables == len(done.manifest.content.tables)
        assert {path: path.read_bytes() for path in done.path.parent.iterdir()} == before
        assert {path.name: path.stat().st_mtime_ns for path in db.parent.iterdir() if path.is_file()} == mine


def test_a_drill_of_a_backup_with_one_altered_byte_exits_65(
    store_copy: StoreCopy, run_cli: RunCli, tmp_path: Path
) -> None:
    bad = copied(backup(tidy(store_copy())).path, tmp_path / "copy")
    raw = bytearray(bad.read_bytes())
    raw[len(raw) // 3] ^= 4
    bad.write_bytes(raw)
    with pytest.raises(BackupDamaged):
        drill(bad)
    done = run_cli("sessions", "restore", "--drill", bad)
    assert done.exit_code == 65 and "is not what its manifest says: its content was altered" in done.stderr
    assert sorted(path.name for path in bad.parent.iterdir()) == [bad.name, f"{bad.name}.manifest.json"]


@pytest.mark.slow
def test_a_drill_without_a_manifest_says_so(store_copy: StoreCopy, run_cli: RunCli, tmp_path: Path) -> None:
    bare = tmp_path / "bare.db"
    bare.write_bytes(tidy(store_copy()).read_bytes())
    done = run_cli("sessions", "restore", "--drill", bare)
    assert done.exit_code == 0, done.stderr
    assert "It has no manifest: what came back is what the file holds." in done.stdout
    assert query(bare, "SELECT count(*) FROM messages") == [(72,)]
