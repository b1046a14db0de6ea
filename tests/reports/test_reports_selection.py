"""Reports 62, 63, 93, 95 to 98: which sessions a verb takes, what goes with them, and what is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from tests.maintenance.removal_stores import DAY, NOW, add_session, change, empty_store, ids, ledger_lines, rows
from tests.reports.gateway import display_name, finish, start
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


@pytest.fixture
def db(store_copy: StoreCopy, fake_clock: FakeClock) -> Path:
    """An empty 0.19.0 store, and a clock that every process of the test shares."""
    return empty_store(store_copy("0.19.0"))


def chosen(run_cli: RunCli, verb: str, *filters: str) -> set[str]:
    """The ids that a verb would take or show."""
    if verb == "export":
        lines = run_cli("sessions", "export", "-", *filters).stdout.splitlines()
        return {json.loads(line)["id"] for line in lines}
    dry = [] if verb == "list" else ["--dry-run"]
    done = run_cli("sessions", verb, *filters, *dry, "--json")
    assert done.exit_code == 0, done.stderr
    key = "sessions" if verb == "list" else "conversations"
    return {entry["id"] for entry in done.json[key]}


# --- 63: retention by source -------------------------------------------------------------------------------------


def test_scheduled_jobs_go_after_a_week_and_people_after_a_month_as_the_plan_says(db: Path, run_cli: RunCli) -> None:
    for source, days in (("cron", 8), ("cron", 6), ("cli", 31), ("cli", 29), ("telegram", 31), ("telegram", 8)):
        add_session(db, f"{source}-{days}", source=source, days_old=days)
    ages = ("--older-than", "30d,cron=7d")
    plan = run_cli("sessions", "prune", *ages, "--dry-run", "--json").json
    assert {(entry["id"], entry["source"]) for entry in plan["conversations"]} == {
        ("cron-8", "cron"), ("cli-31", "cli"), ("telegram-31", "telegram"),
    }
    assert len(ids(db)) == 6
    assert run_cli("sessions", "prune", *ages, "--yes").exit_code == 0
    assert ids(db) == {"cron-6", "cli-29", "telegram-8"}


# --- 93: prune deleted pinned sessions ---------------------------------------------------------------------------


def test_of_three_sessions_that_match_the_pinned_one_stays_in_every_bulk_verb(db: Path, run_cli: RunCli) -> None:
    for name in ("a", "b", "pinned"):
        add_session(db, name)
    for number in range(4):
        add_session(db, f"young-{number}", days_old=1)
    assert run_cli("sessions", "pin", "pinned").exit_code == 0
    for verb in ("prune", "archive"):
        assert chosen(run_cli, verb, "--older-than", "90d") == {"a", "b"}
    archived = run_cli("sessions", "archive", "--older-than", "90d", "--yes", "--json").json["sessions"]
    assert sorted(archived) == ["a", "b"]
    assert rows(db, "SELECT archived FROM sessions WHERE id = 'pinned'") == [(0,)]
    assert run_cli("sessions", "prune", "--older-than", "90d", "--include-archived", "--yes").exit_code == 0
    assert ids(db) == {"pinned", "young-0", "young-1", "young-2", "young-3"}


# --- 95: a deleted session leaves its JSON file ------------------------------------------------------------------


@pytest.mark.parametrize("verb", [("delete", "gone"), ("prune",)], ids=lambda verb: verb[0])
def test_rows_and_files_of_a_session_go_together(db: Path, run_cli: RunCli, verb: tuple[str, ...]) -> None:
    for name in ("gone", "gone_too", "stays"):
        add_session(db, name, days_old=200 if name == "gone" else 1)
    folder = db.parent / "sessions"
    folder.mkdir()
    for name in ("session_gone.json", "gone.jsonl", "session_gone_too.json", "session_stays.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    done = run_cli("sessions", *verb, "--yes", "--json")
    assert (done.exit_code, done.json["file_count"]) == (0, 2)
    assert ids(db) == {"gone_too", "stays"}
    assert {path.name for path in folder.iterdir()} == {"session_gone_too.json", "session_stays.json"}


# --- 96: idle sessions that never ended --------------------------------------------------------------------------


def test_an_idle_session_that_never_ended_is_offered_the_way_that_can_be_undone(db: Path, run_cli: RunCli) -> None:
    add_session(db, "idle", ended=False, days_old=14.5)
    add_session(db, "busy", ended=False, days_old=1)
    plan = run_cli("sessions", "prune", "--older-than", "14d", "--dry-run")
    offered = plan.stdout.splitlines()[-1]
    assert offered == (
        "  1 idle session never ended, so prune leaves it. To hide instead, which can be undone: "
        "hermes-state sessions archive --open --older-than 14d"
    )
    way = offered.partition("hermes-state ")[2].split()
    assert run_cli(*way, "--yes", "--json").json["sessions"] == ["idle"]
    assert {entry["id"] for entry in run_cli("sessions", "list", "--json").json["sessions"]} == {"busy"}
    assert run_cli("sessions", "archive", "--undo", "idle").exit_code == 0
    assert {entry["id"] for entry in run_cli("sessions", "list", "--json").json["sessions"]} == {"busy", "idle"}
    assert ids(db) == {"idle", "busy"}


# --- 97: filters miss recent desktop sessions --------------------------------------------------------------------


def test_list_export_archive_and_prune_take_the_same_sessions_for_the_same_filters(db: Path, run_cli: RunCli) -> None:
    # Begun long ago and used a minute ago; only the newest message shows it.
    add_session(db, "desktop-used", source="desktop", days_old=200, messages=4)
    change(
        db,
        ("UPDATE messages SET timestamp = ? WHERE session_id = 'desktop-used'", (NOW - 60,)),
        ("UPDATE sessions SET ended_at = ?, title = '100% plan_a' WHERE id = 'desktop-used'", (NOW - 60,)),
    )
    add_session(db, "desktop-old", source="desktop", days_old=200, messages=4)
    change(db, "UPDATE sessions SET title = '100 plans, a' WHERE id = 'desktop-old'")
    add_session(db, "small", source="cli", days_old=30, messages=1)
    add_session(db, "young", source="cli", days_old=2, messages=4)
    cases: tuple[tuple[tuple[str, ...], set[str]], ...] = (
        (("--title", "100% plan_a"), {"desktop-used"}),
        (("--newer-than", "1h"), {"desktop-used"}),
        (("--older-than", "10d"), {"desktop-old", "small"}),
        (("--min-messages", "2", "--older-than", "1d"), {"desktop-old", "young"}),
        (("--source", "desktop", "--older-than", "1h"), {"desktop-old"}),
    )
    for filters, expected in cases:
        for verb in ("list", "export", "archive", "prune"):
            assert chosen(run_cli, verb, *filters) == expected, (verb, filters)


# --- 98: sessions vanish and nothing was logged ------------------------------------------------------------------


def test_every_delete_says_who_did_it_and_why(db: Path, run_cli: RunCli) -> None:
    for name in ("named", "old", "young-1", "young-2", "young-3"):
        add_session(db, name, days_old=1 if "young" in name else 200)
    assert run_cli("sessions", "delete", "named", "--yes").exit_code == 0
    assert run_cli("sessions", "prune", "--yes").exit_code == 0
    lines = [line for line in ledger_lines(db) if line["sessions"]]
    assert [(line["verb"], line["sessions"]) for line in lines] == [
        ("sessions delete", ["named"]), ("sessions prune", ["old"]),
    ]
    for line in lines:
        assert line["pid"] > 0 and line["uid"] >= 0 and line["at"].endswith("Z")
        assert line["command"][1] == "sessions"
    assert lines[1]["reason"] == "ended; last activity longer ago than 90 d; not archived; not pinned"
    assert lines[1]["filters"]["older_than"]["seconds"] == 90 * DAY
    assert ids(db) == {"young-1", "young-2", "young-3"}


def test_no_session_vanishes_while_a_live_program_writes_and_every_reading_verb_runs(
    store_copy: StoreCopy, run_cli: RunCli, child: Children
) -> None:
    db = store_copy()
    before = ids(db)
    gateway = start(child, db)
    for verb in (
        ("list",), ("stats",), ("export", "-"), ("prune", "--dry-run"), ("optimize", "--online"),
        ("archive", "--older-than", "1d", "--dry-run"),
    ):
        assert run_cli("sessions", *verb).exit_code == 0, verb
    assert finish(gateway) == "committed 0"
    assert display_name(db) == "by the gateway 2"
    assert ids(db) == before
    assert ledger_lines(db) == []
