"""Every operation is cut off at every write and sync, with what was not synced lost, kept or torn.

Whatever a power cut leaves, the store opens, passes its checks, shows a state between two steps, and has every step
that was acknowledged at `power`; where nothing unsynced is lost, as after kill -9, every step at `process` too.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hermes_state.testing.power_loss import Crash, crashes
from tests.faults.judging import Clean, judge_crash, record_clean
from tests.faults.operations import OPERATIONS, SOME

ROUNDS = 5


def cleaned(name: str, folder: Path) -> Clean:
    return record_clean(OPERATIONS[name], folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_a_few_crashes_leave_a_state_between_two_steps(name: str, tmp_path: Path, operation_clock: Path) -> None:
    clean = cleaned(name, tmp_path)
    kept: list[Crash] = []
    chance = random.Random(7)
    for number, crash in enumerate(crashes(clean.recording, every="sync", seeds=(0, 1))):
        if len(kept) < ROUNDS:  # a sample of a stream: all the images would not fit into memory
            kept.append(crash)
        elif (place := chance.randrange(number + 1)) < ROUNDS:
            kept[place] = crash
    found = [judge_crash(clean, crash, tmp_path / "crash") for crash in kept]
    assert [problem for problem in found if problem] == []


@pytest.mark.campaign
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_crash_leaves_a_state_between_two_steps(name: str, tmp_path: Path, operation_clock: Path) -> None:
    clean = cleaned(name, tmp_path)
    count, problems = 0, []
    for crash in crashes(clean.recording, seeds=range(4)):
        count += 1
        problem = judge_crash(clean, crash, tmp_path / "crash")
        if problem:
            problems.append(problem)
    print(f"\n{name}: {len(clean.recording.events)} events, {count} crashes")
    assert problems == []
