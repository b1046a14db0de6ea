"""Litestream as a child in the foreground, started again when it ends by itself.

Invariant: SIGTERM, SIGINT and SIGHUP are passed on and waited for, so that Litestream sends what it has; the result
says how it ended. It is started again after a growing pause, and given up when it does not stay up. It is stopped as
soon as the store's file is replaced under it, because Litestream itself goes on without a warning (measured: 30 rows
missing).

Not for: the background. systemd does that better (`docs/replication.md`); a daemon of our own was rejected.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hermes_state.errors import ReplicationFailed
from hermes_state.shell_words import shell_word
from maintenance.replicate.program import Output, failed, start

STOPPING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)
# What Litestream may take to send the rest after it was told to stop; its own limit is 30 s.
STOP_SECONDS = 45.0
LOOK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Patience:
    """When it is started again, and when not."""

    # the first pause; each next one is twice as long, up to `longest_seconds`
    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    # starts in a row that did not stay up before it is given up
    most_failures: int = 8
    # how long it must run to count as up
    up_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How it came to an end after it was told to stop."""

    # how often it was started again
    restarts: int
    # the signal that we were told to stop by
    signal: int


class Stop:
    """Whether somebody told us to stop. Outside the main thread there are no signals, and `tell` is the only way."""

    def __init__(self) -> None:
        self.signal = 0
        self._event = threading.Event()

    def tell(self, number: int, _frame: FrameType | None = None) -> None:
        """Stop now."""
        self.signal = self.signal or number
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait that long or until told; True when told."""
        return self._event.wait(seconds)

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Listen to signals until the block ends."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.tell) for number in STOPPING}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


def supervise(
    store: Path, arguments: Sequence[str], *, quiet: bool, stop: Stop, patience: Patience | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Ended:
    """Run `litestream` until told to stop. Raises `ReplicationFailed` when it does not stay up or the store changes."""
    rule = patience or Patience()
    failures = restarts = 0
    identity = _identity(store)
    while True:
        began = time.monotonic()
        status, output, replaced = _run(store, arguments, identity, quiet=quiet, stop=stop)
        if replaced:
            raise _replaced(store)
        if stop.signal:
            if status:
                raise failed("replicate", store, status, output)
            return Ended(restarts=restarts, signal=stop.signal)
        failures = 1 if time.monotonic() - began >= rule.up_seconds else failures + 1
        if failures >= rule.most_failures:
            raise failed("replicate", store, status, output)
        pause = min(rule.longest_seconds, rule.first_seconds * 2 ** (failures - 1))
        say(f"litestream ended with status {status}; it is started again in {pause:g} s.")
        if stop.wait(pause):
            return Ended(restarts=restarts, signal=stop.signal)
        restarts += 1


def run_to_end(
    store: Path, arguments: Sequence[str], *, quiet: bool, stop: Stop
) -> tuple[int, tuple[str, ...]]:
    """Run `litestream` once, passing a stop on; its status and last lines."""
    status, output, replaced = _run(store, arguments, _identity(store), quiet=quiet, stop=stop)
    if replaced:
        raise _replaced(store)
    return status, output


def _run(
    store: Path, arguments: Sequence[str], identity: tuple[int, int] | None, *, quiet: bool, stop: Stop
) -> tuple[int, tuple[str, ...], bool]:
    """One life of the program: its status, its last lines, and whether the store was replaced under it."""
    process = start(arguments)
    output = Output(process, quiet=quiet)
    replaced = False
    try:
        while process.poll() is None and not stop.signal:
            if _identity(store) != identity:
                replaced = True
                break
            # Wakes at once when the program ends; a signal wakes nothing, so this is how late one is passed on.
            try:
                process.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        status = _end(process)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return status, output.ended(), replaced


def _end(process: subprocess.Popen[bytes]) -> int:
    """Have it stop if it still runs, and wait for it."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _identity(store: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(store)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _replaced(store: Path) -> ReplicationFailed:
    return ReplicationFailed(
        f"{store} was replaced or removed while Litestream copied it, so it was stopped: the replica has the old file.",
        hint=f"Run `hermes-state doctor --db {shell_word(store)}`. When the store is the right one, remove "
        f"{store.with_name(f'.{store.name}-litestream')} and start again: everything is sent anew.",
        path=store, status=None, output=(),
    )
