"""`prune --online` beside a program that writes: nothing of it is lost and it is never told that the store is busy."""

from __future__ import annotations

import pytest

from hermes_state.clock import FakeClock
from tests.maintenance.removal_stores import add_session, empty_store, ids, problems, rows
from tests.support.children import Children
from tests.support.cli import RunCli
from tests.support.stores import StoreCopy

pytestmark = pytest.mark.slow

# As hermes-agent writes: the standard library, one second of patience, a transaction a message.
WRITER = """
import sqlite3, sys, time
import gates

connection = sqlite3.connect(sys.argv[1], timeout=1.0, isolation_level=None)
connection.execute("PRAGMA foreign_keys = ON")
number = 0
while not gates.released("stop"):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('live', 'user', ?, ?)",
        (f"written beside a prune {number}", time.time()),
    )
    connection.execute("COMMIT")
    number += 1
    if number == 3:
        gates.reach("writing")
    time.sleep(0.001)
connection.close()
gates.reach("done", number)
"""


def test_writer_beside_an_online_prune_loses_nothing_and_is_never_refused(
    store_copy: StoreCopy, child: Children, run_cli: RunCli
) -> None:
    db = empty_store(store_copy("0.19.0"))
    for number in range(30):
        add_session(db, f"old-{number}", messages=60)
    add_session(db, "live", messages=1, days_old=1, ended=False)
    writer = child(WRITER, db, own_packages=False, audited=False)
    writer.wait_for("writing")
    done = run_cli("sessions", "prune", "--older-than", "1d", "--yes", "--allow-large", "--online", "--json")
    assert done.exit_code == 0, done.stderr
    assert done.json["mode"] == "online"
    assert done.json["session_count"] == 30
    assert done.json["transaction_count"] > 5
    writer.release("stop")
    written = int(writer.wait_for("done"))
    writer.finish()
    found = rows(db, "SELECT count(*) FROM messages WHERE content LIKE 'written beside a prune %'")
    assert found == [(written,)]
    assert ids(db) == {"live"}
    assert problems(db) == []


def test_prune_is_refused_beside_a_writer_without_online_and_names_it(
    store_copy: StoreCopy, fake_clock: FakeClock, child: Children, run_cli: RunCli
) -> None:
    db = empty_store(store_copy("0.19.0"))
    add_session(db, "old")
    add_session(db, "live", days_old=1, ended=False)
    writer = child(WRITER, db, own_packages=False, audited=False)
    writer.wait_for("writing")
    refused = run_cli("sessions", "prune", "--yes")
    assert refused.exit_code == 1
    assert refused.stdout == ""
    lines = refused.stderr.splitlines()
    assert lines[0] == (
        f"Error: `sessions prune` needs {db} for itself, and 1 other process has it open. Nothing was changed."
    )
    assert lines[1].startswith(f"Why: PID {writer.pid} (")
    assert lines[-1] == (
        "Try: Stop what is listed, then run it again. Or run `hermes-state sessions prune --online`, which works in "
        "small steps beside them."
    )
    assert "old" in ids(db)
    writer.release("stop")
    writer.finish()


def test_session_used_between_the_plan_and_its_delete_stays(
    store_copy: StoreCopy, fake_clock: FakeClock
) -> None:
    """Each of these changes happens after the plan was made and before the first transaction begins."""
    from maintenance.gate import reading
    from maintenance.marks import set_mark
    from maintenance.removal.choice import choose_for_prune
    from maintenance.removal.record import Record
    from maintenance.removal.sweep import SweepReport, sweep
    from maintenance.selection import Filters
    from tests.maintenance.removal_stores import NOW, change, context, ledger_lines

    db = empty_store(store_copy("0.19.0"))
    for name in ("written", "reopened", "pinned", "leased", "parent", "untouched", "gone"):
        add_session(db, name)
    ctx = context(db, clock=fake_clock)
    with reading(ctx) as store:
        choice = choose_for_prune(store, Filters(), NOW)
    change(
        db,
        ("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('written', 'user', 'x', ?)", (NOW,)),
        "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = 'reopened'",
        (
            "INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at) VALUES ('leased', 'h', ?, ?)",
            (NOW, NOW + 300),
        ),
        "DELETE FROM messages WHERE session_id = 'gone'",
        "DELETE FROM sessions WHERE id = 'gone'",
    )
    set_mark(db, ["pinned"], "pinned", True)
    add_session(db, "child", parent="parent", days_old=0)
    record = Record(db=db, verb="sessions prune", reason="test", filters={}, clock=fake_clock)
    report = SweepReport()
    sweep(ctx, "sessions prune", choice, record, report, beside=True, policy="never")
    assert {one.session_id: one.reason for one in report.removed.kept} == {
        "written": "it was used meanwhile",
        "reopened": "it was reopened meanwhile",
        "pinned": "it was pinned meanwhile",
        "leased": "it is being compressed (lock of h)",
        "parent": "another session was started from it meanwhile",
    }
    assert ids(db) == {"written", "reopened", "pinned", "leased", "parent", "child"}
    kept = [line for line in ledger_lines(db) if line["reason"].startswith("kept: ")]
    assert {line["sessions"][0] for line in kept} == {"written", "reopened", "pinned", "leased", "parent"}


LOCK_HOLDER = """
import sqlite3, sys
import gates

connection = sqlite3.connect(sys.argv[1], timeout=1.0, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
gates.reach("holding")
gates.wait("go")
connection.execute("ROLLBACK")
"""


def test_lock_that_does_not_come_is_exit_75_with_the_command_line_logged_and_not_in_the_error(
    store_copy: StoreCopy, fake_clock: FakeClock, child: Children, run_cli: RunCli
) -> None:
    db = empty_store(store_copy("0.19.0"))
    add_session(db, "old")
    add_session(db, "young", days_old=1)
    holder = child(LOCK_HOLDER, db, own_packages=False, audited=False)
    holder.wait_for("holding")
    done = run_cli("sessions", "prune", "--yes", "--online")
    assert done.exit_code == 75
    logged = [line for line in done.stderr.splitlines() if str(holder.folder) in line]
    assert len(logged) == 1, "one warning for the one process that holds the write lock"
    error = next(line for line in done.stderr.splitlines() if line.startswith("Error: "))
    assert f"PID {holder.pid}" in error
    assert str(holder.folder) not in error
    assert ids(db) == {"old", "young"}
    holder.release("go")
