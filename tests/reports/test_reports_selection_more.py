"""Reports 93, 95 to 98 on native stores: which sessions a verb takes, what stays, and what is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.conversation.bodies import OWN_BYTES
from tests.maintenance.native_stores import DAY, add_session, ids, ledger_lines, new_store, problems, rows
from tests.reports.test_reports_selection import chosen
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


@pytest.fixture
def db(tmp_path: Path, fake_clock: FakeClock) -> Path:
    """An empty native store at the place where commands look, and a clock that every process of the test shares."""
    return new_store(tmp_path)


# --- 93: pins ----------------------------------------------------------------------------------------------------


def test_a_pinned_session_of_a_native_store_stays_in_every_bulk_verb(db: Path, run_cli: RunCli) -> None:
    for name in ("a", "b", "pinned"):
        add_session(db, name)
    for number in range(4):
        add_session(db, f"young-{number}", days_old=1)
    assert run_cli("sessions", "pin", "pinned").exit_code == 0
    for verb in ("prune", "archive"):
        assert chosen(run_cli, verb, "--older-than", "90d") == {"a", "b"}
    archived = run_cli("sessions", "archive", "--older-than", "90d", "--yes", "--json").json["sessions"]
    assert sorted(archived) == ["a", "b"]
    # A limit of size or number is a bulk verb too: it ends short of the pin and says so.
    limits = ("--older-than", "0d", "--keep-last", "1", "--include-archived", "--allow-large", "--yes")
    assert run_cli("sessions", "prune", *limits).exit_code == 0
    assert "pinned" in ids(db)
    assert len(ids(db)) == 2
    assert rows(db, "SELECT count(*) FROM sessions WHERE id = 'pinned' AND archived_at IS NULL") == [(1,)]
    assert problems(db) == []


def test_what_was_pinned_is_pinned_after_a_recovery(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli, tmp_path: Path
) -> None:
    # Releases before 0.19.0 have no column for it: the pin lies in a file beside the store.
    db = store_copy("0.17.0")
    kept = sorted(ids(db))[0]
    assert run_cli("sessions", "pin", kept, "--db", db, "--json").json["stored_in"] == "marks"
    for name, more in (("same.db", ()), ("native.db", ("--native",))):
        output = tmp_path / name
        done = run_cli("sessions", "recover", "--source", db, "--output", output, *more)
        assert done.exit_code == 0, done.stderr
        pruned = run_cli("sessions", "prune", "--older-than", "0d", "--allow-large", "--yes", "--db", output)
        assert pruned.exit_code == 0, pruned.stderr
        assert kept in ids(output)


def test_what_was_pinned_is_pinned_where_a_backup_is_restored(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli, tmp_path: Path
) -> None:
    db = store_copy("0.17.0")
    first, second, *_ = sorted(ids(db))
    assert run_cli("sessions", "pin", first, "--db", db).exit_code == 0
    assert run_cli("sessions", "archive", second, "--db", db, "--yes").exit_code == 0
    made = run_cli("sessions", "backup", "--to", tmp_path / "kept", "--db", db, "--json").json
    assert made["manifest"]["pinned"] == [first]
    other = tmp_path / "another machine" / "state.db"
    other.parent.mkdir()
    assert run_cli("sessions", "restore", made["backup"], "--db", other, "--yes").exit_code == 0
    pruned = run_cli("sessions", "prune", "--older-than", "0d", "--allow-large", "--yes", "--db", other)
    assert pruned.exit_code == 0, pruned.stderr
    assert first in ids(other)
    proven = run_cli("sessions", "restore", "--drill", made["backup"])
    assert proven.exit_code == 0, proven.stderr


def test_pins_that_cannot_be_read_do_not_stop_a_recovery_and_are_said(
    store_copy: StoreCopy, fake_clock: FakeClock, run_cli: RunCli, tmp_path: Path
) -> None:
    db = store_copy("0.17.0")
    marks = db.with_name(f"{db.name}.hermes-state.json")
    marks.write_text("{", encoding="utf-8")
    done = run_cli("sessions", "recover", "--source", db, "--output", tmp_path / "new.db", "--json")
    assert done.exit_code == 0, done.stderr
    said = [decision for decision in done.json["decisions"] if decision["what"] == "marks_left_out"]
    assert said == [
        {"what": "marks_left_out", "file": str(marks), "why": f"The marks file {marks} is not valid JSON."}
    ]


def test_a_backup_without_its_pins_is_not_made(store_copy: StoreCopy, run_cli: RunCli) -> None:
    db = store_copy("0.17.0")
    marks = db.with_name(f"{db.name}.hermes-state.json")
    marks.write_text("{", encoding="utf-8")
    done = run_cli("sessions", "backup", "--db", db)
    assert (done.exit_code, done.stderr.splitlines()[0]) == (1, f"Error: The marks file {marks} is not valid JSON.")
    assert not (db.parent / "backups").exists()


# --- 95: rows and files go together ------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [("delete", "gone"), ("prune",)], ids=lambda verb: verb[0])
def test_large_contents_and_files_of_a_native_session_go_with_it(
    db: Path, run_cli: RunCli, fake_clock: FakeClock, verb: tuple[str, ...]
) -> None:
    add_session(db, "gone", days_old=200, bodies=["short"])
    for name in ("stays", "stays_too"):
        add_session(db, name, days_old=1)
    with open_store(path=db) as store:
        for session, letter in (("stays", "s"), ("stays_too", "t")):
            store.messages.append(session, role="tool", content=letter * 4 * OWN_BYTES)
        fake_clock.step_wall(-200 * DAY)
        store.messages.append("gone", role="tool", content="g" * 4 * OWN_BYTES)
        fake_clock.step_wall(200 * DAY)
    assert rows(db, "SELECT count(*) FROM bodies") == [(3,)]
    folder = db.parent / "sessions"
    folder.mkdir()
    for name in ("session_gone.json", "gone.jsonl", "session_stays.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    done = run_cli("sessions", *verb, "--yes", "--json")
    assert (done.exit_code, done.json["file_count"]) == (0, 2)
    assert ids(db) == {"stays", "stays_too"}
    assert rows(db, "SELECT count(*) FROM bodies") == [(2,)]
    assert {path.name for path in folder.iterdir()} == {"session_stays.json"}
    assert problems(db) == []


# --- 96: idle sessions that never ended --------------------------------------------------------------------------


def test_an_idle_native_session_is_offered_the_way_that_can_be_undone(db: Path, run_cli: RunCli) -> None:
    add_session(db, "idle", state="open", days_old=14.5)
    add_session(db, "busy", state="open", days_old=1)
    offered = run_cli("sessions", "prune", "--older-than", "14d", "--dry-run").stdout.splitlines()[-1]
    assert offered == (
        "  1 idle session never ended, so prune leaves it. To hide instead, which can be undone: "
        "hermes-state sessions archive --open --older-than 14d"
    )
    way = offered.partition("hermes-state ")[2].split()
    assert run_cli(*way, "--yes", "--json").json["sessions"] == ["idle"]
    assert chosen(run_cli, "list") == {"busy"}
    assert run_cli("sessions", "archive", "--undo", "idle").exit_code == 0
    assert chosen(run_cli, "list") == {"busy", "idle"}
    assert ids(db) == {"idle", "busy"}


# --- 97: one selection -------------------------------------------------------------------------------------------


def test_four_verbs_take_the_same_native_sessions_for_the_same_filters(
    db: Path, run_cli: RunCli, fake_clock: FakeClock
) -> None:
    add_session(db, "desktop-used", source="desktop", days_old=200, messages=4, columns={"title": "100% plan_a"})
    fake_clock.step_wall(-60)
    with open_store(path=db) as store:
        store.sessions.reopen("desktop-used")
        store.messages.append("desktop-used", role="user", content="a minute ago")
        store.sessions.end("desktop-used", "cli_close")
    fake_clock.step_wall(60)
    old = {"title": "100 plans, a"}
    add_session(db, "desktop-old", source="desktop", days_old=200, messages=4, columns=old)
    add_session(db, "small", days_old=30, messages=1)
    add_session(db, "young", days_old=2, messages=4)
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


# --- 98: every delete has somebody and a reason ------------------------------------------------------------------


def test_whatever_deletes_in_a_native_store_says_who_and_why(db: Path, run_cli: RunCli) -> None:
    for name in ("named", "old", "by the library", "young-1", "young-2", "young-3"):
        add_session(db, name, days_old=200 if name == "old" else 1)
    with open_store(path=db) as store:
        store.sessions.delete("by the library", actor="desktop", reason="the person asked for it")
        (first, *_) = [message.id for message in store.messages.history("young-1", after=0, limit=10).messages]
        store.messages.delete("young-1", [first], actor="desktop", reason="a word too many")
    assert run_cli("sessions", "delete", "named", "--yes").exit_code == 0
    assert run_cli("sessions", "prune", "--yes").exit_code == 0
    said = rows(db, "SELECT actor, reason, kind, keys FROM deletions ORDER BY id")
    assert [(kind, json.loads(keys)) for _actor, _reason, kind, keys in said] == [
        ("session", ["by the library"]), ("message", [str(first)]), ("session", ["named"]), ("session", ["old"]),
    ]
    assert [(actor.partition(", PID")[0], reason) for actor, reason, _kind, _keys in said] == [
        ("desktop", "the person asked for it"), ("desktop", "a word too many"),
        ("hermes-state sessions delete", "named on the command line"),
        ("hermes-state sessions prune", "ended; last activity longer ago than 90 d; not archived; not pinned"),
    ]
    assert [line["sessions"] for line in ledger_lines(db) if line["sessions"]] == [["named"], ["old"]]
    assert ids(db) == {"young-1", "young-2", "young-3"}
