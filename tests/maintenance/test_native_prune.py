"""Prune and delete on native stores: whole conversations, ledgers, branches, pages, and what a kill leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.store import open_store
from tests.maintenance.native_stores import (
    DAY,
    NOW,
    add_session,
    change,
    ids,
    ledger_lines,
    new_store,
    problems,
    rows,
    value,
)

# Every test runs the program in a process of its own, some several times.
pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]


@pytest.fixture
def db(tmp_path: Path, fake_clock: Any) -> Path:
    return new_store(tmp_path)


def prune(run_cli: RunCli, db: Path, *more: str) -> Any:
    return run_cli("sessions", "prune", "--yes", "--allow-large", "--json", "--db", str(db), *more)


def test_prune_removes_old_ended_sessions_beside_others_and_records_it_in_the_store(run_cli: RunCli, db: Path) -> None:
    add_session(db, "old", messages=30)
    add_session(db, "fresh", days_old=1)
    add_session(db, "open", state="open")
    result = prune(run_cli, db)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["mode"], document["session_count"], document["message_count"]) == ("online", 1, 30)
    assert ids(db) == {"fresh", "open"}
    [(actor, reason, kind, keys, count)] = rows(db, "SELECT actor, reason, kind, keys, rows FROM deletions")
    assert actor.startswith("hermes-state sessions prune, PID ")
    assert reason == "ended; last activity longer ago than 90 d; not archived; not pinned"
    assert (kind, json.loads(keys), count) == ("session", ["old"], 31)
    assert rows(db, "SELECT kind, key FROM tombstones") == [("session", "old")]
    assert ("sessions", "old", "delete") in rows(db, "SELECT table_name, key, operation FROM changes")
    assert [line["sessions"] for line in ledger_lines(db)] == [["old"], []]
    assert problems(db) == []


def test_an_ended_session_that_was_used_a_minute_ago_is_not_old(
    run_cli: RunCli, db: Path, fake_clock: Any
) -> None:
    add_session(db, "old")
    add_session(db, "resumed")
    with open_store(path=db, clock=fake_clock) as store:
        store.messages.append("resumed", role="user", content="one more question")
    assert prune(run_cli, db).exit_code == 0
    assert ids(db) == {"resumed"}


def test_prune_takes_delegates_and_all_parts_and_keeps_a_branch_with_what_it_shares(
    run_cli: RunCli, db: Path
) -> None:
    add_session(db, "root", state="replaced", messages=6, text="shared words")
    add_session(db, "tip", parent="root", relation="continuation", messages=4)
    add_session(db, "work", parent="root", relation="delegate", messages=3)
    add_session(
        db, "branch", parent="root", relation="branch", messages=2, days_old=1, columns={"branched_at_seq": 4}
    )
    document = json.loads(prune(run_cli, db).stdout)
    assert sorted(document["sessions"]) == ["root", "tip", "work"]
    listed = json.loads(run_cli("sessions", "list", "--all", "--json", "--db", str(db)).stdout)["sessions"]
    assert [entry["id"] for entry in listed] == ["branch"]
    # Its own two and the four that it shares.
    assert value(db, "SELECT count(*) FROM messages") == 6
    assert problems(db) == []
    add = prune(run_cli, db, "--older-than", "0d")
    assert json.loads(add.stdout)["sessions"] == ["branch"]
    assert value(db, "SELECT count(*) FROM messages") == 0
    assert value(db, "SELECT count(*) FROM sessions") == 0


def test_a_session_with_a_live_stream_of_an_unknown_owner_stays(run_cli: RunCli, db: Path) -> None:
    add_session(db, "busy")
    new = "INSERT INTO streams (key, session_no, role, started_at, owner)"
    change(db, f"{new} VALUES (hex(randomblob(8)), 1, 'assistant', 1, '{{}}')")
    document = json.loads(prune(run_cli, db).stdout)
    assert document["session_count"] == 0
    [kept] = document["kept"]
    assert kept == {
        "id": "busy", "because_of": "busy", "reason": "a message of it is being received (by an unreadable owner)",
    }
    assert ids(db) == {"busy"}


def test_usage_by_day_survives_and_usage_of_the_session_goes(run_cli: RunCli, db: Path) -> None:
    add_session(db, "old")
    change(
        db,
        "INSERT INTO session_usage (session_no, model) VALUES (1, 'm')",
        "INSERT INTO session_totals (session_no, input_tokens) VALUES (1, 7)",
        "INSERT INTO daily_usage (day, model, input_tokens) VALUES ('2026-01-01', 'm', 7)",
    )
    assert prune(run_cli, db).exit_code == 0
    assert value(db, "SELECT count(*) FROM session_usage") == value(db, "SELECT count(*) FROM session_totals") == 0
    assert rows(db, "SELECT day, model, input_tokens FROM daily_usage") == [("2026-01-01", "m", 7)]


def test_free_pages_go_back_in_steps_and_the_file_shrinks(run_cli: RunCli, db: Path) -> None:
    add_session(db, "old", bodies=["x" * 3000 for _ in range(800)])
    add_session(db, "new", days_old=1)
    document = json.loads(prune(run_cli, db).stdout)
    assert document["reclaim"]["runs"] is True
    assert document["sizes_after"]["free_pages"] == 0
    assert document["sizes_after"]["page_count"] * 4 < document["sizes_before"]["page_count"]


def test_offline_takes_the_store_for_itself(run_cli: RunCli, db: Path) -> None:
    add_session(db, "old")
    document = json.loads(prune(run_cli, db, "--offline").stdout)
    assert (document["mode"], document["session_count"]) == ("exclusive", 1)


def test_delete_by_name_works_beside_others_and_a_repeat_is_done_already(run_cli: RunCli, db: Path) -> None:
    add_session(db, "one")
    add_session(db, "two")
    first = run_cli("sessions", "delete", "one", "--yes", "--json", "--db", str(db))
    assert json.loads(first.stdout)["mode"] == "online"
    again = run_cli("sessions", "delete", "one", "--yes", "--json", "--db", str(db))
    assert (again.exit_code, json.loads(again.stdout)["already_done"]) == (0, True)
    assert ids(db) == {"two"}
    assert rows(db, "SELECT reason FROM deletions") == [("named on the command line",)]


def test_a_session_of_many_messages_goes_at_once_and_its_rows_in_small_steps(run_cli: RunCli, db: Path) -> None:
    add_session(db, "large", messages=3000)
    document = json.loads(prune(run_cli, db).stdout)
    assert (document["session_count"], document["message_count"]) == (1, 3000)
    assert document["transaction_count"] >= 15
    assert value(db, "SELECT count(*) FROM messages") == 0
    assert value(db, "SELECT count(*) FROM sessions") == 0
    assert value(db, "SELECT message_floor FROM store") == 3000
    assert value(db, "SELECT count(*) FROM deletions") == 1


KILLED = """
import os, sys
from maintenance.removal import executor
done, last = 0, int(sys.argv[2])
rest = executor.Remover._rest
def stop(self):
    global done
    done += 1
    if done == last:
        os.kill(os.getpid(), 9)
    rest(self)
