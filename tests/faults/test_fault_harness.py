"""The harness finds what it is for: an operation with a planted fault does not pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hermes_state import open_store
from hermes_state.testing.power_loss import crashes
from tests.faults.injecting import bench, meet
from tests.faults.judging import judge_crash, record_clean
from tests.faults.operation import STORE, Done, Operation
from tests.faults.operations import OPERATIONS


def planted(run: Callable[[Path, Done], None]) -> Operation:
    return dataclasses.replace(OPERATIONS["append_power"], name="planted", run=run)


def acknowledged_too_much(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        store.messages.append("talk", role="user", content="only at process")
        done("told to be at power", "power")


def two_transactions(home: Path, done: Done) -> None:
    with open_store(path=home / STORE) as store:
        store.messages.append("talk", role="user", content="first half", durability="power")
        store.messages.append("talk", role="user", content="second half", durability="power")
        done("both", "power")


def without_syncs(home: Path, done: Done) -> None:
    """Writes to the file with no sync at all, as `synchronous = off` does."""
    connection = apsw.Connection(str(home / STORE))
    connection.execute("PRAGMA synchronous = off").fetchall()
    for number in range(3):
        connection.execute("INSERT INTO shared_texts(hash, text_bytes, body) VALUES(?, 1, zeroblob(9000))", (number,))
    connection.close()
    done("written", "process")


def swallowing(home: Path, done: Done) -> None:
    try:
        with open_store(path=home / STORE) as store:
            store.messages.append("talk", role="user", content="maybe", durability="power")
    except Exception:
        pass
    done("nobody looked", "power")


def by_crashes(operation: Operation, folder: Path, operation_clock: Path) -> list[str]:
    clean = record_clean(operation, folder)
    found = [judge_crash(clean, crash, folder / "crash") for crash in crashes(clean.recording, seeds=range(3))]
    return [problem for problem in found if problem]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "says"),
    [
        (acknowledged_too_much, "the state is that after step [0], not 1 to 2"),
        (two_transactions, "the state is that after step none, not 0 to 1"),
        (without_syncs, "planted at "),
    ],
)
def test_power_cuts_find_it(
    run: Callable[[Path, Done], None], says: str, tmp_path: Path, operation_clock: Path
) -> None:
    found = by_crashes(planted(run), tmp_path, operation_clock)
    assert found
    assert all(says in problem for problem in found)


@pytest.mark.slow
def test_failing_writes_find_an_error_that_was_swallowed(tmp_path: Path, operation_clock: Path) -> None:
    operation = planted(swallowing)
    clean = record_clean(operation, tmp_path)
    ready = bench(operation, tmp_path / "bench", clean.states)
    fault = next(fault for fault in ready.faults if fault.operation == "write" and fault.role == "wal")
    found = meet(ready, fault, tmp_path / "run")
    assert found is not None
    assert "1 steps were told, the state is that after [0]" in found
