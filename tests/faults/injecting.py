"""Every operation with one fault at a time: which faults there are, and what each may leave.

Reads fail; they do not lie: SQLite writes back a page that it was given as zeros, and nothing above it can tell.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hermes_state.errors import StateError
from hermes_state.testing.faults import Action, Fault, Role, inject
from hermes_state.testing.faults import Operation as FileOperation
from tests.faults.judging import Steps, is_one_of, once_more, prepared, shown
from tests.faults.operation import Operation, State, begin

ACTIONS: dict[FileOperation, tuple[Action, ...]] = {
    "open": ("error",), "read": ("error",), "write": ("error", "full", "torn", "short"), "sync": ("error",),
    "truncate": ("error",), "size": ("error",), "delete": ("error",), "lock": ("error",),
    "map_index": ("error",), "lock_index": ("error",),
}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """An operation made ready to be run again and again from the same files."""

    operation: Operation
    # the home that each run starts from
    start: Path
    # the states before the first step, and after each
    states: tuple[State, ...]
    # every single fault that a run can meet
    faults: tuple[Fault, ...]


def bench(operation: Operation, folder: Path, states: tuple[State, ...]) -> Bench:
    """Prepare the operation and count what one run does to its files."""
    start = prepared(operation, folder / "start")
    home = copied(start, folder / "counted")
    with inject() as injection:
        begin(home, operation, Steps())
    shutil.rmtree(folder / "counted")
    return Bench(
        operation=operation, start=start, states=states, faults=tuple(_all(dict(injection.counts)))
    )


def copied(start: Path, folder: Path) -> Path:
    """A private copy of a home."""
    return Path(shutil.copytree(start, folder / "home"))


def _all(counts: dict[tuple[str, str], int]) -> Iterator[Fault]:
    for (role, kind), count in sorted(counts.items()):
        for number in range(1, count + 1):
            yield from _faults(role, kind, number)  # type: ignore[arg-type]


def _faults(role: Role, kind: FileOperation, number: int) -> Iterator[Fault]:
    for action in ACTIONS[kind]:
        yield Fault(operation=kind, role=role, number=number, action=action)
    if kind == "write":  # a disk that is full from here on
        yield Fault(operation=kind, role=role, number=number, action="full", times=None)


def meet(ready: Bench, fault: Fault, folder: Path) -> str | None:
    """Run the operation with the fault; what is wrong afterwards, None when nothing is."""
    home, told, raised = copied(ready.start, folder), Steps(), ""
    where = f"{ready.operation.name}: {fault}"
    try:
        with inject(fault) as injection:
            try:
                begin(home, ready.operation, told)
            except StateError as error:
                raised = f"{type(error).__name__}: {error}"
            except Exception as error:
                return f"{where}: {type(error).__name__} came out: {error}"
        if raised and not injection.hit:
            return f"{where}: failed without the fault: {raised}"
        try:
            ready.operation.also(home, len(told.done))
            state = shown(home, ready.operation)
            again = once_more(ready.operation, home, ready.states)
        except StateError as error:
            refused = error.code in ready.operation.refusals
            return None if refused else f"{where}: then {type(error).__name__}: {error} (first {raised})"
        except AssertionError as error:
            return f"{where}: {str(error)[:300]} (first {raised})"
        if again is not None:
            return f"{where}: {again} (first {raised})"
        done = len(told.done)
        states = list(ready.states[done : done + 2 if raised else done + 1])
        if not is_one_of(state, states, whole=ready.operation.whole):
            known = [number for number, other in enumerate(ready.states) if other == state]
            return f"{where}: {done} steps were told, the state is that after {known or 'none'} (raised {raised})"
        return None
    finally:
        shutil.rmtree(folder)
