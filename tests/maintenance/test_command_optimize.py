"""`hermes-state sessions optimize` as people run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.space import change, content, grow, thin
from tests.support.stores import StoreCopy

# Each test starts the program, and most of them a holder besides.
pytestmark = pytest.mark.slow

HOLDER = """
import sys, gates
from hermes_state.engine import open_write
with open_write(sys.argv[1], foreign=True) as store:
    store.rows("SELECT count(*) FROM sessions")
    gates.reach("ready")
    gates.wait("go")
"""


def test_a_dry_run_prints_the_plan_and_changes_nothing(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    before = db.read_bytes()
    result = run_cli("sessions", "optimize", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[:2] == [
        f"Optimize {db}",
        "  File 552.0 KiB, of which 0 B are free pages.",
    ]
    assert db.read_bytes() == before


def test_a_run_reports_sizes_merges_and_checks_on_stdout(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    result = run_cli("sessions", "optimize")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1:4] == [
        "Size: 552.0 KiB before, 496.0 KiB after (WAL included).",
        "messages_fts: 13 segments merged into 1.",
        "messages_fts_trigram: 13 segments merged into 1.",
    ]
    assert result.stderr.startswith(f"Optimize {db}\n")


def test_json_has_one_document_and_nothing_else(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    planned = run_cli("sessions", "optimize", "--dry-run", "--json")
    done = run_cli("sessions", "optimize", "--json")
    assert (planned.exit_code, done.exit_code) == (0, 0)
    assert planned.json["dry_run"] is True
    assert planned.json["reclaim"]["runs"] is False
    assert done.json["dry_run"] is False
    assert done.json["path"] == str(db)
    assert done.json["checks_after"]["pages"] == "ok"
    assert set(done.json["seconds"]) == {
        "checks_before", "merge", "reclaim", "checkpoint", "checks_after", "locked",
    }
    assert done.stderr == ""


def test_beside_a_holder_it_is_refused_with_the_process_named_and_nothing_changed(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    holder = child(HOLDER, db)
    holder.wait_for("ready")
    before = db.read_bytes()
    result = run_cli("sessions", "optimize")
    assert result.exit_code == 1
    assert f"PID {holder.pid} (" in result.stderr
    assert db.read_bytes() == before
    assert run_cli("sessions", "optimize", "--dry-run").exit_code == 0


def test_a_refusal_comes_before_the_checks_of_a_large_file(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    child(HOLDER, db).wait_for("ready")
    damage(db)
    # The damage would end the run with 65 if anything had been checked.
    assert run_cli("sessions", "optimize").exit_code == 1


def test_online_merges_beside_a_holder(store_copy: StoreCopy, run_cli: RunCli, child: Children) -> None:
    db = store_copy()
    child(HOLDER, db).wait_for("ready")
    result = run_cli("sessions", "optimize", "--online", "--json")
    assert result.exit_code == 0, result.stderr
    assert result.json["mode"] == "online"
    assert [index["segments_after"] for index in result.json["indexes"]] == [1, 1]
    assert result.json["reclaim"]["reason"] == (
        "the file has no incremental vacuum, so its free pages wait for new rows or for a rewrite with nobody "
        "else on it"
    )


def test_online_returns_pages_in_steps_where_the_file_allows_it(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    grow(db, sessions=6)
    change(db, "PRAGMA journal_mode = DELETE", "PRAGMA auto_vacuum = INCREMENTAL", "VACUUM")
    change(db, "PRAGMA journal_mode = WAL")
    thin(db, keep=1)
    rows, size = content(db), db.stat().st_size
    child(HOLDER, db).wait_for("ready")
    result = run_cli("sessions", "optimize", "--online", "--json")
    assert result.exit_code == 0, result.stderr
    assert result.json["reclaim"]["runs"] is True
    assert result.json["sizes_after"]["free_pages"] == 0
    assert db.stat().st_size < size
    assert content(db) == rows


def test_force_beside_a_holder_only_vacuums_and_warns(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    grow(db, sessions=6)
    thin(db, keep=1)
    rows = content(db)
    child(HOLDER, db).wait_for("ready")
    result = run_cli("sessions", "optimize", "--force", "--json")
    assert result.exit_code == 0, result.stderr
    assert result.json["mode"] == "forced"
    assert [index["skipped"] for index in result.json["indexes"]] == ["other processes have the store open"] * 2
    [warning] = result.json["warnings"]
    assert warning.startswith(f"--force: 1 other process keeps {db} open, so only an in-place VACUUM runs. ")
    assert result.json["sizes_after"]["free_pages"] == 0
    assert content(db) == rows


def test_force_beside_a_holder_plans_and_reports_what_it_does(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    child(HOLDER, db).wait_for("ready")
    plan = [
        f"Rewrite {db} in place",
        "  File 552.0 KiB, of which 0 B are free pages.",
        "  Other processes have it open, so --force runs one VACUUM in place: free pages are returned whatever their "
        "share, and nothing else is done.",
        "  No search index is merged or checked; planner statistics are left as they are.",
        "  Others can read meanwhile; their writes wait for about 1 s, and hermes-agent may report that the database "
        "is locked.",
    ]
    planned = run_cli("sessions", "optimize", "--force", "--dry-run")
    assert (planned.exit_code, planned.stdout.splitlines()) == (0, plan)
    as_json = run_cli("sessions", "optimize", "--force", "--dry-run", "--json").json
    assert (as_json["forced"], as_json["statistics"]) == (True, "left as they are")
    reason = "rewritten in place beside other processes, as asked with --force"
    assert (as_json["reclaim"]["runs"], as_json["reclaim"]["reason"]) == (True, reason)
    done = run_cli("sessions", "optimize", "--force")
    assert (done.exit_code, done.stderr.splitlines()[: len(plan)]) == (0, plan)
    lines = done.stdout.splitlines()
    assert re.fullmatch(rf"Rewrote {re.escape(str(db))} in place in \d\.\d s, and did nothing else\.", lines[0])
    assert lines[2:5] == [
        "messages_fts: not merged, because other processes have the store open.",
        "messages_fts_trigram: not merged, because other processes have the store open.",
        f"Free pages: none; {reason}.",
    ]


def test_force_cannot_be_combined_with_returning_no_pages(store_copy: StoreCopy, run_cli: RunCli) -> None:
    store_copy()
    refused = run_cli("sessions", "optimize", "--force", "--reclaim", "never", "--json")
    assert (refused.exit_code, refused.json_error["error"]["message"]) == (
        2, "--force only returns free pages beside holders, so it cannot be combined with --reclaim never."
    )


def test_force_without_holders_is_an_ordinary_run(store_copy: StoreCopy, run_cli: RunCli) -> None:
    store_copy()
    result = run_cli("sessions", "optimize", "--force", "--json")
    assert (result.exit_code, result.json["mode"]) == (0, "exclusive")


def test_online_cannot_be_combined_with_what_rewrites_the_file(store_copy: StoreCopy, run_cli: RunCli) -> None:
    store_copy()
    result = run_cli("sessions", "optimize", "--online", "--via-copy")
    assert result.exit_code == 2
    assert "Error: --online never rewrites the file" in result.stderr


def test_a_damaged_store_is_refused_with_65(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    damage(db)
    result = run_cli("sessions", "optimize")
    assert result.exit_code == 65
    assert f"hermes-state doctor --db {db}" in result.stderr


def damage(db: Path) -> None:
    with db.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096 * 3)
