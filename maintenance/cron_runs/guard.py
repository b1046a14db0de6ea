"""A small process beside each command: it ends the command when the tick that started it dies without a word.

Invariant: once a tick is gone, its commands are gone too, before the next tick can take their runs back and begin one
of them again. The guard is started before the command and learns its process group by a pipe that only the tick holds:
the end of that pipe is the end of the tick, whatever it died of. A command that ended is named no more.

Not for: ending a run that is to stop (see `program`). The kernel's signal on the death of a parent was rejected: it
ends the command and not what that started, and does not exist everywhere. Left open: a tick that is killed within the
microseconds between the start of a command and the line that names it.
"""

from __future__ import annotations

import os
import signal
import sys

# This file is also run by itself: what only the tick needs is imported there.


def main() -> None:
    """Read lines until the pipe ends: `GROUP` to guard, empty for none; then kill what is guarded."""
    group = 0
    for line in sys.stdin.buffer:
        group = int(line) if line.strip() else 0
    if group:
        # At once: while it were asked to end, its run could be begun again beside it.
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return  # it ended by itself


class Guard:
    """The guard of one command, for the tick. A context: at its end the command is guarded no more."""

    def __init__(self) -> None:
        """Start it. Raises `OSError`."""
        import subprocess

        # A session of its own: what kills the group of the tick does not kill it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/",
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        """Guard a process group."""
        self._say(f"{group}\n")

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_error: object) -> None:
        self._say("\n")
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), line.encode())
        except BrokenPipeError:
            return  # somebody killed the guard; the command goes on, and is as good as one without


if __name__ == "__main__":
    main()
