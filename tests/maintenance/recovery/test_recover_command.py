"""`sessions recover` as a person runs it: what it prints, its exit status, and --install."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.testing.page_damage import zero_header, zero_leaves
from tests.maintenance.recovery.recovering import everything, foreign_store, native_store
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


def test_inspect_only_names_what_is_damaged_and_exits_3(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.19.0", grown=4)
    zero_leaves(db, "messages", 1, seed=1)
    before = sorted(path.name for path in db.parent.iterdir())
    ran = run_cli("sessions", "recover", "--inspect-only", "--source", db)
    assert ran.exit_code == 3
    assert f"Source: {db} (bare file; schema from: file)." in ran.stdout
    assert "The table messages is damaged" in ran.stdout
    assert sorted(path.name for path in db.parent.iterdir()) == before
    said = run_cli("sessions", "recover", "--inspect-only", "--source", db, "--json").json
    assert said["damaged"] and {table["table"]: table["state"] for table in said["tables"]}["messages"] == "damaged"
    command = f"hermes-state sessions recover --source {db}"
    assert [one["next_command"] for one in said["findings"] if one["severity"] == "damage"] == [command]


def test_lost_rows_exit_65_and_the_result_is_partial(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.19.0", grown=4)
    zero_leaves(db, "messages", 1, seed=1)
    ran = run_cli("sessions", "recover", "--source", db, "--output", tmp_path / "out.db")
    assert ran.exit_code == 65
    assert f"Rows are known to be lost: the result is {tmp_path / 'out.db.partial'}." in ran.stderr
    assert "known to be lost" in ran.stdout
    allowed = run_cli("sessions", "recover", "--source", db, "--output", tmp_path / "two.db", "--allow-partial")
    assert (allowed.exit_code, allowed.stderr) == (0, "")
    assert f"Recovered {db} into {tmp_path / 'two.db'}." in allowed.stdout


def test_json_is_the_report_that_was_written(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.18.2")
    zero_header(db)
    ran = run_cli(
        "sessions", "recover", "--source", db, "--output", tmp_path / "out.db", "--report", tmp_path / "r.json",
        "--json",
    )
    assert (ran.exit_code, ran.stderr) == (0, "")
    written = json.loads((tmp_path / "r.json").read_text())
    assert {name: value for name, value in ran.json.items() if name not in ("dry_run", "installed")} == written
    assert ran.json["installed"] is None


def test_install_puts_the_result_in_the_place_of_the_damaged_store(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.17.0", grown=2)
    rows = everything(db)
    inode = db.stat().st_ino
    zero_header(db)
    damaged = db.read_bytes()
    refused = run_cli("sessions", "recover", "--source", db, "--install")
    assert refused.exit_code == 1 and db.read_bytes() == damaged
    ran = run_cli("sessions", "recover", "--source", db, "--install", "--yes")
    assert ran.exit_code == 0, ran.stderr
    assert f"Installed into {db}; the damaged files are in " in ran.stdout
    assert db.stat().st_ino == inode
    assert everything(db) == rows
    aside = Path(ran.stdout.partition("the damaged files are in ")[2].splitlines()[0].rstrip("."))
    assert damaged in [path.read_bytes() for path in aside.iterdir()]
    assert run_cli("doctor", "--db", db).exit_code == 0


def test_a_partial_result_is_not_installed(run_cli: RunCli, tmp_path: Path) -> None:
    db = native_store(tmp_path / "home", sessions=10)
    zero_leaves(db, "messages", 1, seed=1)
    damaged = db.read_bytes()
    ran = run_cli("sessions", "recover", "--source", db, "--install", "--yes")
    assert ran.exit_code == 65
    assert ran.stderr.endswith(f"the result is {db}.recovered.db.partial. {db} was not replaced.\n")
    assert db.read_bytes() == damaged


def test_a_source_is_recovered_on_a_machine_without_any_store(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "elsewhere", "0.19.0")
    ran = run_cli("sessions", "recover", "--source", db, "--output", tmp_path / "out.db", home=tmp_path / "no-home")
    assert (ran.exit_code, ran.stderr) == (0, "")
    refused = run_cli("sessions", "recover", home=tmp_path / "no-home")
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[0] == f"Error: There is no store at {tmp_path / 'no-home' / 'state.db'}."
