"""Verbs on native stores while programs use them: beside them by default, alone only when asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.engine.schema import known_migrations
from maintenance.gate.rows import ALSO_ONLINE, NATIVE_ONLINE, row_of
from tests.maintenance.native_stores import add_session, change, ids, new_store, value

# Every test runs the program in a process of its own, some several times.
pytestmark = pytest.mark.slow

RunCli = Callable[..., Any]

# Appends to a session of its own all the time, as a gateway does, until it is told to stop.
GATEWAY = """
import sys
import gates
from hermes_state import open_store
store = open_store(path=sys.argv[1])
session = store.sessions.create(source="telegram")
number = 0
store.messages.append(session.id, role="user", content="0")
gates.reach("ready")
while not gates.released("stop"):
    number += 1
    store.messages.append(session.id, role="user", content=str(number))
print(number + 1)
store.close()
"""


@pytest.fixture
def db(tmp_path: Path, fake_clock: Any) -> Path:
    return new_store(tmp_path)


@pytest.fixture
def gateway(db: Path, child: Any) -> Iterator[Any]:
    process = child(GATEWAY, db)
    process.wait_for("ready")
    yield process


def test_the_table_says_what_is_online_on_a_native_store() -> None:
    # Scrub takes the store alone on either dialect, and goes on beside others only because it cannot be put off.
    assert ALSO_ONLINE - {"sessions scrub"} == NATIVE_ONLINE
    assert [row_of(verb).native_online for verb in sorted(NATIVE_ONLINE)] == [True, True, True]
    assert row_of("sessions archive").native_online is False


def test_prune_and_optimize_work_beside_a_program_that_writes(run_cli: RunCli, db: Path, gateway: Any) -> None:
    for number in range(20):
        add_session(db, f"old{number}", bodies=["line of output\n" * 200] * 20)
    pruned = run_cli("sessions", "prune", "--yes", "--allow-large", "--json", "--db", str(db), "--keep-last", "5")
    assert pruned.exit_code == 0, pruned.stderr
    assert (json.loads(pruned.stdout)["mode"], json.loads(pruned.stdout)["session_count"]) == ("online", 16)
    optimized = run_cli("sessions", "optimize", "--json", "--db", str(db))
    assert optimized.exit_code == 0, optimized.stderr
    assert json.loads(optimized.stdout)["compressed"]["message_count"] == 80
    gateway.release("stop")
    written = int(gateway.finish())
    assert value(db, "SELECT count(*) FROM messages AS m JOIN sessions AS s ON s.no = m.session_no"
                     " WHERE s.source = 'telegram'") == written
    assert run_cli("doctor", "--deep", "--db", str(db)).exit_code == 0


@pytest.mark.parametrize("verb", ["prune", "optimize"])
def test_offline_is_refused_beside_a_holder_and_says_what_works(
    run_cli: RunCli, db: Path, gateway: Any, verb: str
) -> None:
    add_session(db, "old")
    more = ("--yes", "--allow-large") if verb == "prune" else ()
    refused = run_cli("sessions", verb, "--offline", *more, "--db", str(db))
    assert refused.exit_code == 1
    assert f"PID {gateway.pid} (" in refused.stderr
    assert (
        f"Or leave --offline away: `hermes-state sessions {verb}` works in small steps beside them." in refused.stderr
    )
    assert "old" in ids(db)


def test_a_store_of_a_newer_release_is_not_written_to(run_cli: RunCli, db: Path) -> None:
    add_session(db, "old")
    change(db, "INSERT INTO migrations VALUES (900, '0900_pre_later', 'ab', 1, '9.0')")
    for verb in (("prune", "--yes", "--allow-large"), ("optimize",), ("archive", "old")):
        refused = run_cli("sessions", *verb, "--db", str(db))
        assert refused.exit_code == 1
        assert refused.stderr.startswith(
            f"Error: {db} has schema step 900 (0900_pre_later); this release knows steps up to "
                f"{known_migrations()[-1].number}."
        )
    assert ids(db) == {"old"}
