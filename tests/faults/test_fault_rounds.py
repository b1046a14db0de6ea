"""Five seeded rounds of each accident for each operation: a failing file operation, a power cut, a kill.

The recording and the bench of an operation are made once and serve all three; the operations follow one another, so
that one recording is in memory at a time. Every place is tried by `./dev faults` (`test_fault_errors`,
`test_fault_power_loss`, `test_fault_kills`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hermes_state.testing.power_loss import Crash, crashes
from tests.faults.injecting import Bench, bench, meet
from tests.faults.judging import Clean, judge_crash, record_clean
from tests.faults.kill_server import KillServer
from tests.faults.killing import killed, kills
from tests.faults.operations import OPERATIONS

ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Made:
    """One operation, ready for its rounds."""

    clean: Clean
    bench: Bench


@pytest.fixture(scope="module", params=OPERATIONS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, operation_clock: Path) -> Made:
    folder = tmp_path_factory.mktemp(request.param)
    clean = record_clean(OPERATIONS[request.param], folder)
    return Made(clean=clean, bench=bench(OPERATIONS[request.param], folder / "bench", clean.states))


@pytest.fixture(scope="module")
def server(operation_clock: Path) -> Iterator[KillServer]:
    with KillServer() as running:
        yield running


@pytest.mark.slow
def test_a_few_faults_leave_the_store_before_or_after_a_step(made: Made, tmp_path: Path) -> None:
    chosen = random.Random(4).sample(made.bench.faults, ROUNDS)
    found = [meet(made.bench, fault, tmp_path / "run") for fault in chosen]
    assert [problem for problem in found if problem] == []


@pytest.mark.slow
def test_a_few_crashes_leave_a_state_between_two_steps(made: Made, tmp_path: Path) -> None:
    kept: list[Crash] = []
    chance = random.Random(7)
    for number, crash in enumerate(crashes(made.clean.recording, every="sync", seeds=(0, 1))):
        if len(kept) < ROUNDS:  # a sample of a stream: all the images would not fit into memory
            kept.append(crash)
        elif (place := chance.randrange(number + 1)) < ROUNDS:
            kept[place] = crash
    found = [judge_crash(made.clean, crash, tmp_path / "crash") for crash in kept]
    assert [problem for problem in found if problem] == []


@pytest.mark.slow
def test_a_kill_leaves_everything_that_was_acknowledged(server: KillServer, made: Made, tmp_path: Path) -> None:
    places = kills(made.bench)
    # Files are dropped by the system's own call, which the shim of SQLite's files does not see.
    assert places or made.clean.operation.name == "leftovers"
    chosen = random.Random(11).sample(places, min(ROUNDS, len(places)))
    found = [killed(server, made.bench, fault, tmp_path / "run") for fault in chosen]
    assert [problem for problem in found if problem] == []
