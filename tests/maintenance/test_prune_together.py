"""Several prunes of one store at a time, and what a prune says about files and room before it begins."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hermes_state.clock import SYSTEM, FakeClock
from hermes_state.engine import open_read
from hermes_state.errors import InsufficientSpace
from maintenance.output.text import human_bytes
from maintenance.removal.choice import Choice, choose_for_prune
from maintenance.removal.flow import Manner, outcome_facts
from maintenance.removal.record import Record
from maintenance.removal.room import (
    DELETE_MARGIN_BYTES,
    ONLINE_BYTES,
    require_room_to_delete,
    room_to_delete,
)
from maintenance.removal.sweep import SweepReport, sweep
from maintenance.selection import Filters
from tests.maintenance.removal_stores import (
    NOW,
    add_session,
    change,
    context,
    empty_store,
    ids,
    ledger_lines,
    problems,
)
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


@pytest.fixture
def db(store_copy: StoreCopy, fake_clock: FakeClock) -> Path:
    """An empty 0.19.0 store, and a clock that every process of the test shares."""
    return empty_store(store_copy("0.19.0"))


def chosen(db: Path) -> Choice:
    with open_read(db) as store:
        return choose_for_prune(store, Filters(), NOW)


def swept(db: Path, choice: Choice, *, beside: bool = True) -> SweepReport:
    record = Record(db=db, verb="sessions prune", reason="old", filters={}, clock=SYSTEM)
    report = SweepReport()
    sweep(context(db), "sessions prune", choice, record, report, beside=beside, policy="never")
    return report


# --- together -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [True, False])
def test_what_another_run_took_is_neither_reported_nor_written_down_again(db: Path, beside: bool) -> None:
    for number in range(5):
        add_session(db, f"old-{number}", messages=300 if number == 0 else 3)
    add_session(db, "young", days_old=1)
    choice = chosen(db)
    first = swept(db, choice, beside=beside)
    lines = len(ledger_lines(db))
    second = swept(db, choice, beside=beside)
    assert sorted(first.removed.ids) == [f"old-{number}" for number in range(5)]
    assert (second.removed.ids, second.removed.counts.messages, second.removed.transactions) == ([], 0, 0)
    assert sorted(second.removed.already_gone) == [f"old-{number}" for number in range(5)]
    assert [line["sessions"] for line in ledger_lines(db)[lines:]] == [[]]
    manner = Manner(
        verb="sessions prune", reason="", dry_run=False, yes=True, online=beside, allow_large=True, reclaim="never",
        sweeps=True,
    )
    facts = outcome_facts(context(db), choice, manner, second, finished=True)
    assert (facts["session_count"], facts["sessions"]) == (0, [])


def test_a_session_that_goes_between_its_ledger_line_and_the_lock_gets_a_second_line(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old-1", "old-2"):
        add_session(db, name)
    add_session(db, "young", days_old=1)
    choice = chosen(db)
    written = Record.before

    def before(self: Record, sessions: list[str], messages: int, *, note: str = "") -> None:
        written(self, sessions, messages, note=note)
        change(db, "DELETE FROM messages WHERE session_id = 'old-1'", "DELETE FROM sessions WHERE id = 'old-1'")

    monkeypatch.setattr(Record, "before", before)
    report = swept(db, choice)
    assert (report.removed.ids, list(report.removed.already_gone)) == (["old-2"], ["old-1"])
    first, second, last = ledger_lines(db)
    assert sorted(first["sessions"]) == ["old-1", "old-2"]
    assert (second["sessions"], second["reason"]) == (["old-1"], "not deleted by this run: already gone")
    assert last["reason"] == "finished: 1 session, 2 messages"


def test_three_prunes_at_once_report_every_session_exactly_once(db: Path, run_cli: RunCli) -> None:
    for number in range(60):
        add_session(db, f"old-{number:02}", messages=10)
    add_session(db, "young", days_old=1)
    words = ["sessions", "prune", "--yes", "--online", "--allow-large", "--json"]
    runs = [
        subprocess.Popen(
            run_cli.command(*words), env=run_cli.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    ended = [(*run.communicate(timeout=120), run.returncode) for run in runs]
    assert [code for _out, _err, code in ended] == [0, 0, 0], ended
    reports = [json.loads(out) for out, _err, _code in ended]
    named = [key for report in reports for key in report.get("sessions", [])]
    assert sorted(named) == [f"old-{number:02}" for number in range(60)]
    assert sum(report["message_count"] for report in reports if not report["already_done"]) == 600
    assert ids(db) == {"young"}
    assert problems(db) == []


# --- what the plan says ---------------------------------------------------------------------------------------


def test_the_plan_counts_the_files_that_go_along(db: Path, run_cli: RunCli) -> None:
    add_session(db, "old")
    add_session(db, "young", days_old=1)
    folder = db.parent / "sessions"
    folder.mkdir()
    for name in ("old.json", "request_dump_old_1.json", "young.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    plan = run_cli("sessions", "prune", "--dry-run", "--json").json
    assert plan["files"] == 2
    lines = run_cli("sessions", "prune", "--dry-run").stdout.splitlines()
    assert "  2 files of theirs beside the store go too." in lines
    assert run_cli("sessions", "prune", "--yes", "--json").json["file_count"] == 2


def test_the_hint_to_archive_repeats_every_filter_and_ages_are_not_rounded(db: Path, run_cli: RunCli) -> None:
    add_session(db, "idle", ended=False)
    plan = run_cli(
        "sessions", "prune", "--older-than", "90m", "--source", "cli", "--max-tool-calls", "0", "--dry-run"
    ).stdout
    assert "Chosen: ended; last activity longer ago than 1 h 30 min; sources cli; max tool calls 0; " in plan
    assert (
        "hermes-state sessions archive --open --older-than 90m --source cli --max-tool-calls 0\n" in plan
    )


# --- room -----------------------------------------------------------------------------------------------------


def test_a_disk_without_room_for_the_log_of_a_delete_stops_it_with_the_numbers(db: Path) -> None:
    add_session(db, "old", messages=400)
    choice = chosen(db)
    (room,) = room_to_delete(choice, beside=False)
    assert DELETE_MARGIN_BYTES < room.needed_bytes <= DELETE_MARGIN_BYTES + choice.sizes.used_bytes * 9 // 8
    with pytest.raises(InsufficientSpace) as full:
        require_room_to_delete(choice, beside=False, free=lambda _folder: 1024)
    assert full.value.message == (
        f"Deleting from {db} needs {human_bytes(room.needed_bytes)} on the file system of {db.parent}, and 1.0 KiB are "
        "free. Nothing was changed."
    )
    assert full.value.hint == (
        f"Free {human_bytes(room.needed_bytes - 1024)} there, or move the store to a larger file system."
    )
    require_room_to_delete(choice, beside=False, free=lambda _folder: room.needed_bytes)


def test_deleting_beside_others_needs_little_room_however_much_goes_and_is_offered(db: Path) -> None:
    add_session(db, "old", messages=3)
    large = replace(chosen(db), text_bytes=10**9, messages={"old": 10**6})
    large = replace(large, sizes=replace(large.sizes, page_count=10**6))
    (beside,), (alone,) = room_to_delete(large, beside=True), room_to_delete(large, beside=False)
    assert beside.needed_bytes == DELETE_MARGIN_BYTES + ONLINE_BYTES < alone.needed_bytes
    with pytest.raises(InsufficientSpace) as full:
        require_room_to_delete(large, beside=False, free=lambda _folder: beside.needed_bytes)
    assert full.value.hint.endswith(" larger file system. Or add --online, whose steps are smaller.")
    require_room_to_delete(large, beside=True, free=lambda _folder: beside.needed_bytes)
