"""Reports 16, 19, 29, 38, 40, 102, 103: repairs run alone, once, on a copy, and there is always a next command."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.engine.private import open_private
from hermes_state.testing import corruption
from lockowners.process import read_process
from maintenance.gate.advice import printable
from maintenance.repair import repair
from tests.maintenance.damage import change, examined, only
from tests.maintenance.repair.damages import damaged_folders, problems
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

WRITERS = """
    import sys, gates
    from hermes_state.engine import open_write
    stores = [open_write(sys.argv[1], foreign=True) for _ in range(5)]
    gates.reach("open")
    gates.wait("end")
"""


def holder_command(pid: int) -> str:
    process = read_process(Path("/proc"), pid)
    assert process is not None
    return process.command


READER = """
    import sys, gates
    from hermes_state.engine import open_read
    with open_read(sys.argv[1]) as store:
        gates.reach("open")
        gates.wait("end")
"""


# --- 19: five live connections were warned about, and only those that write matter -------------------------------


def test_the_census_counts_who_can_write_apart_from_who_only_reads(store_copy: StoreCopy, child: Children) -> None:
    path = store_copy("0.17.0")
    writer, reader = child(WRITERS, path), child(READER, path)
    writer.wait_for("open")
    reader.wait_for("open")
    census = only(examined(path, quick=True), "holder_census")
    assert census.facts["writable"] == [writer.pid]
    assert census.facts["read_only"] == [reader.pid]
    assert census.sentence.startswith("1 process has the store open for writing, 1 only for reading; ")
    versions = {one.facts["sqlite_version"] for one in examined(path, quick=True).findings if one.code == "holder"}
    assert versions == {"3.54.1"}


# --- 16, 38: no repair beside a holder; who it is, is said every time --------------------------------------------


def test_a_holder_that_never_ends_is_named_each_time_and_is_no_attempt(
    store_copy: StoreCopy, child: Children, run_cli: RunCli
) -> None:
    path = store_copy("0.17.0")
    corruption.damage_fts(path, "blocks", 1)
    holder = child(WRITERS, path)
    holder.wait_for("open")
    before = path.read_bytes()
    for _time in range(4):
        refused = run_cli("sessions", "repair", "--yes")
        assert (refused.exit_code, f"PID {holder.pid} (" in refused.stderr) == (1, True)
        assert "Beside them `hermes-state sessions repair --check-only` says what is damaged" in refused.stderr
    (said,) = [one for one in examined(path).findings if one.facts.get("kept_waiting_by") == [holder.pid]]
    assert said.sentence.partition("It cannot be repaired while ")[2] == (
        f"others have the store open: PID {holder.pid} ({printable(holder_command(holder.pid))}): stop that program. "
        "Until then every conversation can be read (`hermes-state sessions show`, `hermes-state sessions export`), and "
        "what is stored stays as it is. Messages may fail to be stored while this index is damaged, so do not leave "
        "the others running."
    )
    assert (path.read_bytes(), damaged_folders(path)) == (before, [])
    holder.kill()
    done = run_cli("sessions", "repair", "--yes", "--json")
    assert (done.exit_code, done.json["attempts"]) == (0, 1)


# --- 29: an edit of the schema that nobody notices ---------------------------------------------------------------


def test_after_a_repair_of_the_schema_every_connection_has_to_read_it_again(store_copy: StoreCopy) -> None:
    path = store_copy("0.17.0")
    with open_private(path) as private:
        before = private.row("PRAGMA schema_version")
    corruption.duplicate_schema_row(path, "messages")
    assert repair(path).outcome == "repaired"
    with open_private(path) as private:
        assert private.row("PRAGMA schema_version") != before


# --- 40: every update finds the same damage and leaves it --------------------------------------------------------


def test_the_second_run_finds_nothing_and_keeps_nothing_more(store_copy: StoreCopy, run_cli: RunCli) -> None:
    path = store_copy("0.17.0")
    corruption.damage_fts(path, "pages", 1)
    assert run_cli("sessions", "repair", "--yes").exit_code == 0
    kept = damaged_folders(path)
    again = run_cli("sessions", "repair", "--yes", "--json")
    assert (again.exit_code, again.json["outcome"], damaged_folders(path)) == (0, "sound", kept)
    assert (len(kept), problems(path)) == (1, [])


# --- 102, 103: a next command always, with the path of the store that failed -------------------------------------


def test_advice_names_the_store_of_the_profile_that_failed_and_not_the_default_one(
    store_copy: StoreCopy, tmp_path: Path, run_cli: RunCli
) -> None:
    default = store_copy("0.17.0")
    failing = default.parent / "profiles" / "work" / "state.db"
    failing.parent.mkdir(parents=True)
    failing.write_bytes(default.read_bytes())
    corruption.zero_root(failing, "messages")
    said = run_cli("doctor", "--json", "--home", default.parent, "--profile", "work")
    assert said.exit_code == 65
    assert said.json["next_command"] == f"hermes-state sessions recover --source {failing}"
    refused = run_cli("sessions", "repair", "--yes", "--home", default.parent, "--profile", "work")
    assert (refused.exit_code, f"--source {failing}`" in refused.stderr) == (65, True)
    assert examined(default).exit_code == 0


def test_damage_that_came_back_too_often_is_sent_to_recovery(store_copy: StoreCopy, run_cli: RunCli) -> None:
    path = store_copy("0.17.0")
    change(path, "DELETE FROM messages_fts_data WHERE id = 10")
    record = path.with_name("state.db.hermes-state.repairs.json")
    tried = {
        "began_at": "2026-01-01T00:00:00Z", "pid": 1, "result": "failed", "ended_at": "2026-01-01T00:00:01Z", "why": "",
    }
    record.write_text(
        '{"format": 1, "damages": [{"fingerprint": "f", "objects": ["messages_fts"], "kept": null, "attempts": '
        + str([tried] * 3).replace("'", '"') + "}]}"
    )
    said = run_cli("doctor", "--json")
    assert said.json["next_command"] == f"hermes-state sessions recover --source {path}"
    assert "repair_given_up" in {finding["code"] for finding in said.json["findings"]}
