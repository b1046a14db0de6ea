"""How long does a scan for holders take among 300 processes of which 30 hold the store?

Understand first: a scan reads the kernel's lock table twice and every descriptor table once, so its cost grows with the
open descriptors of the whole machine, not with the store. Each idle process here has the sixteen descriptors of a small
service (logs, pipes, sockets), each holder has those and SQLite's own three.

Sides: `ours` is the whole scan with identities; `floor` one reading of /proc/locks, which misses forked and never-read
holders; `psutil` its open_files, which misses deleted files. What would change the decision: a median of ours above
100 ms, because every verb that rewrites waits for a scan before it starts.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner
from lockowners import holders
from lockowners.lock_table import read_table
from lockowners.process import portable_processes

TARGET_SECONDS = 0.100


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=15)
    idle, holding = max(3, 270 * chosen.scale // 100), max(2, 30 * chosen.scale // 100)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "state.db"
        logs = [Path(folder) / f"log-{number}" for number in range(6)]
        with population([lambda: make(store)], wait_for_end=True):
            pass
        with population([lambda: settle(logs)] * idle + [lambda: hold(store, logs)] * holding):
            series = runner.interleaved(
                [
                    runner.Side(name="ours", run=lambda: ours(store, holding)),
                    runner.Side(name="floor", run=floor),
                    runner.Side(name="psutil", run=by_psutil),
                ],
                chosen.rounds,
            )
            processes = sum(name.isdigit() for name in os.listdir("/proc"))
    median = statistics.median(run["total"] for run in series["ours"])
    runner.report(
        "holder_scan_cost",
        chosen,
        series,
        compared={
            "ours/floor": runner.ratios(series, "ours", "floor"),
            "ours/psutil": runner.ratios(series, "ours", "psutil"),
        },
        facts={
            "processes": processes,
            "forked": idle + holding,
            "holders": holding,
            "median_ms": round(median * 1000, 1),
            "target_ms": TARGET_SECONDS * 1000,
            "target_met": median < TARGET_SECONDS,
        },
        targets={"ours/psutil": 1.0},
    )


def ours(store: Path, expected: int) -> dict[str, float]:
    with runner.timing() as measured:
        found = holders(store).holders
    assert len(found) == expected, f"{len(found)} of {expected} holders found"
    return measured


def floor() -> dict[str, float]:
    with runner.timing() as measured:
        read_table(passes=1)
    return measured


def by_psutil() -> dict[str, float]:
    with runner.timing() as measured:
        for _ in portable_processes():
            pass
    return measured


def make(store: Path) -> None:
    connection = apsw.Connection(str(store))
    for sql in ("PRAGMA journal_mode=wal", "CREATE TABLE t(x)", "INSERT INTO t VALUES (1)"):
        connection.execute(sql).fetchall()
    connection.close()


def settle(logs: list[Path]) -> list[object]:
    """The descriptors of a small service."""
    files: list[object] = [path.open("a") for path in logs]
    return [*files, *socket.socketpair(), *socket.socketpair(), os.pipe(), os.pipe()]


def hold(store: Path, logs: list[Path]) -> list[object]:
    connection = apsw.Connection(str(store))
    connection.execute("SELECT * FROM t").fetchall()
    return [connection, *settle(logs)]


@contextmanager
def population(bodies: Sequence[Callable[[], object]], *, wait_for_end: bool = False) -> Iterator[None]:
    """One forked process for each body; each is ready when its body has returned, and lives until the end."""
    pids = []
    ready_reading, ready_writing = os.pipe()
    try:
        for body in bodies:
            pid = os.fork()
            if pid == 0:
                _child(body, ready_writing, wait=not wait_for_end)
            pids.append(pid)
        seen = 0
        while seen < len(bodies):
            readable, _, _ = select.select([ready_reading], [], [], 60)
            if not readable:
                raise SystemExit(f"only {seen} of {len(bodies)} processes became ready")
            seen += len(os.read(ready_reading, 4096))
        yield
    finally:
        for pid in pids:
            if not wait_for_end:
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(ready_reading)
        os.close(ready_writing)


def _child(body: Callable[[], object], ready: int, *, wait: bool) -> None:
    status = 1
    try:
        kept = body()
        os.write(ready, b"x")
        if wait:
            signal.pause()
        del kept
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
