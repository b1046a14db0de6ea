"""One writer: the same small transactions through the engine or through plain apsw, each timed.

Invariant: both kinds insert the same row in the same number of transactions, at the durability that was asked for, and
checkpoint under the same rule, so that a difference is the engine's own cost.

Not for: hermes-agent's append, which also maintains two search indexes in the same transaction.

Run as a program it is one of several writers: it says `ready`, waits for a line, writes, and prints its latencies.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import apsw

from hermes_state.engine import APPLICATION_ID, open_write

BODY = "A message of ordinary length, as a chat has it. " * 12
INSERT = "INSERT INTO note(body) VALUES (?)"
SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}
BUSY_MILLISECONDS = 60_000


def make(path: Path) -> Path:
    """An empty store of this project's own kind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("CREATE TABLE note(id INTEGER PRIMARY KEY, body TEXT NOT NULL)").fetchall()
    connection.close()
    return path


def write(kind: str, level: str, path: Path, count: int, *, pause: float = 0.0) -> list[float]:
    """Seconds of each of `count` transactions, with a pause after each that is not counted."""
    return (_through_engine if kind == "ours" else _plain)(level, path, count, pause)


def _through_engine(level: str, path: Path, count: int, pause: float) -> list[float]:
    taken = []
    with open_write(path, deadline_seconds=BUSY_MILLISECONDS / 1000) as store:
        for _ in range(count):
            started = time.perf_counter()
            with store.transaction(durability="power" if level == "power" else "process") as transaction:
                transaction.execute(INSERT, (BODY,))
            taken.append(time.perf_counter() - started)
            if pause:
                time.sleep(pause)
    return taken


def _plain(level: str, path: Path, count: int, pause: float) -> list[float]:
    taken = []
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[level]}").fetchall()
    for _ in range(count):
        started = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE").fetchall()
        connection.execute(INSERT, (BODY,)).fetchall()
        connection.execute("COMMIT").fetchall()
        taken.append(time.perf_counter() - started)
        if pause:
            time.sleep(pause)
    connection.close()
    return taken


if __name__ == "__main__":
    kind, level, path, count, pause = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(write(kind, level, Path(path), int(count), pause=float(pause))), flush=True)
