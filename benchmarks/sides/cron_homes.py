"""Many homes with many jobs, for the benchmark of a tick: made once, ticked by ours, and by plain APSW."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import apsw

from cron_store.cron import Cron
from cron_store.schedule import Interval
from cron_store.ticker import CronTicker
from hermes_state.clock import SYSTEM
from hermes_state.store import open_store

YEAR = 365 * 86_400
_BOOTTIME = SYSTEM.boottime


class Wall:
    """Clocks that are moved by hand, wall and boot alike: jobs are due when they say so.

    A wall clock that moved alone would be doubted, and what it says is due deferred.
    """

    def __init__(self, now: float) -> None:
        self.moved = self._began = now
        self.show()

    def show(self) -> None:
        """From here on this is what the wall of this process shows."""
        SYSTEM.now = lambda: self.moved  # type: ignore[method-assign]
        SYSTEM.boottime = lambda: _BOOTTIME() + self.moved - self._began  # type: ignore[method-assign]


class Homes:
    """`count` homes of `jobs` jobs; of the first `busy` ones `each` jobs are due every minute, all others in a year."""

    def __init__(self, root: Path, *, count: int, jobs: int, busy: int, each: int = 1) -> None:
        self.clock = Wall(float(int(time.time())))
        self.paths = [root / f"home {number}" for number in range(count)]
        self.busy, self.each = busy, each
        for number, path in enumerate(self.paths):
            with open_store(path, durability="process") as store:
                cron = Cron(store)
                for job in range(jobs):
                    due = number < busy and job < each
                    cron.add(f"job {job}", Interval(seconds=60 if due else YEAR, anchor=int(self.clock.moved)))


class Ours:
    """`CronTicker` on these homes; a run does nothing, so that what is measured is the ticking."""

    def __init__(
        self, homes: Homes, *, most_open: int | None = None, parallel: int | None = None, first: bool = True
    ) -> None:
        self.homes = homes
        self.ran = 0
        self._lock = threading.Lock()
        self.served = list(homes.paths)
        self.ticker = CronTicker(
            self._work, homes=lambda: self.served, most_parallel=parallel or max(1, homes.each),
            most_open=most_open,
        )
        if first:
            problems = self.ticker.tick().problems
            assert not problems, problems

    def _work(self, running: object) -> None:
        with self._lock:
            self.ran += 1

    def tick(self) -> dict[str, float]:
        """One minute later: seconds until what is due was claimed, and until every run was settled."""
        self.homes.clock.show()
        while self.ticker.sign():  # between ticks, as the thread of a ticker does
            pass
        self.homes.clock.moved += 60
        began = time.perf_counter()
        done = self.ticker.tick(signs=False)
        given = time.perf_counter() - began
        assert self.ticker.wait_idle(60)
        total = time.perf_counter() - began
        assert len(done.claims) == self.homes.busy * self.homes.each, (len(done.claims), done.problems)
        return {"total": total, "given": given}

    def signs(self) -> float:
        """Seconds a home to say that it lives."""
        for seat in self.ticker._seats.values():
            seat.beat_boottime = 0.0
        began = time.perf_counter()
        while self.ticker.sign():
            pass
        return (time.perf_counter() - began) / len(self.homes.paths)


class Floor:
    """The same polls and the same power commits with a connection to each home that stays open, in one thread."""

    def __init__(self, homes: Homes, root: Path) -> None:
        self.homes = homes
        self.now = homes.clock.moved
        self.connections = []
        for number, path in enumerate(homes.paths):
            copy = root / f"floor {number}.db"
            shutil.copyfile(path / "state.db", copy)  # closed, and all of it is in the file by then
            connection = apsw.Connection(str(copy))
            for statement in ("PRAGMA journal_mode = wal", "PRAGMA synchronous = full"):
                connection.execute(statement).fetchall()
            self.connections.append(connection)

    def tick(self) -> dict[str, float]:
        """One minute later: a poll of each home, and three commits a run: claimed, begun, over."""
        self.now += 60
        began = time.perf_counter()
        runs: list[tuple[apsw.Connection, str]] = []
        for connection in self.connections:
            due = connection.execute(
                "SELECT due_at, job_id FROM cron_runtime INDEXED BY cron_runtime_due WHERE due_at <= ?"
                " ORDER BY due_at, job_id LIMIT 50", (self.now,),
            ).fetchall()
            if due:
                self._claim(connection, [str(job_id) for _due_at, job_id in due])
                runs += [(connection, str(job_id)) for _due_at, job_id in due]
        given = time.perf_counter() - began
        for state in ("begun", "over"):
            for connection, job_id in runs:
                connection.execute("BEGIN IMMEDIATE").fetchall()
                connection.execute(
                    "UPDATE cron_runtime SET state_reason = ? WHERE job_id = ?", (state, job_id)
                ).fetchall()
                connection.execute("COMMIT").fetchall()
        total = time.perf_counter() - began
        assert len(runs) == self.homes.busy * self.homes.each
        return {"total": total, "given": given}

    def _claim(self, connection: apsw.Connection, jobs: list[str]) -> None:
        connection.execute("BEGIN IMMEDIATE").fetchall()
        for job_id in jobs:
            connection.execute(
                "UPDATE cron_runtime SET due_at = ?, settled_through = ? WHERE job_id = ?",
                (self.now + 60, int(self.now), job_id),
            ).fetchall()
        connection.execute("COMMIT").fetchall()

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
