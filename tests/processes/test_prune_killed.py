"""kill -9 in the middle of a prune: the store stays whole, the ledger knows, and the same command finishes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from tests.maintenance.removal_stores import (
    add_session,
    empty_store,
    ids,
    ledger_lines,
    message_owners,
    named_in_ledger,
    problems,
    rows,
)
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

# The real run with small transactions; it stops at a gate between them, or inside one before its COMMIT.
PRUNING = """
import sys
from dataclasses import replace
from pathlib import Path

import gates
import maintenance.removal.sweep as sweeping
from hermes_state.clock import clock_from_environment
from maintenance.context import Context
from maintenance.dialects.foreign.dialect import ForeignDialect
from maintenance.gate import reading
from maintenance.removal import executor
from maintenance.removal.choice import choose_for_prune
from maintenance.removal.pacing import Pace
from maintenance.removal.record import Record
from maintenance.selection import Filters

db, where, step, beside = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "online"
clock = clock_from_environment()
ctx = Context(home=db.parent, profile=None, db=db, json=False, clock=clock)
count = 0

def stop(point):
    global count
    if point != where:
        return
    count += 1
    if count == step:
        gates.reach("stopped")
        gates.wait("never")

class Stopping(ForeignDialect):
    def delete_sessions(self, tx, ids, deed=None, **bounds):
        found = super().delete_sessions(tx, ids, deed, **bounds)
        stop("inside")
        return found

    def delete_messages(self, tx, session_id, limit, deed=None):
        found = super().delete_messages(tx, session_id, limit, deed)
        stop("inside")
        return found

small = Pace(most_rows=10, rows=10, budget_seconds=None, deadline_seconds=5.0)
Pace.online = Pace.alone = classmethod(lambda cls, **said: replace(small))
forget = executor.forget_sessions

def forget_later(db, ids):
    stop("committed")
    return forget(db, ids)

executor.forget_sessions = forget_later
with reading(ctx) as store:
    choice = choose_for_prune(store, Filters(), clock.now())
    choice = replace(choice, dialect=Stopping.of(store))
record = Record(db=db, verb="sessions prune", reason="test", filters={}, clock=clock)
report = sweeping.SweepReport()
sweeping.sweep(
    ctx, "sessions prune", choice, record, report, beside=beside, policy="never", between=lambda: stop("between")
)
gates.reach("stopped", "ran to the end")
"""


def make_store(db: Path) -> Path:
    """Small sessions, one larger than a transaction, a conversation in parts with a delegate, one that stays."""
    empty_store(db)
    for number in range(4):
        add_session(db, f"small-{number}", messages=3)
    add_session(db, "large", messages=35)
    add_session(db, "part-1", messages=12, end_reason="compression")
    add_session(db, "part-2", messages=4, parent="part-1")
    add_session(db, "helper", messages=15, parent="part-1", delegate_of="part-1", source="subagent")
    add_session(db, "young", messages=5, days_old=1)
    add_session(db, "branch", messages=2, days_old=1, parent="part-2", branched_from="part-2")
    (db.parent / "sessions").mkdir()
    for key in ids(db):
        (db.parent / "sessions" / f"{key}.json").write_text("{}", encoding="utf-8")
    return db


STAY = {"young", "branch"}


@pytest.mark.parametrize("manner", ["online", "alone"])
@pytest.mark.parametrize(
    ("where", "step"),
    [("between", 1), ("between", 3), ("between", 6), ("between", 9), ("inside", 1), ("inside", 4), ("inside", 8),
     ("committed", 1), ("committed", 3)],
)
def test_killed_prune_leaves_a_whole_store_and_the_same_command_finishes_it(
    store_copy: StoreCopy, fake_clock: FakeClock, child: Children, run_cli: RunCli, where: str, step: int, manner: str
) -> None:
    db = make_store(store_copy("0.19.0"))
    before = ids(db)
    pruning = child(PRUNING, db, where, step, manner)
    assert pruning.wait_for("stopped") == "", "the run ended before the point at which it was to be killed"
    pruning.kill()

    assert problems(db) == []
    left = ids(db)
    assert left >= STAY
    assert message_owners(db) <= left
    named = named_in_ledger(ledger_lines(db))
    assert before - left <= named, "a delete happened that no ledger line names"
    assert named.isdisjoint(STAY)
    # A session is still chosen until all of it is gone, so nothing is left half deleted for good.
    files = {path.stem for path in (db.parent / "sessions").iterdir()}
    assert left <= files

    done = run_cli("sessions", "prune", "--yes", "--allow-large", "--json")
    assert done.exit_code == 0, done.stderr
    assert ids(db) == STAY
    assert message_owners(db) == STAY
    assert problems(db) == []
    assert {path.stem for path in (db.parent / "sessions").iterdir()} == STAY
    assert rows(db, "SELECT parent_session_id FROM sessions WHERE id = 'branch'") == [(None,)]
    lines = ledger_lines(db)
    assert before - STAY <= named_in_ledger(lines)
    closed = {line["run"] for line in lines if not line["sessions"]}
    assert {line["run"] for line in lines} == closed


def test_run_that_committed_everything_but_was_killed_before_its_files_went_is_settled_by_the_next(
    store_copy: StoreCopy, fake_clock: FakeClock, child: Children, run_cli: RunCli
) -> None:
    db = empty_store(store_copy("0.19.0"))
    add_session(db, "old")
    add_session(db, "young", days_old=1)
    add_session(db, "next", days_old=85)
    (db.parent / "sessions").mkdir()
    (db.parent / "sessions" / "old.json").write_text("{}", encoding="utf-8")
    pruning = child(PRUNING, db, "committed", 1, "alone")
    assert pruning.wait_for("stopped") == ""
    pruning.kill()
    assert ids(db) == {"young", "next"}
    assert (db.parent / "sessions" / "old.json").exists()
    done = run_cli("sessions", "prune", "--older-than", "80d", "--yes", "--json")
    assert (done.json["settled_run_count"], done.json["settled_file_count"]) == (1, 1)
    assert not (db.parent / "sessions" / "old.json").exists()
