"""A progress bar on stderr for what takes longer than a second.

Invariant: nothing is drawn unless stderr is a terminal and the work lasted a second; stdout is never touched. rich is
imported only when a bar is really drawn, by the timer, so quick commands do not pay for it.

Not for: reporting results. Drawing at once was rejected: a bar that flashes for 50 ms is noise.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

AFTER_SECONDS = 1.0


class Progress:
    """What `progress(...)` gives; a context manager."""

    def __init__(self, total: int | None, label: str, *, after_seconds: float = AFTER_SECONDS) -> None:
        self._total = total
        self._label = label
        self._done = 0
        self._lock = threading.Lock()
        self._closed = False
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._timer: threading.Timer | None = None
        if sys.stderr is not None and sys.stderr.isatty():
            self._timer = threading.Timer(after_seconds, self._draw)
            self._timer.daemon = True

    def __enter__(self) -> Progress:
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()

    def advance(self, count: int = 1) -> None:
        """`count` more units are done."""
        with self._lock:
            self._done += count
            self._show()

    def restart(self, total: int | None, label: str) -> None:
        """Go on with the next step of the same work."""
        with self._lock:
            self._total, self._label, self._done = total, label, 0
            self._show()

    def _show(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, total=self._total, description=self._label)

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._closed:
                return
            self._bar = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
                console=Console(file=sys.stderr), transient=True,
            )
            self._task = self._bar.add_task(self._label, total=self._total, completed=self._done)
            self._bar.start()


def progress(total: int | None, label: str) -> Progress:
    """`with progress(rows, "deleting") as bar: ... bar.advance(100)`. `total` None: how much there is is not known."""
    return Progress(total, label)