executor.Remover._rest = stop
sys.argv = ["hermes-state", "sessions", "prune", "--yes", "--allow-large", "--db", sys.argv[1]]
from maintenance.entry import hermes_state
sys.exit(hermes_state())
"""


@pytest.mark.parametrize("transactions", [1, 2, 4])
def test_after_kill_9_the_same_command_finishes_and_nothing_is_half_there(
    run_cli: RunCli, db: Path, child: Any, transactions: int
) -> None:
    add_session(db, "large", messages=900)
    add_session(db, "next", messages=5, days_old=190)
    add_session(db, "stays", days_old=1)
    process = child(KILLED, db, transactions)
    assert process.wait() == -9, process.output
    # Whatever is listed is whole.
    for session_id, messages in rows(
        db, "SELECT id, (SELECT count(*) FROM messages WHERE session_no = s.no) FROM sessions AS s WHERE hidden = 0"
    ):
        assert messages == {"large": 900, "next": 5, "stays": 2}[session_id]
    assert problems(db) == []
    assert prune(run_cli, db).exit_code == 0
    assert ids(db) == {"stays"}
    assert value(db, "SELECT count(*) FROM messages") == 2
    named = {key for (keys,) in rows(db, "SELECT keys FROM deletions") for key in json.loads(keys)}
    assert named == {"large", "next"}
    assert problems(db) == []


def test_keep_last_spares_the_newest_whatever_their_age(run_cli: RunCli, db: Path) -> None:
    for number in range(6):
        add_session(db, f"s{number}", days_old=100 + number)
    document = json.loads(prune(run_cli, db, "--keep-last", "2").stdout)
    assert sorted(document["sessions"]) == ["s2", "s3", "s4", "s5"]
    assert {one["reason"] for one in document["kept"]} == {"it is among the last 2 conversations (--keep-last)"}
    assert ids(db) == {"s0", "s1"}


def test_keep_last_counts_all_of_a_source_and_not_only_those_that_are_old_enough(run_cli: RunCli, db: Path) -> None:
    for number in range(4):
        add_session(db, f"c{number}", days_old=10 * number, source="cron")
    add_session(db, "cli")
    more = ("--source", "cron", "--older-than", "5d", "--keep-last", "3")
    assert json.loads(prune(run_cli, db, *more).stdout)["sessions"] == ["c3"]
    assert ids(db) == {"c0", "c1", "c2", "cli"}


def test_a_policy_of_age_and_size_lists_what_goes_and_ends_under_both(run_cli: RunCli, db: Path) -> None:
    """Report 224: 30 days and two thirds of the size."""
    for number in range(30):
        add_session(db, f"s{number:02}", days_old=1 + 2 * number, bodies=["w" * 2000 for _ in range(50)])
    used = value(db, "SELECT page_count * 4096 FROM pragma_page_count")
    limit = used * 2 // 5
    more = ("--older-than", "30d", "--max-size", str(limit))
    plan = json.loads(run_cli("sessions", "prune", "--dry-run", "--json", "--db", str(db), *more).stdout)
    assert plan["size_limit"]["reachable"] is True
    expected = [one["id"] for one in plan["conversations"]]
    assert {f"s{number:02}" for number in range(15, 30)} < set(expected)
    # What the size adds are the oldest of the rest.
    added = sorted(set(expected) - {f"s{number:02}" for number in range(15, 30)})
    assert added == [f"s{number:02}" for number in range(15 - len(added), 15)]
    document = json.loads(prune(run_cli, db, *more).stdout)
    assert sorted(document["sessions"]) == sorted(expected)
    assert document["within_size_limit"] is True
    assert document["sizes_after"]["page_count"] * 4096 <= limit
    assert value(db, "SELECT min(active_at) FROM sessions") >= NOW - 30 * DAY


def test_a_size_that_cannot_be_reached_is_said_and_fails(run_cli: RunCli, db: Path) -> None:
    add_session(db, "open", state="open", messages=50)
    result = prune(run_cli, db, "--max-size", "1KB")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["size_limit"]["reachable"] is False
    assert ids(db) == {"open"}


def test_what_the_library_deleted_is_done_already(run_cli: RunCli, db: Path) -> None:
    add_session(db, "gone")
    with open_store(path=db) as store:
        store.sessions.delete("gone", actor="test", reason="asked for")
    again = run_cli("sessions", "delete", "gone", "--db", str(db))
    assert again.exit_code == 0
    assert again.stdout.startswith("Already done: gone was deleted, as the ledger says at ")
    assert run_cli("sessions", "delete", "never", "--db", str(db)).exit_code == 1


def test_a_branch_in_the_middle_does_not_keep_its_parent(run_cli: RunCli, db: Path) -> None:
    """What is kept for the last branch is no new child of the first session."""
    add_session(db, "first", messages=4)
    add_session(db, "middle", parent="first", relation="branch", messages=4, columns={"branched_at_seq": 2})
    add_session(
        db, "last", parent="middle", relation="branch", messages=2, days_old=1, columns={"branched_at_seq": 3}
    )
    document = json.loads(prune(run_cli, db).stdout)
    assert (sorted(document["sessions"]), document["kept"]) == (["first", "middle"], [])
    assert value(db, "SELECT count(*) FROM messages") == 7
    assert problems(db) == []


@pytest.mark.parametrize("online", ["--online", "--offline"])
def test_limits_work_on_files_of_hermes_agent_too(
    run_cli: RunCli, store_copy: Callable[[str], Path], fake_clock: Any, online: str
) -> None:
    foreign = store_copy("0.19.0")
    total = json.loads(run_cli("sessions", "stats", "--json", "--db", str(foreign)).stdout)["conversations"]
    result = run_cli(
        "sessions", "prune", "--keep-last", "3", "--yes", "--allow-large", "--json", online, "--db", str(foreign)
    )
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["mode"] == {"--online": "online", "--offline": "exclusive"}[online]
    assert 0 < document["session_count"] < total
    limited = run_cli("sessions", "prune", "--max-size", "1", "--dry-run", "--json", "--db", str(foreign))
    assert json.loads(limited.stdout)["size_limit"]["reachable"] is False
