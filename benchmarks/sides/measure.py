"""What the programs of all sides share: latencies, written bytes, one JSON answer. Standard library only.

Invariant: bytes are what the process passed to write calls between two looks, as the kernel counts them; a side that
closes its store inside the measurement pays for its checkpoint. Not for: comparing (see `runner`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def written_bytes() -> int:
    """Bytes this process has passed to write calls; 0 where the kernel does not say."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def each(calls: list[Callable[[], Any]]) -> list[float]:
    """Seconds of each call."""
    taken = []
    for call in calls:
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return taken


def repeated(call: Callable[[], Any], count: int) -> list[float]:
    """Seconds of `count` calls."""
    return each([call] * count)


def quantiles(taken: list[float]) -> dict[str, float]:
    """p50, p99, longest and total, in seconds."""
    ordered = sorted(taken)
    last = len(ordered) - 1
    return {
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(last, len(ordered) * 99 // 100)],
        "longest": ordered[-1],
        "total": sum(ordered),
    }


def sizes(path: Path) -> dict[str, int]:
    """Bytes on disk by file name ending, of the store and everything beside it that belongs to it."""
    return {found.name: found.stat().st_size for found in path.parent.iterdir() if found.is_file()}


def plan(path: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Sessions and rows."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    return document["sessions"], document["rows"]


def wait_for_start() -> None:
    """Say that everything is prepared and wait for a line."""
    print("ready", flush=True)
    sys.stdin.readline()


def serve(tasks: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Run the task that the command line names, with its JSON arguments, and print its answer."""
    answer = tasks[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(answer), flush=True)
