"""How many obligations a second do eight processes claim and settle, and is any claimed twice?

Understand first: huey deletes a job when it is taken, so nothing is settled and a crash loses it; litequeue marks it
and marks it again, and a crash leaves it marked for ever; neither syncs. Ours writes who claims it with a fence, and
the verdict, each in a transaction; at their durability (`process`) it is the same kind of work, and by its own rules
each verdict, and each claim of what may be sent only once, is also synced.

Sides: `ours_process` (one at a time, at the others' durability), `ours_many` (twenty a claim), `ours_again`
(at_least_once by its own rules), `ours_once` (at_most_once by its own rules), `floor` (two statements of SQLite a job),
`huey`, `litequeue`; eight processes each. What would change a decision: a duplicate of ours.

huey and litequeue are found in the interpreter that HERMES_BENCH_QUEUES names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 8
SCRIPT = Path(__file__).with_name("sides") / "queue_worker.py"
OURS = ("ours_process", "ours_many", "ours_again", "ours_once")
OTHERS = ("huey", "litequeue")
PYTHON = os.environ.get("HERMES_BENCH_QUEUES", "")


def crowd(kind: str, count: int) -> dict[str, float]:
    """Fill a queue and let eight processes empty it; seconds from the first start to the last end, and duplicates."""
    python = PYTHON if kind in OTHERS else sys.executable
    environment = {**os.environ, "PYTHONPATH": "" if kind in OTHERS else str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        base = [python, str(SCRIPT), kind, folder]
        subprocess.run([*base, "fill", str(count)], check=True, env=environment)
        os.sync()
        workers = [
            subprocess.Popen([*base, "take"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            for _ in range(WORKERS)
        ]
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        said = [json.loads(worker.communicate()[0]) for worker in workers]
    taken = [name for one in said for name in one["taken"]]
    seconds = max(one["ended"] for one in said) - min(one["began"] for one in said)
    return {
        "total": seconds / max(len(taken), 1), "claims_a_second": len(taken) / seconds,
        "taken_twice": float(len(taken) - len(set(taken))), "not_taken": float(count - len(set(taken))),
        "workers_that_failed": float(sum(one["failed"] is not None for one in said)),
    }


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=3)
    count = max(40, 40 * chosen.scale)
    kinds = [*OURS, "floor", *(OTHERS if PYTHON else ())]
    sides = [runner.Side(name=kind, run=lambda kind=kind: crowd(kind, count)) for kind in kinds]
    series = runner.interleaved(sides, chosen.rounds)
    runner.report(
        "outbox_claims", chosen, series,
        compared={
            f"{ours}/{other}": runner.ratios(series, ours, other, "total")
            for other in ("floor", *(OTHERS if PYTHON else ())) for ours in OURS
        },
        facts={
            "obligations": count, "workers": WORKERS,
            **{
                f"{kind} {what}": sum(one[what] for one in series[kind])
                for kind in kinds for what in ("taken_twice", "not_taken", "workers_that_failed")
            },
        },
        targets={},
    )


if __name__ == "__main__":
    main()
