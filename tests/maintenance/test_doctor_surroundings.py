"""What is around a store is said once and never changed: journal mode, file system, SQLite's version, the script."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from maintenance.doctor.findings import Severity
from maintenance.doctor.surroundings import configured_mode, file_system_finding, has_wal_reset_defect
from tests.maintenance.damage import examined, only
from tests.support.stores import StoreCopy


def mounted(tmp_path: Path, kind: str) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    table = f"22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:50 / /mnt/share rw - {kind} share0 rw\n"
    (tmp_path / "proc" / "self" / "mountinfo").write_text(table)
    return tmp_path / "proc"


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("database:\n  journal_mode: delete\n", "delete"),
        ("model: x\ndatabase:\n  # comment\n\n  journal_mode: 'WAL'  # why\n", "wal"),
        ("database: {backend: sqlite, journal_mode: truncate}\n", "truncate"),
        ("database:\n  backend: sqlite\nother:\n  journal_mode: delete\n", None),
        ("database:\n  journal_mode: [delete]\n", "?"),
        ("", None),
    ],
)
def test_the_configured_journal_mode_is_read_from_its_own_block_only(
    text: str, mode: str | None, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    assert configured_mode(tmp_path / "config.yaml") == mode


def test_a_configured_mode_that_is_not_in_force_is_a_problem(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    (path.parent / "config.yaml").write_text("database:\n  journal_mode: delete\n")
    found = examined(path)
    finding = only(found, "journal_mode_differs")
    assert finding.sentence == (
        f"{path.parent / 'config.yaml'} asks for the journal mode delete, and wal is in force. Nothing is switched by "
        "itself; hermes-agent may do so at its next start."
    )
    assert (finding.facts["effective"], finding.facts["header"], finding.facts["configured"]) == (
        "wal",
        "wal",
        "delete",
    )
    assert found.exit_code == 3


def test_a_configured_mode_that_is_in_force_is_no_problem_and_stays(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = delete").fetchall()
    connection.close()
    (path.parent / "config.yaml").write_text("database:\n  journal_mode: delete\n")
    found = examined(path)
    config = path.parent / "config.yaml"
    assert only(found, "journal_mode").sentence == f"The journal mode in force is delete; as {config} asks."
    assert (found.exit_code, path.read_bytes()[18:20]) == (0, b"\x01\x01")


def test_a_wal_store_on_a_cross_vm_share_is_flagged_once(tmp_path: Path) -> None:
    finding = file_system_finding(Path("/mnt/share/state.db"), "wal", proc_root=mounted(tmp_path, "virtiofs"))
    assert (finding.code, finding.severity) == ("wal_on_unsafe_file_system", Severity.WARNING)
    assert finding.sentence == (
        "The store is in WAL mode on virtiofs (share0 on /mnt/share). virtiofs crosses a virtual machine's border, so "
        "processes on both sides share no memory. Move it to a local disk or a named volume while no Hermes runs."
    )


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_a_wal_store_on_a_network_file_system_is_flagged(kind: str, tmp_path: Path) -> None:
    finding = file_system_finding(Path("/mnt/share/state.db"), "wal", proc_root=mounted(tmp_path, kind))
    assert finding.code == "wal_on_unsafe_file_system"


def test_a_rollback_store_on_a_network_file_system_is_a_note(tmp_path: Path) -> None:
    finding = file_system_finding(Path("/mnt/share/state.db"), "delete", proc_root=mounted(tmp_path, "nfs4"))
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize("kind", ["zfs", "btrfs"])
def test_zfs_and_btrfs_get_advice_and_no_verdict(kind: str, tmp_path: Path) -> None:
    finding = file_system_finding(Path("/mnt/share/state.db"), "wal", proc_root=mounted(tmp_path, kind))
    assert (finding.code, finding.severity) == ("file_system", Severity.INFO)


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("3.6.23", False),
        ("3.7.0", True),
        ("3.40.1", True),
        ("3.44.5", True),
        ("3.44.6", False),
        ("3.45.0", True),
        ("3.50.6", True),
        ("3.50.7", False),
        ("3.51.2", True),
        ("3.51.3", False),
        ("3.54.1", False),
        ("unknown", None),
    ],
)
def test_versions_with_the_wal_reset_defect_are_known(version: str, affected: bool | None) -> None:
    assert has_wal_reset_defect(version) is affected


def test_our_own_sqlite_is_said(store_copy: StoreCopy) -> None:
    sentence = only(examined(store_copy("0.17.0")), "sqlite").sentence
    assert sentence == f"This program uses SQLite {apsw.sqlite_lib_version()}; other programs may use another one."
