"""Time as an argument.

Invariant: nothing in the project reads the time but through a `Clock` it was given. Wall time (`now`) is for what
people see and for due times; `boottime` is for leases and goes on counting in suspend; `monotonic` is for deadlines.

Not for: scheduling. A module-level clock was rejected: two tests in one process would share it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Protocol

CLOCK_FILE_VARIABLE = "HERMES_STATE_CLOCK"


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC, as a float."""

    def monotonic(self) -> float:
        """Seconds that never go back, from an arbitrary start."""

    def boottime(self) -> float:
        """Seconds since boot, suspend included where the system can tell."""

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        clock_id = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if clock_id is None else time.clock_gettime(clock_id)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class FakeClock:
    """A clock that only moves when told to, shared with child processes through a small file.

    Every reader of the same file sees the same time; `sleep` advances it at once. The file holds
    `{"now": seconds, "monotonic": seconds}`.
    """

    def __init__(self, path: Path, *, now: float | None = None) -> None:
        self.path = path
        if now is not None:
            self._write(now, 0.0)

    def _read(self) -> tuple[float, float]:
        record = json.loads(self.path.read_text(encoding="utf-8"))
        return float(record["now"]), float(record["monotonic"])

    def _write(self, now: float, monotonic: float) -> None:
        staged = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        staged.write_text(json.dumps({"now": now, "monotonic": monotonic}), encoding="utf-8")
        os.replace(staged, self.path)

    def now(self) -> float:
        return self._read()[0]

    def monotonic(self) -> float:
        return self._read()[1]

    def boottime(self) -> float:
        return self._read()[1]

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        now, monotonic = self._read()
        self._write(now + seconds, monotonic + seconds)

    def step_wall(self, seconds: float) -> None:
        """Move only the wall clock, forwards or back, as an administrator would."""
        now, monotonic = self._read()
        self._write(now + seconds, monotonic)


SYSTEM: Clock = SystemClock()


def clock_from_environment() -> Clock:
    """The system's clock, or the shared fake one when `HERMES_STATE_CLOCK` names its file."""
    path = os.environ.get(CLOCK_FILE_VARIABLE)
    return FakeClock(Path(path)) if path else SYSTEM
