"""kill -9 in the middle of every operation, at a write, sync or truncation of its own choosing, and half into a write.

What a step acknowledged is there, whatever its durability: the system's memory outlives the process. The suite runs
five of each (`test_fault_rounds`).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hermes_state.testing.faults import Fault
from tests.faults.injecting import bench
from tests.faults.judging import record_clean
from tests.faults.kill_server import KillServer
from tests.faults.killing import killed, kills
from tests.faults.operations import OPERATIONS


@pytest.mark.campaign
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_anywhere_leaves_everything_that_was_acknowledged(
    name: str, tmp_path: Path, operation_clock: Path
) -> None:
    def most(places: list[Fault]) -> list[Fault]:
        return places if len(places) <= 120 else random.Random(11).sample(places, 120)

    clean = record_clean(OPERATIONS[name], tmp_path)
    ready = bench(OPERATIONS[name], tmp_path / "bench", clean.states)
    chosen = most(kills(ready))
    print(f"\n{name}: {len(chosen)} kills")
    with KillServer() as server:
        wrong = [problem for fault in chosen if (problem := killed(server, ready, fault, tmp_path / "run")) is not None]
    assert wrong == []
