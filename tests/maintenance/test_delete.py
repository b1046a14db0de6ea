"""`sessions delete`: exactly what was named, with what belongs to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from tests.maintenance.removal_stores import (
    NOW,
    add_session,
    change,
    empty_store,
    ids,
    ledger_lines,
    message_owners,
    problems,
    rows,
)
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


@pytest.fixture
def db(store_copy: StoreCopy, fake_clock: FakeClock) -> Path:
    return empty_store(store_copy("0.19.0"))


def test_delete_takes_the_named_session_with_its_delegates_and_leaves_its_branch(db: Path, run_cli: RunCli) -> None:
    add_session(db, "alpha-1", end_reason="branched")
    add_session(db, "helper", parent="alpha-1", delegate_of="alpha-1", source="subagent")
    add_session(db, "branch", parent="alpha-1", branched_from="alpha-1", days_old=1)
    add_session(db, "beta")
    plan = run_cli("sessions", "delete", "alpha", "--dry-run")
    assert plan.exit_code == 0
    assert plan.stdout.splitlines()[0] == f"Delete 2 sessions from {db}"
    assert "    with helper (delegate)" in plan.stdout.splitlines()
    done = run_cli("sessions", "delete", "alpha", "--yes")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"Deleted 2 sessions and 4 messages from {db}.",
        "Kept 1 session that came from them; the link to the parent is cleared.",
    ]
    assert ids(db) == {"branch", "beta"}
    assert message_owners(db) == {"branch", "beta"}
    assert rows(db, "SELECT parent_session_id FROM sessions WHERE id = 'branch'") == [(None,)]
    assert problems(db) == []


def test_naming_one_part_of_a_compressed_conversation_deletes_all_parts(db: Path, run_cli: RunCli) -> None:
    add_session(db, "first", end_reason="compression")
    add_session(db, "second", parent="first", ended=False)
    add_session(db, "other")
    done = run_cli("sessions", "delete", "first", "--yes", "--json")
    assert set(done.json["sessions"]) == {"first", "second"}
    assert ids(db) == {"other"}


def test_beginning_that_fits_several_sessions_is_refused_and_nothing_goes(db: Path, run_cli: RunCli) -> None:
    for name in ("same-1", "same-2", "else"):
        add_session(db, name)
    refused = run_cli("sessions", "delete", "else", "same", "--yes", "--json")
    assert refused.exit_code == 2
    assert refused.json_error["error"]["message"] == "'same' is the start of several session ids: same-1, same-2."
    assert ids(db) == {"same-1", "same-2", "else"}


def test_unknown_session_is_not_found(db: Path, run_cli: RunCli) -> None:
    add_session(db, "one")
    refused = run_cli("sessions", "delete", "two", "--yes", "--json")
    assert (refused.exit_code, refused.json_error["error"]["code"]) == (1, "not_found")


def test_a_repeat_is_already_done_and_takes_no_longer_id_for_the_one_that_is_gone(db: Path, run_cli: RunCli) -> None:
    for key in ("job-1", "job-12", "other"):
        add_session(db, key)
    assert run_cli("sessions", "delete", "job-1", "--yes").exit_code == 0
    repeat = run_cli("sessions", "delete", "job-1", "--yes")
    at = ledger_lines(db)[0]["at"]
    assert (repeat.exit_code, repeat.stderr) == (0, "")
    assert repeat.stdout == f"Already done: job-1 was deleted, as the ledger says at {at}.\n"
    as_json = run_cli("sessions", "delete", "job-1", "--yes", "--json")
    assert (as_json.exit_code, as_json.stderr) == (0, "")
    assert (as_json.json["already_done"], as_json.json["session_count"]) == (True, 0)
    assert run_cli("sessions", "delete", "job-1", "--dry-run", "--json").json["session_count"] == 0
    assert ids(db) == {"job-12", "other"}
    mixed = run_cli("sessions", "delete", "job-1", "other", "--yes")
    assert (mixed.exit_code, mixed.stdout) == (0, f"Deleted 1 session and 2 messages from {db}.\n")
    assert mixed.stderr.startswith("Already done: job-1 was deleted, as the ledger says at ")
    assert ids(db) == {"job-12"}
    assert run_cli("sessions", "delete", "oth", "--yes").stdout.startswith("Already done: other was deleted, ")
    refused = run_cli("sessions", "delete", "nothing", "--yes", "--json")
    assert (refused.exit_code, refused.json_error["error"]["code"]) == (1, "not_found")


def test_title_does_not_name_a_session_to_delete(db: Path, run_cli: RunCli) -> None:
    add_session(db, "one")
    change(db, "UPDATE sessions SET title = 'plan' WHERE id = 'one'")
    assert run_cli("sessions", "delete", "plan", "--yes").exit_code == 1
    assert ids(db) == {"one"}


def test_guarded_session_stops_the_whole_request(db: Path, run_cli: RunCli) -> None:
    for name in ("busy", "idle"):
        add_session(db, name)
    change(
        db,
        (
            "INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at) VALUES ('busy', 'h', ?, ?)",
            (NOW, NOW + 300),
        ),
    )
    refused = run_cli("sessions", "delete", "idle", "busy", "--yes", "--json")
    assert refused.exit_code == 1
    assert refused.json_error["error"]["code"] == "session_guarded"
    assert refused.json_error["error"]["message"] == (
        "Session busy cannot be deleted now: it is being compressed (lock of h). Nothing was deleted."
    )
    assert ids(db) == {"busy", "idle"}
    looked = run_cli("sessions", "delete", "idle", "busy", "--dry-run", "--json")
    assert (looked.exit_code, [one["id"] for one in looked.json["conversations"]]) == (0, ["idle"])
    assert looked.json["kept"] == [
        {"id": "busy", "because_of": "busy", "reason": "it is being compressed (lock of h)"}
    ]
    assert ledger_lines(db) == []


def test_expired_lock_protects_nothing(db: Path, run_cli: RunCli) -> None:
    add_session(db, "was-busy")
    add_session(db, "other")
    change(
        db,
        (
            "INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at)"
            " VALUES ('was-busy', 'h', ?, ?)",
            (NOW - 600, NOW - 300),
        ),
    )
    done = run_cli("sessions", "delete", "was-busy", "--yes", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["other_rows"] == {"compression_locks": 1}


def test_pinned_session_can_be_deleted_by_its_own_name_and_the_plan_says_so(db: Path, run_cli: RunCli) -> None:
    add_session(db, "kept")
    add_session(db, "other")
    run_cli("sessions", "pin", "kept")
    plan = run_cli("sessions", "delete", "kept", "--dry-run")
    assert any(line.startswith("  kept  ") and line.endswith("(pinned)") for line in plan.stdout.splitlines())
    assert run_cli("sessions", "delete", "kept", "--yes").exit_code == 0
    assert ids(db) == {"other"}


def test_delete_of_half_the_store_by_name_needs_no_second_answer(db: Path, run_cli: RunCli) -> None:
    for name in ("one", "two"):
        add_session(db, name)
    assert run_cli("sessions", "delete", "one", "two", "--yes").exit_code == 0
    assert ids(db) == set()


def test_ledger_says_that_the_session_was_named(db: Path, run_cli: RunCli) -> None:
    add_session(db, "one", messages=3)
    run_cli("sessions", "delete", "one", "--yes")
    first, last = ledger_lines(db)
    assert (first["verb"], first["reason"]) == ("sessions delete", "named on the command line")
    assert (first["sessions"], first["message_count"], first["filters"]) == (["one"], 3, {})
    assert last["reason"] == "finished: 1 session, 3 messages"


def test_session_whose_id_no_file_can_carry_is_deleted_without_touching_files(db: Path, run_cli: RunCli) -> None:
    add_session(db, "../outside")
    (db.parent / "sessions").mkdir()
    outside = db.parent / "outside.json"
    outside.write_text("{}", encoding="utf-8")
    done = run_cli("sessions", "delete", "../outside", "--yes", "--json")
    assert done.exit_code == 0, done.stderr
    assert outside.exists()
