"""An operation killed in the middle of a file operation: where that can be, and what it must leave."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from hermes_state.testing.faults import Fault
from tests.faults.injecting import Bench, copied
from tests.faults.judging import is_one_of, once_more, shown
from tests.faults.kill_server import KillServer
from tests.faults.operation import start_clock

KILLED_AT = ("write", "sync", "truncate", "delete")


def kills(ready: Bench) -> list[Fault]:
    """Every place where a run can be killed: before each operation, and in the middle of each write."""
    found = []
    for fault in ready.faults:
        if fault.action == "error" and fault.operation in KILLED_AT:
            for action in ("kill", "torn_kill") if fault.operation == "write" else ("kill",):
                found.append(Fault(operation=fault.operation, role=fault.role, number=fault.number, action=action))
    return found


def killed(server: KillServer, ready: Bench, fault: Fault, folder: Path) -> str | None:
    """Run the operation in a child that is killed there; what is wrong afterwards."""
    home = copied(ready.start, folder)
    start_clock()
    ran = server.run(ready.operation.name, home, fault)
    try:
        if ran.status not in (0, -signal.SIGKILL):
            return f"{fault}: ended with {ran.status}: {ran.stderr}"
        ready.operation.also(home, ran.steps)
        state = shown(home, ready.operation)
        again = once_more(ready.operation, home, ready.states)
        if again is not None:
            return f"{fault}: {again}"
        if is_one_of(state, list(ready.states[ran.steps : ran.steps + 2]), whole=ready.operation.whole):
            return None
        return f"{fault}: {ran.steps} steps were told, the state is another one"
    except AssertionError as error:
        return f"{fault}: {error}"
    finally:
        shutil.rmtree(folder)
