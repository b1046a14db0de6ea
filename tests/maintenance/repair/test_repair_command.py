"""`hermes-state sessions repair`: plan, question, result, exit statuses, JSON; and the index file of a native store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hermes_state.engine.private import open_private
from hermes_state.store import open_store
from hermes_state.testing import corruption
from maintenance.repair import repair
from tests.maintenance.damage import leaves, overwrite_page
from tests.maintenance.native_stores import add_session, new_store
from tests.maintenance.repair.damages import damaged_folders, problems, schema
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


def test_a_plan_is_printed_before_anything_is_changed_and_a_repair_says_what_it_did(
    store_copy: StoreCopy, run_cli: RunCli
) -> None:
    path = store_copy("0.17.0")
    corruption.zero_root(path, "idx_sessions_source")
    before = path.read_bytes()
    checked = run_cli("sessions", "repair", "--check-only")
    assert (checked.exit_code, checked.stdout.splitlines()[-1]) == (
        3, f"Next: hermes-state sessions repair --db {path}"
    )
    planned = run_cli("sessions", "repair", "--dry-run")
    assert (planned.exit_code, planned.stdout.splitlines()[0]) == (0, f"Repair {path}")
    assert "  Build again: idx_sessions_source (index)." in planned.stdout.splitlines()
    refused = run_cli("sessions", "repair")
    assert (refused.exit_code, "This needs an answer" in refused.stderr) == (1, True)
    assert (path.read_bytes(), damaged_folders(path)) == (before, [])
    done = run_cli("sessions", "repair", "--yes")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        f"Repaired {path}.", "  idx_sessions_source: made anew (index).", "  use of pages: file written anew (rebuild)."
    ]
    assert lines[3].endswith(" are the same as before.") and lines[4].startswith("  Kept the damaged store as ")
    assert run_cli("sessions", "repair", "--yes").stdout == (
        f"{path} needs no repair: pages, indexes, search indexes and schema are sound.\n"
    )


def test_the_json_document_says_what_was_done(store_copy: StoreCopy, run_cli: RunCli) -> None:
    path = store_copy("0.17.0")
    corruption.damage_fts(path, "blocks", 1)
    document = run_cli("sessions", "repair", "--yes", "--json").json
    assert (document["outcome"], document["attempts"], document["dry_run"]) == ("repaired", 1, False)
    assert document["steps"] == [{"kind": "search index", "object": "messages_fts", "how": "rebuilt in place"}]
    assert document["rows"]["messages"] == 182
    assert Path(document["kept"]).name in damaged_folders(path)


def test_damage_of_rows_exits_65_with_the_command_that_helps(store_copy: StoreCopy, run_cli: RunCli) -> None:
    path = store_copy("0.17.0")
    overwrite_page(path, leaves(path, "messages")[-1])
    for options in ([], ["--check-only"], ["--dry-run"], ["--yes"]):
        done = run_cli("sessions", "repair", *options)
        assert done.exit_code == 65
        assert f"hermes-state sessions recover --source {path}" in done.stderr


def test_check_only_and_dry_run_together_are_a_wrong_call(store_copy: StoreCopy, run_cli: RunCli) -> None:
    store_copy("0.17.0")
    done = run_cli("sessions", "repair", "--check-only", "--dry-run")
    assert done.exit_code == 2
    assert "--check-only and --dry-run both change nothing: give only one of them." in done.stderr


def checkpointed(*paths: Path) -> None:
    """Bring WALs into their files, in a process of its own."""
    program = (
        "import apsw, sys\nfor path in sys.argv[1:]:\n    c = apsw.Connection(path)\n"
        "    c.execute('PRAGMA wal_checkpoint(truncate)').fetchall()\n    c.close()\n"
    )
    subprocess.run([sys.executable, "-c", program, *map(str, paths)], check=True)


@pytest.fixture
def native(tmp_path: Path) -> Path:
    path = new_store(tmp_path)
    for number in range(8):
        add_session(path, f"session {number}", messages=20)
    with open_store(path=path) as store:
        store.search.catch_up(5.0)
    checkpointed(path, path.with_name("search.db"))
    return path


def test_the_damaged_index_file_of_a_native_store_is_made_anew(native: Path) -> None:
    index = native.with_name("search.db")
    with index.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(bytes(4 * 4096))
    assert problems(native)
    report = repair(native)
    assert [(step.kind, step.object, step.how) for step in report.steps] == [("search index", "search.db", "made anew")]
    assert (problems(native), damaged_folders(native)) == ([], [])
    with open_store(path=native, read_only=True) as store:
        assert store.search("lighthouse")


@pytest.mark.parametrize("what", ["index", "trigger", "pointer map", "missing index"])
def test_indexes_schema_and_pointer_map_of_a_native_store_are_repaired(native: Path, what: str) -> None:
    if what == "index":
        corruption.zero_root(native, "messages_session")
    elif what == "trigger":
        schema(native, "UPDATE sqlite_schema SET sql = '((' WHERE name = 'messages_are_immutable'")
    elif what == "missing index":
        schema(native, "DROP INDEX messages_session")
    else:
        with native.open("r+b") as file:
            file.seek(4096 + 50)
            file.write(bytes([9] * 60))
    before = incarnation(native)
    report = repair(native)
    assert (report.outcome, problems(native)) == ("repaired", [])
    assert incarnation(native) != before
    with open_store(path=native) as store:
        assert store.search("lighthouse")


def incarnation(path: Path) -> object:
    with open_private(path, search_modules=False, tolerant=True) as private:
        return private.row("SELECT incarnation FROM store")
