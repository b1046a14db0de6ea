"""`hermes-state sessions optimize-storage` as people run it."""

from __future__ import annotations

import pytest

from tests.support.children import Children
from tests.support.cli import RunCli
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


def test_a_dry_run_says_before_and_after_and_changes_nothing(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy()
    before = db.read_bytes()
    result = run_cli("sessions", "optimize-storage", "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == f"Convert the search indexes of {db}"
    assert lines[1] == "  File 552.0 KiB; search takes 336.0 KiB (61 %)."
    assert lines[3].startswith("  In use afterwards: about ")
    assert db.read_bytes() == before


def test_a_run_converts_and_a_repeat_is_already_done(store_copy: StoreCopy, run_cli: RunCli) -> None:
    store_copy()
    first = run_cli("sessions", "optimize-storage", "--json")
    second = run_cli("sessions", "optimize-storage", "--json")
    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr
    assert first.json["already_done"] is False
    assert first.json["state_after"]["storage_version"] == 3
    assert first.json["sizes_after"]["file_bytes"] < 0.65 * first.json["sizes_before"]["file_bytes"]
    assert first.json["indexed_rows"]["messages_fts"] == 72
    assert second.json["already_done"] is True
    assert second.json["state_after"] == first.json["state_after"]


def test_the_report_says_that_it_was_not_run_against_newer_releases(store_copy: StoreCopy, run_cli: RunCli) -> None:
    store_copy()
    result = run_cli("sessions", "optimize-storage")
    assert result.exit_code == 0, result.stderr
    assert (
        "The layout is the one that hermes-agent's newer releases define (storage version 3); it was not run against a "
        "release newer than 0.19.0." in result.stdout
    )


def test_an_older_schema_is_refused(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy("0.16.0")
    result = run_cli("sessions", "optimize-storage")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == (
        f"Error: {db} has schema version 14; the smaller search layout needs 16 or later."
    )
    assert result.stderr.splitlines()[-1] == (
        "Try: Open it once with hermes-agent 0.17.0 or a later release, then run this again."
    )


def test_beside_a_holder_it_is_refused(store_copy: StoreCopy, run_cli: RunCli, child: Children) -> None:
    db = store_copy()
    holder = child(HOLDER, db)
    holder.wait_for("ready")
    before = db.read_bytes()
    result = run_cli("sessions", "optimize-storage")
    assert result.exit_code == 1
    assert f"PID {holder.pid} (" in result.stderr
    assert db.read_bytes() == before


def test_what_is_done_already_needs_no_lock(store_copy: StoreCopy, run_cli: RunCli, child: Children) -> None:
    db = store_copy()
    assert run_cli("sessions", "optimize-storage").exit_code == 0
    child(HOLDER, db).wait_for("ready")
    result = run_cli("sessions", "optimize-storage")
    assert (result.exit_code, result.stdout) == (
        0, f"Nothing to do: {db} has the smaller search layout already.\n",
    )


def test_force_beside_a_holder_only_vacuums(store_copy: StoreCopy, run_cli: RunCli, child: Children) -> None:
    db = store_copy()
    child(HOLDER, db).wait_for("ready")
    planned = run_cli("sessions", "optimize-storage", "--force", "--dry-run")
    assert planned.stdout.startswith(f"Rewrite {db} in place\n")
    result = run_cli("sessions", "optimize-storage", "--force", "--trigram", "off", "--json")
    assert result.exit_code == 0, result.stderr
    assert (result.json["mode"], result.json["warnings"][-1]) == ("forced", "Nothing was converted.")
    assert run_cli("sessions", "optimize-storage", "--dry-run", "--json").json["state"]["layout"] == "inline"


def test_switching_the_trigram_index_off_asks_and_is_refused_without_a_terminal(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    db = store_copy()
    before = db.read_bytes()
    result = run_cli("sessions", "optimize-storage", "--trigram", "off")
    assert result.exit_code == 1
    assert (
        "  The trigram index is off: hermes-agent will find no CJK text and no parts of words. "
        "--trigram on brings it back." in result.stderr.splitlines()
    )
    assert "Error: This needs an answer, and there is no terminal to ask on." in result.stderr
    as_json = run_cli("sessions", "optimize-storage", "--trigram", "off", "--json")
    assert (as_json.exit_code, as_json.stdout) == (1, "")
    assert as_json.json_error["error"]["message"] == "This needs an answer, and there is no terminal to ask on."
    assert db.read_bytes() == before


def test_with_yes_the_trigram_index_goes_off_and_on_again(store_copy: StoreCopy, run_cli: RunCli) -> None:
    store_copy()
    off = run_cli("sessions", "optimize-storage", "--trigram", "off", "--yes", "--json")
    on = run_cli("sessions", "optimize-storage", "--trigram", "on", "--json")
    assert (off.exit_code, on.exit_code) == (0, 0), off.stderr + on.stderr
    assert (off.json["state_after"]["trigram"], on.json["state_after"]["trigram"]) == (False, True)
    assert on.json["indexed_rows"]["messages_fts_trigram"] > 0
