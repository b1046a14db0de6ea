"""Archive, pin, rename and their kind on native stores: columns of the store, no file beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.maintenance.native_stores import NOW, add_session, new_store, rows, value

# Every test runs the program in a process of its own, some several times.
pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]


@pytest.fixture
def db(tmp_path: Path, fake_clock: Any) -> Path:
    db = new_store(tmp_path)
    add_session(db, "root", state="replaced", columns={"title": "Old name"})
    add_session(db, "tip", parent="root", relation="continuation")
    add_session(db, "other", columns={"title": "Taken"})
    return db


@pytest.mark.parametrize(
    ("verb", "undo", "column"), [("pin", ("unpin",), "pinned_at"), ("archive", ("archive", "--undo"), "archived_at")]
)
def test_a_flag_is_a_column_of_every_part_and_is_taken_back(
    run_cli: RunCli, db: Path, verb: str, undo: tuple[str, ...], column: str
) -> None:
    done = json.loads(run_cli("sessions", verb, "tip", "--json", "--db", str(db)).stdout)
    assert (done["stored_in"], done["session_count"]) == ("column", 2)
    flags = rows(db, f"SELECT id FROM sessions WHERE {column} BETWEEN {NOW} - 1 AND {NOW} + 60 ORDER BY no")
    assert flags == [("root",), ("tip",)]
    assert rows(db, "SELECT table_name, key, operation FROM changes ORDER BY id") == [
        ("sessions", "root", "update"), ("sessions", "tip", "update"),
    ]
    again = json.loads(run_cli("sessions", verb, "tip", "--json", "--db", str(db)).stdout)
    assert (again["already_done"], value(db, "SELECT count(*) FROM changes")) == (True, 2)
    assert run_cli("sessions", *undo, "tip", "--db", str(db)).exit_code == 0
    assert value(db, f"SELECT count({column}) FROM sessions") == 0
    assert not db.with_name("state.db.hermes-state.json").exists()


def test_a_pinned_conversation_is_kept_by_prune(run_cli: RunCli, db: Path) -> None:
    run_cli("sessions", "pin", "tip", "--db", str(db))
    done = run_cli("sessions", "prune", "--yes", "--allow-large", "--json", "--db", str(db))
    document = json.loads(done.stdout)
    assert document["sessions"] == ["other"]
    assert [one["reason"] for one in document["kept"]] == ["it is pinned"]


def test_archive_by_filters_hides_what_was_idle(run_cli: RunCli, db: Path) -> None:
    add_session(db, "idle", state="open", days_old=30)
    done = run_cli("sessions", "archive", "--open", "--older-than", "14d", "--yes", "--json", "--db", str(db))
    assert json.loads(done.stdout)["sessions"] == ["idle"]
    assert value(db, "SELECT auto_archived FROM sessions WHERE id = 'idle'") == 0


def test_the_tip_takes_a_title_over_and_a_taken_one_is_refused(run_cli: RunCli, db: Path) -> None:
    assert run_cli("sessions", "rename", "tip", "Old", "name", "--db", str(db)).exit_code == 0
    assert rows(db, "SELECT id, title, title_source FROM sessions WHERE title = 'Old name'") == [
        ("tip", "Old name", "user")
    ]
    refused = run_cli("sessions", "rename", "tip", "Taken", "--db", str(db))
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"Error: The title 'Taken' belongs to session other in {db}.")


def test_optimize_storage_says_that_a_native_store_has_nothing_to_convert(run_cli: RunCli, db: Path) -> None:
    refused = run_cli("sessions", "optimize-storage", "--db", str(db))
    assert refused.exit_code == 1
    assert refused.stderr.startswith(
        f"Error: {db} is a native store: its search index is a file of its own, and there is no layout to convert."
    )
