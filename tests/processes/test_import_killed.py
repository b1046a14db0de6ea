"""kill -9 in an import: what was committed is there once, and the same command brings the rest (report 228)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_state.store import open_store
from tests.maintenance.transcripts import write
from tests.support.children import Children
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow

# The real import in small transactions; it stops at a gate inside one, before its COMMIT, or after it.
IMPORTING = """
import sys
from pathlib import Path

import gates
from hermes_state.engine.core import Core
from hermes_state.store import open_store
from maintenance.intake import merge
from maintenance.intake.records import RecordSource

db, file, where, step = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
count = 0
write = Core.write

def stopping(self, work, **more):
    def counted(tx):
        done = work(tx)
        stop("inside")
        return done

    done = write(self, counted, **more)
    stop("committed")
    return done

def stop(point):
    global count
    if point == where:
        count += 1
        if count == step:
            gates.reach("stopped")
            gates.wait("never")

merge.BATCH_ROWS = 3
merge.SESSIONS_AT_ONCE = 2
Core.write = stopping
source = RecordSource(file, "hermes-agent")
with open_store(path=db) as store:
    merge.Merger(store.core, source, source.look(), write=True).run()
gates.reach("done")
"""


def conversations() -> list[dict[str, Any]]:
    found = []
    for name in ("a", "b", "c"):
        rows = [
            {
                "id": number,
                "role": "user",
                "content": f"{name} {number}",
                "timestamp": 1000.0,
                "active": int(number != 2),
            }
            for number in range(1, 8)
        ]
        found.append(
            {
                "id": name,
                "source": "cli",
                "started_at": 1000.0,
                "ended_at": 2000.0,
                "end_reason": "cli_close",
                "title": f"Talk {name}",
                "api_call_count": 3,
                "messages": rows,
            }
        )
    return found


def state(path: Path) -> list[Any]:
    with open_store(path=path) as store:
        return [
            (
                session.id,
                session.state,
                session.title,
                session.extra,
                store.usage.of_session(session.id).total.api_calls,
                [
                    (message.seq, message.content, message.hidden)
                    for message in store.messages.history(session.id, limit=50, include_rewound=True).messages
                ],
            )
            for session in (store.sessions.get(name) for name in ("a", "b", "c"))
        ]


# 2 transactions make the session rows, then 3 for the messages and 1 for the rest of each session.
@pytest.mark.parametrize("where", ["inside", "committed"])
@pytest.mark.parametrize("step", [1, 2, 4, 6, 9, 14])
def test_the_same_import_finishes_what_a_kill_cut_off(
    where: str, step: int, child: Children, run_cli: RunCli, tmp_path: Path
) -> None:
    file = write(tmp_path / "talks.jsonl", conversations())
    db, whole = tmp_path / "home" / "state.db", tmp_path / "whole" / "state.db"
    for path in (db, whole):
        open_store(path=path).close()
    killed = child(IMPORTING, db, file, where, step)
    killed.wait_for("stopped")
    killed.kill()
    answer = run_cli("sessions", "import", file, "--yes", "--verify", "--json")
    assert answer.exit_code == 0, answer.stderr
    done = answer.json
    assert done["messages_new"] + done["messages_known"] == 21
    assert done["verified"] == {"messages": 21, "missing": 0}
    again = run_cli("sessions", "import", file, "--yes", "--json").json
    assert (again["already_done"], again["messages_known"]) == (True, 21)
    assert run_cli("sessions", "import", file, "--yes", "--db", whole).exit_code == 0
    assert state(db) == state(whole)


def test_two_imports_of_one_file_at_once_add_each_message_once(
    child: Children, run_cli: RunCli, tmp_path: Path
) -> None:
    file = write(tmp_path / "talks.jsonl", conversations())
    db = tmp_path / "home" / "state.db"
    open_store(path=db).close()
    first = child(IMPORTING, db, file, "committed", 5)
    first.wait_for("stopped")
    assert run_cli("sessions", "import", file, "--yes").exit_code == 0
    first.release("never")
    first.wait_for("done")
    with open_store(path=db) as store:
        assert store.messages.count() == 21
    assert run_cli("sessions", "import", file, "--yes", "--verify", "--json").json["verified"]["missing"] == 0
