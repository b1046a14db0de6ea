"""One process of a crowd that takes jobs from a queue: fills it, or takes one after the other until it is empty.

Run by the interpreter that has the queue: `queue_worker.py KIND FOLDER fill COUNT` or `... take`. A taker waits for a
line on its standard input, and then prints what it took and for how long.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


class Ours:
    """`store.outbox`. The kind says the policy, and whether every commit is to survive a power cut."""

    def __init__(self, folder: Path, *, policy: str, durability: str | None, limit: int) -> None:
        from hermes_state.store import open_store

        self.policy, self.limit = policy, limit
        self.store = open_store(folder, durability=durability)  # type: ignore[arg-type]

    def fill(self, count: int) -> None:
        from hermes_state.outbox import append

        def some(tx: Any, first: int) -> None:
            for number in range(first, min(first + 500, count)):
                append(
                    tx, dedupe_id=f"{number}", kind="job", transport="t", payload={"n": number},
                    policy=self.policy, at=time.time(),  # type: ignore[arg-type]
                )

        for first in range(0, count, 500):
            self.store.core.write(lambda tx, first=first: some(tx, first))

    def take(self) -> list[str]:
        from hermes_state.outbox import Accepted

        taken = []
        while claims := self.store.outbox.claim(["t"], limit=self.limit):
            for claim in claims:
                taken += [one.dedupe_id for one in claim]
                self.store.outbox.settle(claim, Accepted())
        return taken


class Huey:
    """huey's SQLite storage: taking a job deletes it; nothing is settled, and a crash loses what was taken."""

    def __init__(self, folder: Path) -> None:
        from huey.storage import SqliteStorage

        self.storage = SqliteStorage(filename=str(folder / "huey.db"))

    def fill(self, count: int) -> None:
        for number in range(count):
            self.storage.enqueue(json.dumps({"n": number}).encode())

    def take(self) -> list[str]:
        taken = []
        while (data := self.storage.dequeue()) is not None:
            taken.append(str(json.loads(bytes(data))["n"]))
        return taken


class LiteQueue:
    """litequeue: a job is locked by `pop` and ended by `done`; a crash leaves it locked for ever."""

    def __init__(self, folder: Path) -> None:
        from litequeue import LiteQueue as Queue

        self.queue = Queue(str(folder / "lite.db"))

    def fill(self, count: int) -> None:
        for number in range(count):
            self.queue.put(json.dumps({"n": number}))

    def take(self) -> list[str]:
        taken = []
        while (message := self.queue.pop()) is not None:
            taken.append(str(json.loads(message.data)["n"]))
            self.queue.done(message.message_id)
        return taken


class Floor:
    """What any queue in SQLite does that keeps its jobs: one statement takes one, another ends it, each a commit."""

    def __init__(self, folder: Path) -> None:
        import apsw

        self.connection = apsw.Connection(str(folder / "floor.db"))
        self.connection.set_busy_timeout(60_000)
        for statement in (
            "PRAGMA journal_mode = wal", "PRAGMA synchronous = normal",
            "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, payload TEXT)",
            "CREATE INDEX IF NOT EXISTS due ON job (id) WHERE state = 0",
        ):
            self.connection.execute(statement).fetchall()

    def fill(self, count: int) -> None:
        with self.connection:
            self.connection.executemany(
                "INSERT INTO job (state, payload) VALUES (0, ?)", ((json.dumps({"n": n}),) for n in range(count))
            )

    def take(self) -> list[str]:
        taken = []
        while found := self.connection.execute(
            "UPDATE job SET state = 1 WHERE id = (SELECT min(id) FROM job WHERE state = 0) RETURNING id, payload"
        ).fetchall():
            ((number, payload),) = found
            taken.append(str(json.loads(payload)["n"]))
            self.connection.execute("UPDATE job SET state = 2 WHERE id = ?", (number,)).fetchall()
        return taken


KINDS = {
    "floor": Floor,
    "ours_once": lambda folder: Ours(folder, policy="at_most_once", durability=None, limit=1),
    "ours_again": lambda folder: Ours(folder, policy="at_least_once", durability=None, limit=1),
    "ours_process": lambda folder: Ours(folder, policy="at_least_once", durability="process", limit=1),
    "ours_many": lambda folder: Ours(folder, policy="at_least_once", durability="process", limit=20),
    "huey": Huey,
    "litequeue": LiteQueue,
}


def main() -> None:
    kind, folder, action, *rest = sys.argv[1:]
    queue: Any = KINDS[kind](Path(folder))
    if action == "fill":
        queue.fill(int(rest[0]))
        return
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    try:
        taken, failed = queue.take(), None
    except Exception as error:  # a side that fails under contention is a result, not an accident
        taken, failed = [], f"{type(error).__name__}: {error}"
    print(json.dumps({"taken": taken, "began": began, "ended": time.monotonic(), "failed": failed}), flush=True)


if __name__ == "__main__":
    main()
