"""For tests of programs that use this library: temporary stores, gates between processes, one clock for all of them.

Invariant: nothing here is timed: a gate is a file that appears whole, and the clock moves when told to. No test
framework is imported.

Not for: production code. Sleeping until the other process "must be" somewhere was rejected: it is slow and still fails.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.clock import CLOCK_FILE_VARIABLE, ClockDomain, FakeClock, clock_from_environment
from hermes_state.errors import InvalidInput, StateError

if TYPE_CHECKING:
    from hermes_state.store import Store

__all__ = [
    "CLOCK_FILE_VARIABLE", "ClockDomain", "FakeClock", "Gate", "GateNotOpened", "clock_from_environment",
    "temporary_store",
]

_STEP_SECONDS = 0.002


class GateNotOpened(StateError):
    """The other process did not come that far. Facts: `folder`, `name`, `seconds`."""

    code = "gate_not_opened"


class Gate:
    """Named points at which processes wait for each other: files in a folder that all of them know.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Gate(folder).open("ready", "7 rows")
    ...     Gate(folder).wait("ready", seconds=5)
    '7 rows'
    """

    def __init__(self, folder: Path | str) -> None:
        """`folder` must exist. It may be that of a store: the names end in `.gate`."""
        self.folder = Path(folder)

    def open(self, name: str, text: str = "") -> None:
        """Let everybody past `name`, now and later, and give them `text`."""
        path = self._file(name)
        staged = self.folder / f".{name}.{os.getpid()}.staged"
        staged.write_text(text, encoding="utf-8")
        os.replace(staged, path)

    def is_open(self, name: str) -> bool:
        """Whether `name` was opened, without waiting."""
        return self._file(name).exists()

    def wait(self, name: str, seconds: float = 60.0) -> str:
        """Block until `name` is open and give its text. Raises `GateNotOpened` after `seconds` of real time."""
        deadline = time.monotonic() + seconds
        path = self._file(name)
        while not path.exists():
            if time.monotonic() > deadline:
                raise GateNotOpened(
                    f"Gate {name!r} in {self.folder} was not opened within {seconds:g} s.",
                    hint="Look at what the other process printed.", folder=self.folder, name=name, seconds=seconds,
                )
            time.sleep(_STEP_SECONDS)
        return path.read_text(encoding="utf-8")

    def _file(self, name: str) -> Path:
        if not name or "/" in name or os.sep in name or name.startswith("."):
            raise InvalidInput(
                f"{name!r} cannot name a gate.", hint="Use a word that can be a file name.", name=name
            )
        return self.folder / f"{name}.gate"


@contextmanager
def temporary_store(folder: Path | str | None = None, **settings: Any) -> Iterator[Store]:
    """A new store, open for the `with` block, at `state.db` in `folder` or in a private folder that is removed after.

    `settings` are those of `open_store`, such as `clock=FakeClock(...)`. A `folder` of the caller's stays as it is.
    """
    from hermes_state.owners.presence import end_below
    from hermes_state.store import open_store

    home = Path(tempfile.mkdtemp(prefix="hermes-state-")) if folder is None else Path(folder)
    try:
        with open_store(path=home / "state.db", **settings) as store:
            yield store
    finally:
        if folder is None:
            end_below(home)
            shutil.rmtree(home)
