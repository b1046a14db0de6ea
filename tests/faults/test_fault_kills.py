"""kill -9 in the middle of every operation, at a write, sync or truncation of its own choosing, and half into a write.

What a step acknowledged is there, whatever its durability: the system's memory outlives the process.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.testing import faults
from hermes_state.testing.faults import Fault
from tests.faults.injecting import Bench, bench, copied
from tests.faults.judging import is_one_of, once_more, record_clean, shown
from tests.faults.operation import start_clock
from tests.faults.operations import OPERATIONS
from tests.support.children import child_environment

KILLED_AT = ("write", "sync", "truncate", "delete")


def kills(ready: Bench) -> list[Fault]:
    """Every place where a run can be killed: before each operation, and in the middle of each write."""
    found = []
    for fault in ready.faults:
        if fault.action == "error" and fault.operation in KILLED_AT:
            for action in ("kill", "torn_kill") if fault.operation == "write" else ("kill",):
                found.append(Fault(operation=fault.operation, role=fault.role, number=fault.number, action=action))
    return found


def killed(ready: Bench, fault: Fault, folder: Path) -> str | None:
    """Run the operation in a child that is killed there; what is wrong afterwards."""
    home = copied(ready.start, folder)
    start_clock()
    command = faults.command([fault], "-m", "tests.faults.one_run", ready.operation.name, str(home))
    ran = subprocess.run(
        command, env=child_environment(own_packages=True), capture_output=True, text=True, timeout=120
    )
    try:
        if ran.returncode not in (0, -signal.SIGKILL):
            return f"{fault}: ended with {ran.returncode}: {ran.stderr}"
        done = ran.stdout.count("\n")
        ready.operation.also(home, done)
        state = shown(home, ready.operation)
        again = once_more(ready.operation, home, ready.states)
        if again is not None:
            return f"{fault}: {again}"
        if is_one_of(state, list(ready.states[done : done + 2]), whole=ready.operation.whole):
            return None
        return f"{fault}: {done} steps were told, the state is another one"
    except AssertionError as error:
        return f"{fault}: {error}"
    finally:
        shutil.rmtree(folder)


def checked(name: str, folder: Path, choose: Callable[[list[Fault]], list[Fault]]) -> list[str]:
    clean = record_clean(OPERATIONS[name], folder)
    ready = bench(OPERATIONS[name], folder / "bench", clean.states)
    chosen = choose(kills(ready))
    print(f"\n{name}: {len(chosen)} kills")
    return [problem for fault in chosen if (problem := killed(ready, fault, folder / "run")) is not None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["turn", "stream", "prune"])
def test_a_kill_leaves_everything_that_was_acknowledged(name: str, tmp_path: Path, operation_clock: Path) -> None:
    assert checked(name, tmp_path, lambda places: random.Random(11).sample(places, 5)) == []


@pytest.mark.campaign
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_anywhere_leaves_everything_that_was_acknowledged(
    name: str, tmp_path: Path, operation_clock: Path
) -> None:
    def most(places: list[Fault]) -> list[Fault]:
        return places if len(places) <= 120 else random.Random(11).sample(places, 120)

    assert checked(name, tmp_path, most) == []
