"""Waiting for a commit of any process.

Invariant: no file is opened here: the folder is watched, and that there was a commit is confirmed by a reader that is
open already (`PRAGMA data_version`). An event that never comes, as on network file systems, costs at most one look.

Not for: what changed (see `feed`). Watching alone was rejected: a checkpoint writes the same files and is no commit.
Polling alone was rejected: it is late or busy.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hermes_state.clock import Clock

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

LOOK_SECONDS = 1.0  # longest time between two looks at data_version, whatever the watch says
POLL_SECONDS = 0.1  # the same where nothing can be watched
# How often watchfiles looks whether its thread has seen something: 20 wakes within 30 ms and idles at 0.3 % of a core.
_STEP_MS = 20


class FolderWatch:
    """Tells when something in a folder changed, as far as that can be told. One thread waits on it."""

    def __init__(self, folder: Path, *, stop: threading.Event) -> None:
        """`stop`, when it is set, ends every wait at once."""
        self._stop = stop
        self._notify: Any = None
        # Why changes are found by polling only; None while the folder is watched.
        self.polling_because: str | None = None
        try:
            rust = importlib.import_module("watchfiles._rust_notify")
            self._notify = rust.RustNotify([str(folder)], False, False, 300, False, False)
        except (ImportError, OSError, RuntimeError) as error:
            # No watchfiles, no inotify instances left, a file system that reports nothing: all are met by polling.
            self.polling_because = f"{type(error).__name__}: {error}"

    @property
    def watches(self) -> bool:
        """Whether a change ends a nap."""
        return self._notify is not None

    def nap(self, seconds: float) -> bool:
        """Return when the folder changed, when `stop` was set, or after about `seconds`; True for a change."""
        if self._notify is None:
            self._stop.wait(seconds)
            return False
        found = self._notify.watch(_STEP_MS, _STEP_MS, max(1, round(seconds * 1000)), self._stop)
        if found == "signal":
            raise KeyboardInterrupt
        return found not in ("stop", "timeout")

    def close(self) -> None:
        """Stop watching."""
        notify, self._notify = self._notify, None
        if notify is not None:
            notify.close()


class CommitWatch:
    """Tells when a store may have been committed to. A context manager; one thread uses it."""

    def __init__(self, path: Path, *, clock: Clock, stop: threading.Event | None = None) -> None:
        """`stop`, when it is set, ends every wait at once."""
        self._clock = clock
        self._stop = stop or threading.Event()
        self._folder = FolderWatch(path.parent, stop=self._stop)

    @property
    def polling_because(self) -> str | None:
        """Why commits are found by polling only; None while the folder is watched."""
        return self._folder.polling_because

    def until(self, reader: ReadStore, happened: Callable[[], bool], *, timeout_seconds: float | None) -> bool:
        """Wait until `happened()` is true after a commit; False when the time is over or `stop` was set.

        `happened` is asked once at first, and then after each commit that others made. `reader` must be this caller's
        own: `data_version` is kept for each connection.
        """
        deadline = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        version: int | None = None
        while True:
            found = reader.rows("PRAGMA data_version")[0][0]
            if found != version:
                version = found
                if happened():
                    return True
            left = LOOK_SECONDS if deadline is None else min(LOOK_SECONDS, deadline - self._clock.monotonic())
            if left <= 0 or self._stop.is_set():
                return False
            self._nap(left)

    def _nap(self, seconds: float) -> None:
        """Return when the store's files changed, when `stop` was set, or after about `seconds`."""
        # Any file of the folder wakes: asking for data_version costs less than sorting names.
        self._folder.nap(seconds if self._folder.watches else min(seconds, POLL_SECONDS))

    def close(self) -> None:
        """Stop watching."""
        self._folder.close()

    def __enter__(self) -> CommitWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
