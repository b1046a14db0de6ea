"""One process of a crowd that fires jobs which are due: declares them, or fires until none is left.

Run by the interpreter that has the scheduler: `cron_worker.py KIND FOLDER fill COUNT` or `... fire COUNT`. Each run is
a line in `FOLDER/runs`, so that what ran, and how often, is known also of processes that fail. One that fires waits
for a line on its standard input, and then prints for how long it did.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any


def ran(folder: Path, name: str) -> None:
    """The effect of a run."""
    out = os.open(folder / "runs", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(out, f"{name}\n".encode())
    os.close(out)


def runs_of(folder: Path) -> list[str]:
    """Every run so far."""
    path = folder / "runs"
    return path.read_text().split() if path.exists() else []


class Ours:
    """`Cron`: claims under the tick lease, begins and settles each run. The kind says the durability."""

    def __init__(self, folder: Path, durability: str | None) -> None:
        from cron_store.cron import Cron
        from hermes_state.store import open_store

        self.folder = folder
        self.store = open_store(folder / "home", durability=durability)  # type: ignore[arg-type]
        self.cron = Cron(self.store)

    def fill(self, count: int) -> None:
        from cron_store.records import Policies
        from cron_store.schedule import Once

        at = int(time.time())
        for number in range(count):
            self.cron.add(
                f"{number}", Once(at=at), policies=Policies(grace_seconds=3600.0), after=at - 1,
            )

    def fire(self, count: int) -> None:
        from cron_store.records import Succeeded

        while True:
            with self.cron.tick_lease(wait_seconds=60.0) as lease:
                claims = self.cron.take(lease, room=25).claims
            if not claims:
                return
            for claim in claims:
                self.cron.start(claim)
                ran(self.folder, claim.job_id)
                self.cron.settle(claim, Succeeded())


def fire(folder: str, name: str) -> None:
    """What APScheduler calls; it finds it by its name."""
    ran(Path(folder), name)


class APScheduler:
    """APScheduler 3 with its SQLAlchemy job store: every process looks, runs what is due, and then says so."""

    def __init__(self, folder: Path) -> None:
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
        from apscheduler.schedulers.background import BackgroundScheduler
        from sqlalchemy import event

        store = SQLAlchemyJobStore(url=f"sqlite:///{folder}/aps.db", engine_options={"connect_args": {"timeout": 60}})

        @event.listens_for(store.engine, "connect")
        def wal(connection: Any, _record: Any) -> None:
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute("PRAGMA synchronous = normal")

        self.folder = folder
        self.scheduler = BackgroundScheduler(
            jobstores={"default": store}, executors={"default": ThreadPoolExecutor(4)}, timezone="UTC",
            job_defaults={"misfire_grace_time": None, "coalesce": True},
        )

    def fill(self, count: int) -> None:
        self.scheduler.start(paused=True)
        for number in range(count):
            self.scheduler.add_job("cron_worker:fire", "date", args=[str(self.folder), str(number)], id=str(number))
        os._exit(0)  # its shutdown would look for what is due once more, and run it

    def fire(self, count: int) -> None:
        self.scheduler.start()
        deadline = time.monotonic() + 120
        while len(set(runs_of(self.folder))) < count and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        self.scheduler.shutdown(wait=True)


class Huey:
    """huey's SQLite storage as its scheduler and its workers use it: what is due is moved to the queue, and taken."""

    def __init__(self, folder: Path) -> None:
        from huey.storage import SqliteStorage

        self.folder = folder
        self.storage = SqliteStorage(filename=str(folder / "huey.db"))

    def fill(self, count: int) -> None:
        import datetime

        at = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        for number in range(count):
            self.storage.add_to_schedule(str(number).encode(), at)

    def fire(self, count: int) -> None:
        import datetime

        deadline = time.monotonic() + 120
        while len(set(runs_of(self.folder))) < count and time.monotonic() < deadline:
            for due in self.storage.read_schedule(datetime.datetime.now(datetime.UTC).replace(tzinfo=None)):
                self.storage.enqueue(bytes(due))
            for _one in range(10):
                data = self.storage.dequeue()
                if data is None:
                    break
                ran(self.folder, bytes(data).decode())


class Floor:
    """What any scheduler in SQLite does that keeps its jobs: one commit claims, one begins, one ends."""

    def __init__(self, folder: Path) -> None:
        import apsw

        self.folder = folder
        self.connection = apsw.Connection(str(folder / "floor.db"))
        self.connection.set_busy_timeout(60_000)
        for statement in (
            "PRAGMA journal_mode = wal", "PRAGMA synchronous = full",
            "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, state INTEGER NOT NULL)",
            "CREATE INDEX IF NOT EXISTS due ON job (id) WHERE state = 0",
        ):
            self.connection.execute(statement).fetchall()

    def fill(self, count: int) -> None:
        with self.connection:
            self.connection.executemany("INSERT INTO job (id, state) VALUES (?, 0)", ((n,) for n in range(count)))

    def fire(self, count: int) -> None:
        while claimed := self.connection.execute(
            "UPDATE job SET state = 1 WHERE id IN (SELECT id FROM job WHERE state = 0 LIMIT 25) RETURNING id"
        ).fetchall():
            for (number,) in claimed:
                self.connection.execute("UPDATE job SET state = 2 WHERE id = ?", (number,)).fetchall()
                ran(self.folder, str(number))
                self.connection.execute("UPDATE job SET state = 3 WHERE id = ?", (number,)).fetchall()


KINDS = {
    "ours": lambda folder: Ours(folder, None), "ours_process": lambda folder: Ours(folder, "process"),
    "apscheduler": APScheduler, "huey": Huey, "floor": Floor,
}


def main() -> None:
    kind, folder, what, count = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    side = KINDS[kind](folder)
    if what == "fill":
        side.fill(count)
        return
    print("ready", flush=True)
    sys.stdin.readline()
    began, failed = time.time(), None
    try:
        side.fire(count)
    except Exception as error:
        failed = repr(error)
    print(json.dumps({"began": began, "ended": time.time(), "failed": failed}))


if __name__ == "__main__":
    main()
