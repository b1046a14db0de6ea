"""What does a small write cost through the engine, beside plain apsw on the same kind of file?

Understand first: a transaction of one row takes some tens of microseconds at `process` durability (nothing is synced)
and one fsync more at `power`. The engine adds its guards: are the files still the path's, does the kernel still show
our locks, has another library opened the file. They are system calls of a microsecond or two each, so they can only be
seen at `process`. With several writers the wait for the lock decides. SQLite's own busy handler first asks again very
soon and then sleeps longer and longer, so most of its waits are short and a few are very long; the engine's asks ten
times after a tenth of a millisecond and then after a millisecond each time, so none is very long.

Sides: `ours` and `floor` (apsw with SQLite's busy timeout), each with one writer at both levels; with `three` writer
processes that pause between writes, as gateways do; and with a `crowd` of three that never pause. Each guard is timed
alone inside an open transaction. What would change a decision: guards that cost more than 50 microseconds together
(then some must run less often); a p99 of the three above 2 ms (then the naps must be shorter); a longest wait in the
crowd above the floor's (then the handler starves somebody after all).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner, writing
from hermes_state.engine import Store, open_write

GUARDS_MICROSECONDS = 50.0
THREE_P99_MILLISECONDS = 2.0
WRITERS = 3
# Seconds between two writes of each of the three, so that the lock is taken about a tenth of the time.
PAUSE = 0.002


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=7)
    count = max(20, 2000 * chosen.scale // 100)

    def alone(kind: str, level: str) -> runner.Side:
        return runner.Side(name=f"{kind} {level}", run=lambda: one(kind, level, count))

    def together(kind: str, setting: str, pause: float) -> runner.Side:
        return runner.Side(name=f"{kind} {setting}", run=lambda: three(kind, count, pause))

    kinds = ("ours", "floor")
    series = runner.interleaved(
        [
            *(alone(kind, level) for level in ("process", "power") for kind in kinds),
            *(together(kind, "three", PAUSE) for kind in kinds),
            *(together(kind, "crowd", 0.0) for kind in kinds),
        ],
        chosen.rounds,
    )
    guards = cost_of_guards(max(100, 20_000 * chosen.scale // 100))
    whole = sum(guards.values())
    waited = 1e3 * statistics.median(run["p99"] for run in series["ours three"])
    runner.report(
        "write_latency",
        chosen,
        series,
        compared={
            f"{setting} {phase} ours/floor": runner.ratios(series, f"ours {setting}", f"floor {setting}", phase)
            for setting in ("process", "power", "three", "crowd")
            for phase in ("p50", "p99", "longest")
        },
        facts={
            "transactions": count,
            "writers": WRITERS,
            "row_bytes": len(writing.BODY),
            **{f"guard, microseconds: {name}": round(cost, 2) for name, cost in guards.items()},
            "guards_microseconds": round(whole, 2),
            "guards_target_microseconds": GUARDS_MICROSECONDS,
            "guards_target_met": whole <= GUARDS_MICROSECONDS,
            "three_p99_milliseconds": round(waited, 3),
            "three_p99_target_milliseconds": THREE_P99_MILLISECONDS,
            "three_p99_target_met": waited <= THREE_P99_MILLISECONDS,
        },
        targets={"crowd longest ours/floor": 1.0},
    )


def one(kind: str, level: str, count: int) -> dict[str, float]:
    """One writer in this process."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        path = writing.make(Path(folder) / "state.db")
        with runner.timing() as measured:
            taken = writing.write(kind, level, path, count)
    return {**measured, **quantiles(taken)}


def three(kind: str, count: int, pause: float) -> dict[str, float]:
    """Three writer processes that start together; latencies of all of them."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        path = writing.make(Path(folder) / "state.db")
        writers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.writing", kind, "process", str(path), str(count), str(pause)],
                cwd=runner.ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(WRITERS)
        ]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        with runner.timing() as measured:
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write("go\n")
                writer.stdin.flush()
            answers = [writer.communicate()[0] for writer in writers]
        if any(writer.returncode for writer in writers):
            raise SystemExit(f"a writer failed: {[writer.returncode for writer in writers]}")
    return {**measured, **quantiles([taken for answer in answers for taken in json.loads(answer)])}


def quantiles(taken: list[float]) -> dict[str, float]:
    """p50, p99 and the longest, in seconds."""
    ordered = sorted(taken)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100], "longest": ordered[-1]}


def cost_of_guards(calls: int) -> dict[str, float]:
    """Microseconds of one call of each guard inside an open transaction."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        path = writing.make(Path(folder) / "state.db")
        with open_write(path) as store:
            with store.transaction() as transaction:
                transaction.execute(writing.INSERT, (writing.BODY,))
            with store.transaction() as transaction:
                transaction.execute(writing.INSERT, (writing.BODY,))
                return {name: 1e6 * timed(guard, calls) for name, guard in guards_of(store).items()}


def guards_of(store: Store) -> dict[str, Callable[[], object]]:
    """What runs before COMMIT, piece by piece."""
    return {
        "files replaced or unlinked": lambda: store._check_generation(committed=False, contents=False),
        "contents overwritten": lambda: store._guard.overwritten(),
        "another library in this process": lambda: store._check_strangers(committed=False),
        "write lock, byte 120": lambda: store._check_write_lock(),
        "standing locks": lambda: store._check_standing_lock(committed=False),
    }


def timed(guard: Callable[[], object], calls: int) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    for _ in range(calls):
        guard()
    return (time.perf_counter() - started) / calls


if __name__ == "__main__":
    main()
