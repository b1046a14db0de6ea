"""`sessions prune` as people run it, on real hermes-agent files."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from functools import partial
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock, clock_from_environment
from hermes_state.engine import open_read
from maintenance.removal import flow
from maintenance.removal.choice import choose_for_prune
from maintenance.selection import Filters
from tests.maintenance.removal_stores import (
    DAY,
    NOW,
    add_session,
    change,
    context,
    empty_store,
    ids,
    ledger_lines,
    message_owners,
    problems,
    rows,
)
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy, versions

pytestmark = pytest.mark.slow


@pytest.fixture
def db(store_copy: StoreCopy, fake_clock: FakeClock) -> Path:
    """An empty 0.19.0 store, and a clock that every process of the test shares."""
    return empty_store(store_copy("0.19.0"))


# --- what goes and what stays ---------------------------------------------------------------------------------


def test_bare_prune_takes_ended_sessions_older_than_ninety_days_and_nothing_else(db: Path, run_cli: RunCli) -> None:
    add_session(db, "old")
    add_session(db, "young", days_old=80)
    add_session(db, "open", ended=False)
    add_session(db, "archived")
    change(db, "UPDATE sessions SET archived = 1 WHERE id = 'archived'")
    done = run_cli("sessions", "prune", "--yes")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"Deleted 1 session and 2 messages from {db}."
    assert ids(db) == {"young", "open", "archived"}
    assert message_owners(db) == {"young", "open", "archived"}
    assert problems(db) == []


def test_second_prune_says_that_there_is_nothing_to_do(db: Path, run_cli: RunCli) -> None:
    add_session(db, "old")
    add_session(db, "young", days_old=1)
    assert run_cli("sessions", "prune", "--yes", "--json").json["already_done"] is False
    again = run_cli("sessions", "prune", "--yes", "--json")
    assert (again.exit_code, again.json["already_done"], again.json["session_count"]) == (0, True, 0)


def test_ages_by_source_leave_other_sources_alone(db: Path, run_cli: RunCli) -> None:
    for source, days in (("cron", 8), ("cron", 6), ("cli", 91), ("cli", 89), ("telegram", 400)):
        add_session(db, f"{source}-{days}", source=source, days_old=days)
    done = run_cli("sessions", "prune", "--older-than", "cron=7d,cli=90d", "--yes")
    assert done.exit_code == 0, done.stderr
    assert ids(db) == {"cron-6", "cli-89", "telegram-400"}


def test_delegate_goes_with_its_owner_and_a_branch_stays_without_a_parent(db: Path, run_cli: RunCli) -> None:
    add_session(db, "owner", end_reason="branched")
    add_session(db, "helper", parent="owner", delegate_of="owner", source="subagent")
    add_session(db, "helper-of-helper", parent="helper", delegate_of="helper", source="subagent")
    add_session(db, "branch", parent="owner", branched_from="owner", days_old=1)
    for number in range(4):
        add_session(db, f"young-{number}", days_old=1)
    done = run_cli("sessions", "prune", "--yes", "--json")
    assert set(done.json["sessions"]) == {"owner", "helper", "helper-of-helper"}
    assert done.json["detached_count"] == 1
    assert rows(db, "SELECT parent_session_id FROM sessions WHERE id = 'branch'") == [(None,)]
    assert problems(db) == []


def test_parts_of_a_compressed_conversation_stay_together_when_the_last_one_is_young(db: Path, run_cli: RunCli) -> None:
    add_session(db, "first", end_reason="compression")
    add_session(db, "second", parent="first", days_old=10)
    add_session(db, "old")
    run_cli("sessions", "prune", "--yes", "--allow-large")
    assert ids(db) == {"first", "second"}


def test_parts_of_a_compressed_conversation_go_together(db: Path, run_cli: RunCli) -> None:
    add_session(db, "first", end_reason="compression")
    add_session(db, "second", parent="first", end_reason="compression")
    add_session(db, "third", parent="second")
    for number in range(4):
        add_session(db, f"young-{number}", days_old=1)
    done = run_cli("sessions", "prune", "--yes", "--json")
    assert set(done.json["sessions"]) == {"first", "second", "third"}
    assert done.json["detached_count"] == 0


@pytest.mark.parametrize("command", [["prune", "--older-than", "1d", "--yes", "--allow-large"],
                                     ["archive", "--older-than", "1d", "--yes"]])
def test_pinned_sessions_survive_every_bulk_verb(db: Path, run_cli: RunCli, command: list[str]) -> None:
    for name in ("pinned", "plain", "root"):
        add_session(db, name, end_reason="compression" if name == "root" else "cli_close")
    add_session(db, "tip", parent="root")
    assert run_cli("sessions", "pin", "pinned", "tip").exit_code == 0
    done = run_cli("sessions", *command)
    assert done.exit_code == 0, done.stderr
    shown = {entry["id"] for entry in run_cli("sessions", "list", "--json").json["sessions"]}
    assert {"pinned", "tip"} <= shown
    assert "plain" not in shown
    assert {"pinned", "root", "tip"} <= ids(db)


@pytest.mark.parametrize(
    ("table", "row", "reason"),
    [
        (
            "session_turn_leases (conversation_id TEXT PRIMARY KEY, holder TEXT, acquired_at REAL, expires_at REAL)",
            ("session_turn_leases", "conversation_id, holder, acquired_at, expires_at", ("busy", "h", NOW, NOW + 300)),
            "a turn is running (lease of h)",
        ),
        (
            None,
            ("compression_locks", "session_id, holder, acquired_at, expires_at", ("busy", "h", NOW, NOW + 300)),
            "it is being compressed (lock of h)",
        ),
        (
            "worker_executions (session_id TEXT REFERENCES sessions(id) ON DELETE RESTRICT, status TEXT)",
            ("worker_executions", "session_id, status", ("busy", "terminal")),
            "the runtime ledger has rows for it (worker_executions)",
        ),
    ],
)
def test_guarded_session_stays_and_the_plan_says_why(
    db: Path, run_cli: RunCli, table: str | None, row: tuple[str, str, tuple[object, ...]], reason: str
) -> None:
    for name in ("busy", "idle", "young"):
        add_session(db, name, days_old=1 if name == "young" else 200)
    name, columns, values = row
    change(
        db,
        *([f"CREATE TABLE {table}"] if table else []),
        (f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * len(values))})", values),
    )
    plan = run_cli("sessions", "prune", "--dry-run")
    assert f"  stays: busy, because {reason}" in plan.stdout.splitlines()
    done = run_cli("sessions", "prune", "--yes", "--json")
    assert done.json["sessions"] == ["idle"]
    assert done.json["kept"] == [{"id": "busy", "because_of": "busy", "reason": reason}]
    assert ids(db) == {"busy", "young"}


def test_session_that_a_table_of_another_program_points_at_stays_and_the_others_go(db: Path, run_cli: RunCli) -> None:
    for name in ("noted", "plain", "a", "b", "c"):
        add_session(db, name, days_old=200 if name in ("noted", "plain") else 1)
    change(
        db,
        "CREATE TABLE notes (session TEXT REFERENCES sessions(id), text TEXT)",
        "INSERT INTO notes VALUES ('noted', 'kept')",
    )
    done = run_cli("sessions", "prune", "--yes", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["sessions"] == ["plain"]
    assert done.json["kept"] == [
        {
            "id": "noted",
            "because_of": "noted",
            "reason": "Table notes has rows that point at a session to be deleted (session), and its foreign key "
            "forbids the delete.",
        }
    ]
    assert rows(db, "SELECT text FROM notes") == [("kept",)]


def test_idle_sessions_that_never_ended_are_left_and_the_plan_names_the_reversible_way(
    db: Path, run_cli: RunCli
) -> None:
    add_session(db, "idle", ended=False, days_old=20)
    add_session(db, "young", days_old=1)
    plan = run_cli("sessions", "prune", "--older-than", "14d", "--dry-run")
    assert plan.exit_code == 0
    assert plan.stdout.splitlines()[-1] == (
        "  1 idle session never ended, so prune leaves it. To hide instead, which can be undone: "
        "hermes-state sessions archive --open --older-than 14d"
    )
    archived = run_cli("sessions", "archive", "--open", "--older-than", "14d", "--yes", "--json")
    assert archived.json["sessions"] == ["idle"]
    assert ids(db) == {"idle", "young"}


# --- the plan, the question, the half rule --------------------------------------------------------------------


def test_dry_run_lists_every_row_and_changes_nothing(db: Path, run_cli: RunCli) -> None:
    for number in range(20):
        add_session(db, f"old-{number:02}", days_old=200 + number)
    plan = run_cli("sessions", "prune", "--dry-run")
    assert plan.exit_code == 0
    assert plan.stdout.splitlines()[0] == f"Delete 20 sessions from {db}"
    assert sum(line.startswith("  old-") for line in plan.stdout.splitlines()) == 20
    assert len(ids(db)) == 20
    assert ledger_lines(db) == []


def test_without_a_terminal_and_without_yes_nothing_is_deleted(db: Path, run_cli: RunCli) -> None:
    add_session(db, "old")
    add_session(db, "young", days_old=1)
    done = run_cli("sessions", "prune", "--json")
    assert done.exit_code == 1
    assert done.json_error["error"]["message"] == "This needs an answer, and there is no terminal to ask on."
    assert ids(db) == {"old", "young"}


def test_yes_alone_does_not_delete_more_than_half_of_all_sessions(db: Path, run_cli: RunCli) -> None:
    for name in ("old-1", "old-2", "young"):
        add_session(db, name, days_old=1 if name == "young" else 200)
    refused = run_cli("sessions", "prune", "--yes", "--json")
    assert refused.exit_code == 1
    assert refused.json_error["error"]["message"] == (
        f"This would delete 2 of the 3 sessions in {db}, more than half. --yes alone does not cover that. "
        "Nothing was deleted."
    )
    assert refused.json_error["error"]["try"] == (
        "Look at it with --dry-run; then add --allow-large, or leave --yes away and type the answer."
    )
    assert len(ids(db)) == 3
    assert run_cli("sessions", "prune", "--yes", "--allow-large").exit_code == 0
    assert ids(db) == {"young"}


def answer(run_cli: RunCli, said: str, *args: str) -> tuple[int, str]:
    """Run on a terminal and type `said`; the exit status and stderr."""
    ours, theirs = pty.openpty()
    os.write(ours, said.encode())
    try:
        done = subprocess.run(
            run_cli.command(*args), env=run_cli.environment(), stdin=theirs, capture_output=True, text=True, timeout=60
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stderr


def test_sweep_over_half_of_the_store_asks_twice_and_the_second_answer_is_the_number(
    db: Path, run_cli: RunCli
) -> None:
    for name in ("old-1", "old-2", "young"):
        add_session(db, name, days_old=1 if name == "young" else 200)
    for said in ("n\n", "\n", "y\ny\n", "y\n3\n"):
        status, stderr = answer(run_cli, said, "sessions", "prune")
        assert status == 1
        assert stderr.endswith("Nothing was deleted.\n")
        assert len(ids(db)) == 3
    status, stderr = answer(run_cli, "y\n2\n", "sessions", "prune")
    assert status == 0
    assert "Delete 2 sessions? [y/N] " in stderr
    assert "That is more than half of the 3 sessions in state.db. Type 2 to go on: " in stderr
    assert ids(db) == {"young"}


@pytest.mark.parametrize("filters", [[], ["--older-than", "150d"], ["--source", "cron"], ["--min-messages", "3"]])
def test_prune_chooses_what_list_shows_for_the_same_filters(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli, filters: list[str]
) -> None:
    store_copy("0.17.0")
    used = filters or ["--older-than", "90d"]
    shown = run_cli("sessions", "list", *used, "--limit", "1000", "--json").json
    plan = run_cli("sessions", "prune", *used, "--dry-run", "--json").json
    chosen = {entry["id"] for entry in plan["conversations"]} | {entry["id"] for entry in plan["kept"]}
    assert chosen == {entry["id"] for entry in shown["sessions"]}


# --- what goes along, and what is written down ----------------------------------------------------------------


def test_files_of_a_session_go_after_its_rows_and_those_of_others_stay(db: Path, run_cli: RunCli) -> None:
    for name in ("old", "old_2"):
        add_session(db, name, days_old=200 if name == "old" else 1)
    add_session(db, "young", days_old=1)
    folder = db.parent / "sessions"
    folder.mkdir()
    own = ["old.json", "old.jsonl", "session_old.json", "request_dump_old_20260101.json", "request_dump_old_x_y.json"]
    others = ["old_2.json", "request_dump_old_2_20260101.json", "older.json", "request_dump_old.txt", "sessions.json"]
    for name in (*own, *others):
        (folder / name).write_text("{}", encoding="utf-8")
    done = run_cli("sessions", "prune", "--yes", "--json")
    assert done.json["file_count"] == len(own)
    assert {path.name for path in folder.iterdir()} == set(others)


def test_every_delete_has_a_ledger_line_with_who_and_why(db: Path, run_cli: RunCli) -> None:
    add_session(db, "old", messages=3)
    add_session(db, "young", days_old=1)
    run_cli("sessions", "prune", "--yes")
    first, last = ledger_lines(db)
    assert (first["verb"], first["sessions"], first["message_count"]) == ("sessions prune", ["old"], 3)
    assert first["reason"] == "ended; last activity longer ago than 90 d; not archived; not pinned"
    assert first["filters"] == {"older_than": {"seconds": 90 * DAY, "seconds_by_source": {}}}
    assert first["command"][1:] == ["sessions", "prune", "--yes"]
    assert first["uid"] >= 0
    assert (last["run"], last["sessions"]) == (first["run"], [])


def test_marks_of_deleted_sessions_are_forgotten(db: Path, run_cli: RunCli) -> None:
    add_session(db, "old")
    add_session(db, "young", days_old=1)
    run_cli("sessions", "pin", "old", "young")
    run_cli("sessions", "prune", "--include-pinned", "--yes")
    assert ids(db) == {"young"}
    marks = db.with_name(f"{db.name}.hermes-state.json").read_text(encoding="utf-8")
    assert '"young"' in marks
    assert '"old"' not in marks


def test_free_pages_are_returned_when_they_are_many_and_kept_when_asked(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli
) -> None:
    sizes = {}
    for reclaim in ("auto", "never"):
        db = empty_store(store_copy("0.19.0"))
        add_session(db, "old", messages=400)
        add_session(db, "young", days_old=1)
        done = run_cli("sessions", "prune", "--yes", "--reclaim", reclaim, "--json", home=db.parent)
        assert done.exit_code == 0, done.stderr
        assert done.json["reclaim"]["runs"] is (reclaim == "auto")
        assert problems(db) == []
        sizes[reclaim] = done.json["sizes_after"]["file_bytes"]
    assert sizes["auto"] < sizes["never"]


# --- search indexes of other SQLite versions ------------------------------------------------------------------


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("manner", [[], ["--online"]])
def test_rows_with_nul_text_leave_a_search_index_that_its_builder_finds_sound(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli, version: str, manner: list[str]
) -> None:
    db = store_copy(version)
    add_session(db, "untouched", days_old=1)
    change(db, "UPDATE sessions SET ended_at = started_at, end_reason = 'cli_close' WHERE ended_at IS NULL")
    assert problems(db) == []
    nul = {row[0] for row in rows(db, "SELECT session_id FROM messages WHERE instr(CAST(content AS BLOB), x'00')")}
    done = run_cli("sessions", "prune", "--older-than", "2d", "--yes", "--allow-large", "--json", *manner)
    assert done.exit_code == 0, done.stderr
    assert done.json["kept"] == []
    assert done.json["sessions"]
    assert nul <= set(done.json["sessions"])
    assert ids(db) == {"untouched"}
    assert problems(db) == []


def test_index_that_two_sqlite_versions_wrote_is_left_sound_row_by_row(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli
) -> None:
    """Old rows were indexed up to their NUL; a row that our own SQLite indexes goes on behind it."""
    from hermes_state.engine import open_write

    db = store_copy("0.17.0")
    change(db, "UPDATE sessions SET ended_at = started_at, end_reason = 'cli_close' WHERE ended_at IS NULL")
    add_session(db, "untouched", days_old=1)
    add_session(db, "newer", messages=0)
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        tx.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('newer', 'user', ?, ?)",
            ("\0json:[\"written by a newer library\"]", NOW - 200 * DAY),
        )
    done = run_cli("sessions", "prune", "--older-than", "2d", "--yes", "--allow-large", "--json")
    assert done.exit_code == 0, done.stderr
    assert ids(db) == {"untouched"}
    assert problems(db) == []


# --- what is said ---------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_removed_is_said_and_stops_no_run(db: Path, run_cli: RunCli) -> None:
    add_session(db, "old")
    add_session(db, "young", days_old=1)
    stuck = db.parent / "sessions" / "old.json"
    stuck.mkdir(parents=True)
    done = run_cli("sessions", "prune", "--yes", "--json")
    assert (done.exit_code, done.json["finished"], done.json["sessions"]) == (0, True, ["old"])
    assert done.json["files_left"] == [f"{stuck}: Is a directory"]
    assert run_cli("sessions", "prune", "--yes", "--json").json["already_done"] is True


def test_a_run_that_is_stopped_says_as_json_what_it_did(
    db: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_session(db, "old")
    add_session(db, "young", days_old=1)

    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(flow, "sweep", partial(flow.sweep, between=stop))
    ctx = context(db, json=True, clock=clock_from_environment())
    with open_read(db) as store:
        choice = choose_for_prune(store, Filters(), NOW)
    manner = flow.Manner(
        verb="sessions prune", reason="old", dry_run=False, yes=True, online=False, allow_large=True, reclaim="never",
        sweeps=True,
    )
    with pytest.raises(KeyboardInterrupt):
        flow.run(ctx, choice, manner)
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["finished"], document["sessions"], said.err) == (False, ["old"], "")
    assert ids(db) == {"young"}


def test_the_plan_says_first_what_a_rewrite_costs_a_replica(db: Path, run_cli: RunCli) -> None:
    add_session(db, "old")
    add_session(db, "young", days_old=1)
    (db.parent / ".state.db-litestream").mkdir()
    plan = run_cli("sessions", "prune", "--dry-run")
    assert "Litestream: .state.db-litestream is beside the store. A full rewrite makes it send" in plan.stdout
    assert "Litestream" not in run_cli("sessions", "prune", "--dry-run", "--reclaim", "never").stdout
