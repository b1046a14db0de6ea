"""hermes-agent's own locks of a home's cron, as it takes them: `.tick.lock`, then `.jobs.lock`, both by flock.

Invariant: while both are had, no tick of hermes-agent selects jobs and no process of it writes jobs.json. It waits 30 s
for the second and then writes without it, so whoever has it must be done long before: `Locks.left` says how long it may
still count. The files are hermes-agent's: made when they are not there, as it does, never removed.

Not for: stores. One lock of our own beside them was rejected: hermes-agent does not know it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.errors import CannotOpen, LockTimeout
from hermes_state.file_lock import CLOSE_ON_EXEC, try_lock_alone

TICK, JOBS = ".tick.lock", ".jobs.lock"
THEIR_PATIENCE_SECONDS = 30.0  # facts section 3.3: then they proceed without it
MARGIN_SECONDS = 5.0
_NAP_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Locks:
    """Both locks, had."""

    clock: Clock
    since: float  # monotonic seconds

    @property
    def left(self) -> float:
        """For how many seconds they still keep hermes-agent from writing, with a margin."""
        return THEIR_PATIENCE_SECONDS - MARGIN_SECONDS - (self.clock.monotonic() - self.since)


@contextmanager
def both(folder: Path, clock: Clock, *, wait_seconds: float) -> Iterator[Locks]:
    """Have both locks of `<home>/cron`. Raises `LockTimeout` after `wait_seconds`, `CannotOpen`."""
    deadline = clock.monotonic() + wait_seconds
    had: list[int] = []
    try:
        for name in (TICK, JOBS):
            had.append(_have(folder / name, clock, deadline, wait_seconds))
        yield Locks(clock=clock, since=clock.monotonic())
    finally:
        for descriptor in reversed(had):
            os.close(descriptor)


def _have(path: Path, clock: Clock, deadline: float, wait_seconds: float) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC, 0o600)
    except OSError as error:
        raise CannotOpen(
            f"{path} cannot be opened: {error.strerror}; without it hermes-agent may write meanwhile.", path=path
        ) from error
    try:
        while not try_lock_alone(descriptor):
            if clock.monotonic() >= deadline:
                what = "ticks" if path.name == TICK else "writes its jobs"
                raise LockTimeout(
                    f"{_holder(path)} has {path}: hermes-agent {what} now. Nothing was changed.",
                    hint="Try again in a moment; a tick of hermes-agent 0.19.0 has it while its jobs run.", path=path,
                    holders=(), waited_seconds=wait_seconds,
                )
            clock.sleep(_NAP_SECONDS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _holder(path: Path) -> str:
    """Who has it, as far as this system shows it."""
    from lockowners.devices import watch
    from lockowners.lock_table import read_table
    from lockowners.process import read_process

    if not Path("/proc/locks").exists():
        return "Another process"
    rows = read_table().on(watch(path).keys_of("main"))
    found = next((read_process(Path("/proc"), row.pid) for row in rows if not row.waiting and row.pid > 0), None)
    return "Another process" if found is None else f"PID {found.pid} ({found.command})"
