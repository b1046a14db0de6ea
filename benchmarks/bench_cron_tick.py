"""What does a tick of many homes cost beyond its polls and its commits?

Understand first: a tick finds what is due in 200 homes with 50 jobs each, claims it, begins each run and settles it,
which is three commits a run that survive a power cut (claims of one home share one). The floor does the same polls and
the same commits in plain APSW, on connections that stay open, one after the other; ours closes the stores of idle homes
and runs in threads. Times move by hand: each tick is a minute later.

Sides: `ours` and `floor` with 10 jobs due in 10 homes; `ours_each` and `floor_each` with 10 due in each of 20 homes.
Facts: ours with ten times as many jobs that are not due, with a backlog of a week beside one of an hour, with half and
twice as many homes, what a sign of life costs, and threads and descriptors before, while and after homes were served.
What would change a decision: p99 of ours above twice the floor's, or a cost that grows with jobs not due or a backlog.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner
from benchmarks.sides.cron_homes import Floor, Homes, Ours

TARGET = 2.0


def p99(values: list[float]) -> float:
    """The 99th of a hundred."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


def many(ours: Ours, ticks: int) -> float:
    """Median seconds of a tick."""
    return statistics.median(ours.tick()["total"] for _tick in range(ticks))


def growth(root: Path, homes: int, jobs: int, ticks: int) -> dict[str, float]:
    """How a tick grows with jobs that are not due, and with homes; seconds."""
    found = {}
    for name, count, size in (
        ("few jobs", homes, jobs), ("ten times the jobs", homes, jobs * 10), ("half the homes", homes // 2, jobs),
        ("twice the homes", homes * 2, jobs),
    ):
        made = Homes(root / name, count=count, jobs=size, busy=2)
        ours = Ours(made)
        ours.tick()
        found[f"{name}: tick"] = many(ours, ticks)
        ours.ticker.drain()
        idle = Homes(root / f"{name}, idle", count=count, jobs=min(size, 5), busy=0)
        quiet = Ours(idle)
        many(quiet, 3)
        found[f"{name}: tick with nothing due"] = many(quiet, ticks)
        quiet.ticker.drain()
    return found


def backlog(root: Path, homes: int, jobs: int, off_seconds: int) -> float:
    """Seconds to account for all that came due while nobody ticked."""
    made = Homes(root / f"off {off_seconds}", count=homes, jobs=jobs, busy=homes, each=jobs)
    made.clock.moved += off_seconds
    ours = Ours(made, parallel=1, first=False)
    began = time.perf_counter()
    done = ours.ticker.tick()
    took = time.perf_counter() - began
    assert not done.problems and done.accounted >= homes * jobs, done.problems
    ours.ticker.wait_idle(60)
    ours.ticker.drain()
    return took


def come_and_go(root: Path, homes: int) -> dict[str, int]:
    """Threads and descriptors before homes are served, while, and after they left."""
    made = Homes(root / "come and go", count=homes, jobs=2, busy=homes)

    def seen() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    first = seen()
    ours = Ours(made)
    ours.tick()
    served = seen()
    ours.served = []
    ours.ticker.tick()
    last = seen()
    ours.ticker.drain()
    return {
        "threads before": first[0], "threads served": served[0], "threads after": last[0],
        "descriptors before": first[1], "descriptors served": served[1], "descriptors after": last[1],
    }


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=60)
    with suppress(ImportError, ValueError):
        import resource

        # The floor keeps three descriptors a home; ours is asked under the usual limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    size = max(1, chosen.scale)
    homes, jobs = max(4, 2 * size), max(5, size // 2)
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        root = Path(folder)
        sides: list[runner.Side] = []
        opened: list[Floor] = []
        tickers: list[Ours] = []
        for suffix, count, busy, each in (
            ("", homes, min(10, homes // 2), 1), ("_each", max(2, homes // 10), max(2, homes // 10), min(10, jobs)),
        ):
            made = Homes(root / f"homes{suffix}", count=count, jobs=jobs, busy=busy, each=each)
            floor = Floor(made, root / f"homes{suffix}")
            ours = Ours(made, most_open=34)  # what a limit of 1,024 descriptors allows
            for _warm in range(3):
                ours.tick()
                floor.tick()
            opened.append(floor)
            tickers.append(ours)
            sides += [
                runner.Side(name=f"ours{suffix}", run=ours.tick), runner.Side(name=f"floor{suffix}", run=floor.tick),
            ]
        os.sync()
        series = runner.interleaved(sides, chosen.rounds)
        signs = tickers[0].signs()
        for one in tickers:
            one.ticker.drain()
        for floor in opened:
            floor.close()
        tails = {
            f"ours{suffix}/floor{suffix} p99": [
                p99([one["total"] for one in series[f"ours{suffix}"]])
                / p99([one["total"] for one in series[f"floor{suffix}"]])
            ]
            for suffix in ("", "_each")
        }
        few = max(4, homes // 10)
        hour, week = (backlog(root, few, jobs, off) for off in (3600, 7 * 86_400))
        facts = {
            "homes": homes, "jobs a home": jobs, "seconds a sign of life": round(signs, 6),
            **{name: round(value, 6) for name, value in growth(root, few, min(jobs, 20), 10).items()},
            f"{few * jobs} jobs an hour off": round(hour, 4), f"{few * jobs} jobs a week off": round(week, 4),
            **come_and_go(root, max(4, homes // 4)),
        }
    runner.report(
        "cron_tick", chosen, series,
        compared={
            **tails,
            **{
                f"ours{suffix}/floor{suffix}": runner.ratios(series, f"ours{suffix}", f"floor{suffix}", "total")
                for suffix in ("", "_each")
            },
            "a week off/an hour off": [week / hour],
        },
        facts=facts,
        targets={"ours/floor p99": TARGET, "ours_each/floor_each p99": TARGET, "a week off/an hour off": 1.5},
    )


if __name__ == "__main__":
    main()
