"""A process as a document shows it.

Invariant: the same fields wherever a process is named, as `docs/cli-json.md` promises under "Common objects".

Not for: finding processes (see `lockowners`). A method of `lockowners.Process` was rejected: that package knows nothing
of our documents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockowners import Process, started_at
from maintenance.output.text import rfc3339

# When a process started, in seconds since 1970, or None.
Start = Callable[[Process], float | None]


def start_of(process: Process) -> float | None:
    """When a process of this machine started."""
    return started_at(process.start_ticks)


def process_document(process: Process, start: Start = start_of) -> dict[str, Any]:
    """The fields of `--json`."""
    return {
        "pid": process.pid,
        "start_ticks": process.start_ticks,
        "started_at": rfc3339(start(process)),
        "user": process.user,
        "uid": process.uid,
        "role": process.role,
        "command": process.command,
        "container": process.container,
    }
