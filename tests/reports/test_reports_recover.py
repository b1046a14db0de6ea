"""What users reported about recovery (docs/reports.md), as tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.testing.page_damage import zero_leaves, zero_root
from hermes_state.testing.reference import reference_database
from maintenance.recovery import inspect, recover
from tests.maintenance.damage import examined, only
from tests.maintenance.recovery.recovering import everything, foreign_store, little_space
from tests.support.cli import RunCli

__all__ = ["little_space"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_space")]


def test_report_14_the_table_that_is_hit_is_named_and_the_counts_are_exact(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    rows = {row[0] for row in reference_database(db, rows=1200)}
    zero_leaves(db, "messages", 1, seed=4)
    states = {table.name: table.state for table in inspect(db).tables}
    assert states == {"messages": "damaged"}
    report = recover(db, allow_partial=True)
    found = {key for table, key in everything(report.output) if table == "messages"}
    messages = report.table("messages")
    assert (messages.rows, messages.lost_keys) == (len(found), len(rows - found))
    assert {said["key"] for said in messages.lost} == rows - found


def test_report_15_a_malformed_store_whose_rows_can_be_scanned_gives_every_row(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=6)
    rows = everything(db)
    zero_root(db, "idx_messages_session")
    assert only(examined(db), "index_damaged").object == "idx_messages_session"
    report = recover(db)
    assert everything(report.output) == rows
    assert report.table("messages").certain == report.table("messages").rows


def test_report_25_a_store_of_nothing_but_zeros_is_said_to_be_that(run_cli: RunCli, tmp_path: Path) -> None:
    db = tmp_path / "home" / "state.db"
    db.parent.mkdir()
    db.write_bytes(bytes(95_000))
    Path(f"{db}-wal").touch()
    ran = run_cli("sessions", "recover", "--db", db)
    assert ran.exit_code == 65
    assert f"{db} holds nothing but zeros, and no WAL with content is beside it: there are no rows in it." in ran.stderr
    assert "`hermes-state sessions leftovers` lists the copies beside a store." in ran.stderr
    assert db.read_bytes() == bytes(95_000)


def test_report_100_rows_behind_a_damaged_page_are_found_by_key_and_lost_ones_are_listed(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    rows = {row[0]: row for row in reference_database(db, rows=1500)}
    zero_leaves(db, "messages", 5, seed=8)
    report = recover(db, allow_partial=True)
    after = everything(report.output)
    lost = {said["key"] for said in report.table("messages").lost}
    assert {key for _table, key in after} | lost == set(rows)
    assert [key for (_table, key), row in after.items() if row != rows[key]] == []
    first_lost = min(lost)
    assert sum(key > first_lost for _table, key in after) > 1000


def test_report_102_a_next_step_is_named_whatever_is_damaged(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "home", "0.19.0", grown=4)
    zero_root(db, "messages")
    ran = run_cli("doctor", "--db", db)
    assert ran.exit_code == 65
    found = inspect(db)
    assert {one.next_command for one in found.findings if one.severity.name == "DAMAGE"} == {
        f"hermes-state sessions recover --source {db}"
    }
    made = run_cli("sessions", "recover", "--source", db)
    assert made.exit_code == 0
    assert run_cli("doctor", "--db", f"{db}.recovered.db").exit_code == 0


def test_report_103_advice_names_the_failing_store_and_not_the_default_one(run_cli: RunCli, tmp_path: Path) -> None:
    db = foreign_store(tmp_path / "else where", "0.19.0", grown=4)
    zero_leaves(db, "messages", 1, seed=1)
    said = run_cli("sessions", "recover", "--inspect-only", "--db", db, "--json").json
    commands = {one["next_command"] for one in said["findings"] if one["severity"] == "damage"}
    assert commands == {f"hermes-state sessions recover --source '{db}'"}
