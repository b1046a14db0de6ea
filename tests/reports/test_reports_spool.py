"""Reports 28 and 32: a store that takes nothing costs no turn, and that turns wait is said where people look."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state import open_store
from hermes_state.clock import FakeClock
from hermes_state.engine import open_write
from hermes_state.errors import Corrupt, LockTimeout, StateError
from hermes_state.testing import corruption
from tests.maintenance.damage import change, examined
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.fixture
def db(tmp_path: Path, fake_clock: FakeClock) -> Path:
    path = tmp_path / "home" / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="chat", source="telegram")
    return path


def contents(db: Path) -> list[object]:
    with open_store(path=db) as store:
        return [message.content for message in store.messages.history("chat", after=0, limit=1000).messages]


# --- 32: writes through a damaged index, and a queue that drops what is older than its 200 entries ----------------


def save_on(db: Path, numbers: range) -> set[str]:
    """Save a turn of one message for each number, as a gateway that lives on does; why the store took none of them."""
    causes = set()
    with open_store(path=db) as store:
        for number in numbers:
            saved = store.spool.save("chat", [{"role": "user", "content": f"turn {number}"}], deadline_seconds=0)
            assert saved.ids is None, number
            causes.add(saved.cause.code if isinstance(saved.cause, StateError) else "none")
    return causes


def test_two_hundred_and_fifty_turns_outlive_a_damaged_index_in_order(db: Path, run_cli: RunCli) -> None:
    with open_store(path=db) as store:
        for number in range(400):
            store.messages.append("chat", role="user", content=f"before {number}")
    before = contents(db)
    change(db)  # all of it is in the main file then
    corruption.zero_root(db, "messages_session")
    assert save_on(db, range(250)) == {Corrupt.code}
    found = examined(db)
    assert found.next_command == f"hermes-state sessions repair --db {db}"
    assert run_cli("sessions", "repair", "--db", db, "--yes").exit_code == 0
    assert contents(db) == before
    assert run_cli("sessions", "spool", "--replay", "--db", db).stdout == (
        f"250 turns brought in, 250 messages of them new.\nNothing waits beside {db}.\n"
    )
    assert contents(db) == [*before, *(f"turn {number}" for number in range(250))]
    assert examined(db).verdict == "healthy"


# --- 28: a fallback that hides what is wrong ---------------------------------------------------------------------


def test_turns_that_wait_are_said_by_the_doctor_with_the_command_that_brings_them_in(
    db: Path, run_cli: RunCli
) -> None:
    with open_write(db) as other, other.transaction() as tx:
        tx.execute("UPDATE sessions SET title = title")
        assert save_on(db, range(2)) == {LockTimeout.code}
        told = run_cli("doctor", "--db", db)
    said = (
        "problem  2 turns could not be saved in the store and wait beside it since today 08:00 "
        f"({LockTimeout.code}); nothing shows what waits until they are brought in."
    )
    assert told.exit_code == 3
    assert told.stdout.splitlines()[1] == said
    last = told.stdout.splitlines()[-1]
    assert last == f"Next: hermes-state sessions spool --db {db} --replay"
    assert run_cli(*last.split()[2:]).exit_code == 0
    assert contents(db) == ["turn 0", "turn 1"]
    assert "turns_waiting" not in {finding.code for finding in examined(db).findings}


def test_turns_that_can_never_be_stored_are_said_by_the_doctor(db: Path, run_cli: RunCli) -> None:
    with open_write(db) as other, other.transaction() as tx:
        tx.execute("UPDATE sessions SET title = title")
        save_on(db, range(1))
    with open_store(path=db) as store:
        store.sessions.delete("chat", actor="test", reason="test")
    assert run_cli("sessions", "spool", "--replay", "--db", db).exit_code == 3
    (found,) = [finding for finding in examined(db).findings if finding.code == "turns_quarantined"]
    assert found.sentence == "1 turn can never be stored as it is; the spool says why."
    assert found.next_command == f"hermes-state sessions spool --db {db}"
    assert found.facts == {"turns": 1, "codes": ["session_deleted"]}
