"""Prune rewrites only what was checked, and beside a replica nothing empties the WAL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import SYSTEM, FakeClock
from hermes_state.engine import open_read
from maintenance.removal import sweep as sweeping
from maintenance.removal.choice import choose_for_prune
from maintenance.removal.record import Record
from maintenance.removal.sweep import UNCHECKED, SweepReport, sweep
from maintenance.selection import Filters
from maintenance.space.litestream import WAL_KEPT
from maintenance.space.verify import check
from tests.maintenance.damage import leaves, overwrite_page
from tests.maintenance.removal_stores import NOW, add_session, change, context, empty_store, ids, ledger_lines, problems
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow


@pytest.fixture
def db(store_copy: StoreCopy, fake_clock: FakeClock) -> Path:
    """A 0.19.0 store with a large old session and a young one."""
    path = empty_store(store_copy("0.19.0"))
    add_session(path, "old", messages=400)
    add_session(path, "young", days_old=1)
    return path


def pruned(db: Path) -> SweepReport:
    """Everything that prune does between its question and its report."""
    with open_read(db) as store:
        choice = choose_for_prune(store, Filters(), NOW)
    record = Record(db=db, verb="sessions prune", reason="", filters={}, clock=SYSTEM)
    report = SweepReport()
    sweep(context(db), "sessions prune", choice, record, report, beside=False, policy="auto")
    return report


def test_damaged_pages_are_found_before_anything_is_deleted(db: Path, run_cli: RunCli) -> None:
    # Where the plan does not read: it would say so by itself.
    overwrite_page(db, leaves(db, "messages_fts_content")[-1], b"\xff" * 64)
    before = db.read_bytes()
    result = run_cli("sessions", "prune", "--yes")
    assert (result.exit_code, result.stdout) == (65, "")
    assert f"Error: {db} is damaged, found before anything was deleted: " in result.stderr
    assert f"doctor --db {db}` first." in result.stderr
    assert ledger_lines(db) == []
    assert db.read_bytes() == before


def test_a_store_that_moved_on_after_its_check_is_pruned_and_not_rewritten(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_and_then_write(*args: Any, **named: Any) -> Any:
        found = check(*args, **named)
        change(db, "UPDATE sessions SET title = 'written meanwhile' WHERE id = 'young'")
        return found

    monkeypatch.setattr(sweeping, "check", check_and_then_write)
    report = pruned(db)
    assert ids(db) == {"young"}
    assert report.decision is not None and not report.decision.runs
    assert report.decision.reason == UNCHECKED
    assert problems(db) == []


def test_both_parts_of_a_prune_stand_on_one_check(db: Path) -> None:
    add_session(db, "with nul", messages=400, text="\0json: behind the first byte")
    report = pruned(db)
    assert ids(db) == {"young"}
    assert report.decision is not None and report.decision.runs
    assert problems(db) == []


@pytest.mark.parametrize("words", ["prune --yes", "optimize --reclaim always", "optimize-storage"])
@pytest.mark.parametrize("replicated", [True, False])
def test_the_wal_is_emptied_unless_a_replica_reads_it_and_then_the_report_says_so(
    db: Path, run_cli: RunCli, words: str, replicated: bool
) -> None:
    if replicated:
        (db.parent / ".state.db-litestream").mkdir()
    result = run_cli("sessions", *words.split())
    assert result.exit_code == 0, result.stderr
    wal = db.with_name("state.db-wal")
    assert (os.stat(wal).st_size > 0) is replicated
    assert (WAL_KEPT in result.stdout.splitlines()) is replicated
    with open_read(db) as store:
        assert os.stat(db).st_size == store.page_count * store.page_size
    assert problems(db) == []
