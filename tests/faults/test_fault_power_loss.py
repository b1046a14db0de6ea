"""Every operation is cut off at every write and sync, with what was not synced lost, kept or torn.

Whatever a power cut leaves, the store opens, passes its checks, shows a state between two steps, and has every step
that was acknowledged at `power`; where nothing unsynced is lost, as after kill -9, every step at `process` too. The
suite runs five of each (`test_fault_rounds`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.testing.power_loss import crashes
from tests.faults.judging import judge_crash, record_clean
from tests.faults.operations import OPERATIONS


@pytest.mark.campaign
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_crash_leaves_a_state_between_two_steps(name: str, tmp_path: Path, operation_clock: Path) -> None:
    clean = record_clean(OPERATIONS[name], tmp_path)
    count, problems = 0, []
    for crash in crashes(clean.recording, seeds=range(4)):
        count += 1
        problem = judge_crash(clean, crash, tmp_path / "crash")
        if problem:
            problems.append(problem)
    print(f"\n{name}: {len(clean.recording.events)} events, {count} crashes")
    assert problems == []
