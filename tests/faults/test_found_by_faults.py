"""What failing reads and writes have brought to light, each by itself."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from hermes_state import open_store
from hermes_state.errors import StateError
from hermes_state.testing import corruption
from hermes_state.testing.faults import Fault, inject
from maintenance.repair import repair
from tests.faults.operation import STORE, conversation, foreign, settled, verb


@pytest.mark.slow
def test_a_full_disk_in_the_first_commit_of_a_wal_is_no_damage_of_it(tmp_path: Path) -> None:
    """The WAL index knows no page size before the first commit, so a look at the frames must take it from the WAL."""
    conversation(tmp_path)
    for number in range(2, 14):
        settled(tmp_path / STORE)
        full = Fault(operation="write", role="wal", number=number, action="short")
        with inject(full) as injection:
            try:
                with open_store(path=tmp_path / STORE) as store:
                    store.messages.append("talk", role="user", content=f"{number} " + "word " * 4000)
            except StateError:
                pass
        assert injection.hit or number > 2
        verb(tmp_path, "sessions", "rename", "talk", f"name {number}")


@pytest.mark.slow
def test_a_read_that_fails_while_the_schema_is_read_tolerantly_costs_no_entry(tmp_path: Path) -> None:
    """Under `writable_schema` SQLite takes the part of a schema that it could read for all of it, and says nothing."""
    raised = 0
    for number in range(314, 328, 2):
        home = tmp_path / str(number)
        foreign(home)
        whole = _names(home / STORE)
        corruption.duplicate_schema_row(home / STORE, "messages")
        with inject(Fault(operation="read", role="main", number=number)):
            try:
                repair(home / STORE)
            except StateError:
                raised += 1
                continue
        assert _names(home / STORE) == whole, number
    assert raised


def _names(path: Path) -> list[object]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute("SELECT type, name FROM sqlite_schema ORDER BY 1, 2").fetchall()  # type: ignore[return-value]
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["lock_index", "size"])
def test_a_store_that_could_not_be_looked_at_is_not_called_sound(tmp_path: Path, operation: str) -> None:
    raised = 0
    for number in (3, 10, 16, 24, 38, 49):
        home = tmp_path / str(number)
        foreign(home)
        corruption.duplicate_schema_row(home / STORE, "messages")
        with inject(Fault(operation=operation, role="main", number=number)):  # type: ignore[arg-type]
            try:
                report = repair(home / STORE)
            except StateError:
                raised += 1
                continue
        assert report.outcome == "repaired", number
    assert raised
