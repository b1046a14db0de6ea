"""`sessions archive | pin | unpin | rename`: one fact about a conversation, set and taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from tests.maintenance.removal_stores import add_session, change, empty_store, ids, rows
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

HOLDER = """
import sys, gates
from hermes_state.engine import open_read
with open_read(sys.argv[1]) as store:
    store.rows("SELECT count(*) FROM sessions")
    gates.reach("ready")
    gates.wait("go")
"""


@pytest.fixture
def db(store_copy: StoreCopy, fake_clock: FakeClock) -> Path:
    return empty_store(store_copy("0.19.0"))


def marks(db: Path) -> dict[str, dict[str, bool]]:
    path = db.with_name(f"{db.name}.hermes-state.json")
    return json.loads(path.read_text(encoding="utf-8"))["sessions"] if path.exists() else {}


def archived(db: Path) -> set[str]:
    return {row[0] for row in rows(db, "SELECT id FROM sessions WHERE archived = 1")}


# --- archive --------------------------------------------------------------------------------------------------


def test_archive_covers_all_parts_of_a_conversation_and_undo_takes_it_back(db: Path, run_cli: RunCli) -> None:
    add_session(db, "first", end_reason="compression")
    add_session(db, "second", parent="first")
    add_session(db, "other")
    done = run_cli("sessions", "archive", "second")
    assert (done.exit_code, done.stdout) == (0, "Archived 2 sessions in the store.\n")
    assert archived(db) == {"first", "second"}
    again = run_cli("sessions", "archive", "first")
    assert (again.exit_code, again.stdout) == (0, "Already done: 1 conversation is archived.\n")
    undone = run_cli("sessions", "archive", "--undo", "first", "--json")
    assert undone.json["session_count"] == 2
    assert archived(db) == set()


def test_archive_without_ids_and_filters_is_refused(db: Path, run_cli: RunCli) -> None:
    add_session(db, "one")
    refused = run_cli("sessions", "archive", "--yes", "--json")
    assert refused.exit_code == 2
    assert refused.json_error["error"]["message"] == (
        "Name sessions by id, or give at least one filter that leaves something out."
    )
    assert run_cli("sessions", "archive", "--min-messages", "0", "--yes").exit_code == 2
    assert archived(db) == set()


def test_archive_by_filters_asks_and_dry_run_only_lists(db: Path, run_cli: RunCli) -> None:
    add_session(db, "cron-1", source="cron")
    add_session(db, "cli-1")
    plan = run_cli("sessions", "archive", "--source", "cron", "--dry-run")
    assert plan.stdout.splitlines()[0] == f"Archive 1 conversation in {db}"
    assert plan.stdout.splitlines()[1].startswith("  cron-1  cron  ")
    assert run_cli("sessions", "archive", "--source", "cron").exit_code == 1
    assert archived(db) == set()
    assert run_cli("sessions", "archive", "--source", "cron", "--yes").exit_code == 0
    assert archived(db) == {"cron-1"}
    back = run_cli("sessions", "archive", "--undo", "--source", "cron", "--yes", "--json")
    assert back.json["sessions"] == ["cron-1"]
    assert archived(db) == set()


def test_archive_in_a_file_without_the_column_is_a_mark_that_every_listing_respects(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli
) -> None:
    db = empty_store(store_copy("0.13.0"))
    add_session(db, "one")
    add_session(db, "two")
    schema = rows(db, "SELECT sql FROM sqlite_schema ORDER BY name")
    done = run_cli("sessions", "archive", "one")
    assert done.stdout == (
        "Archived 1 session in state.db.hermes-state.json, because this file has no column for it.\n"
    )
    assert marks(db) == {"one": {"archived": True}}
    assert rows(db, "SELECT sql FROM sqlite_schema ORDER BY name") == schema
    shown = run_cli("sessions", "list", "--json").json["sessions"]
    assert [entry["id"] for entry in shown] == ["two"]
    pruned = run_cli("sessions", "prune", "--yes", "--json")
    assert pruned.json["sessions"] == ["two"]
    assert run_cli("sessions", "archive", "--undo", "one", "--json").json["session_count"] == 1
    assert marks(db) == {}


def test_archive_works_beside_a_holder_without_any_option(db: Path, run_cli: RunCli, child: Children) -> None:
    add_session(db, "one")
    holder = child(HOLDER, db)
    holder.wait_for("ready")
    assert run_cli("sessions", "archive", "one").exit_code == 0
    assert archived(db) == {"one"}
    holder.release("go")


# --- pin and unpin --------------------------------------------------------------------------------------------


def test_pin_covers_the_conversation_and_is_idempotent(db: Path, run_cli: RunCli) -> None:
    add_session(db, "first", end_reason="compression")
    add_session(db, "second", parent="first")
    done = run_cli("sessions", "pin", "first", "--json")
    assert (done.json["session_count"], done.json["stored_in"], done.json["already_done"]) == (2, "marks", False)
    assert marks(db) == {"first": {"pinned": True}, "second": {"pinned": True}}
    again = run_cli("sessions", "pin", "second", "--json")
    assert (again.exit_code, again.json["session_count"], again.json["already_done"]) == (0, 0, True)
    assert run_cli("sessions", "unpin", "second").exit_code == 0
    assert marks(db) == {}
    assert run_cli("sessions", "unpin", "second").stdout == "Already done: 1 conversation is not pinned.\n"


def test_pin_uses_the_column_of_a_file_that_has_one(db: Path, run_cli: RunCli) -> None:
    change(db, "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")
    add_session(db, "one")
    assert run_cli("sessions", "pin", "one", "--json").json["stored_in"] == "column"
    assert rows(db, "SELECT pinned FROM sessions") == [(1,)]
    assert marks(db) == {}
    run_cli("sessions", "unpin", "one")
    assert rows(db, "SELECT pinned FROM sessions") == [(0,)]


def test_pin_of_an_unknown_session_is_not_found_and_pins_nothing(db: Path, run_cli: RunCli) -> None:
    add_session(db, "one")
    assert run_cli("sessions", "pin", "one", "two").exit_code == 1
    assert marks(db) == {}


# --- rename ---------------------------------------------------------------------------------------------------


def test_rename_gives_the_last_part_of_the_conversation_the_title(db: Path, run_cli: RunCli) -> None:
    add_session(db, "first", end_reason="compression")
    add_session(db, "second", parent="first")
    change(db, "UPDATE sessions SET title = 'Release plan' WHERE id = 'first'")
    done = run_cli("sessions", "rename", "first", "Release", "plan")
    assert (done.exit_code, done.stdout) == (0, "Renamed second from no title to 'Release plan'.\n")
    assert rows(db, "SELECT id, title FROM sessions ORDER BY id") == [("first", None), ("second", "Release plan")]
    again = run_cli("sessions", "rename", "first", "Release plan", "--json")
    assert (again.exit_code, again.json["already_done"]) == (0, True)


def test_rename_to_a_title_of_another_conversation_is_refused_and_names_it(db: Path, run_cli: RunCli) -> None:
    add_session(db, "one")
    add_session(db, "two")
    change(db, "UPDATE sessions SET title = 'taken' WHERE id = 'one'")
    refused = run_cli("sessions", "rename", "two", "taken", "--json")
    assert refused.exit_code == 2
    assert refused.json_error["error"]["message"] == "The title 'taken' already belongs to session one."
    assert rows(db, "SELECT title FROM sessions WHERE id = 'two'") == [(None,)]


def test_rename_dry_run_changes_nothing_and_an_invisible_title_is_refused(db: Path, run_cli: RunCli) -> None:
    add_session(db, "one")
    planned = run_cli("sessions", "rename", "one", "new", "--dry-run")
    assert planned.stdout == "Would rename one from no title to 'new'.\n"
    refused = run_cli("sessions", "rename", "one", "\u200b", "--json")
    assert refused.exit_code == 2
    assert refused.json_error["error"]["message"] == "The title has no visible character."
    assert rows(db, "SELECT title FROM sessions") == [(None,)]
    assert ids(db) == {"one"}
