"""How many due jobs a second do four processes fire, and does any run twice?

Understand first: APScheduler's job store is read by every process, which runs what it finds and writes afterwards, so
several processes on one store run a job several times (its documentation says not to share one). huey moves what is
due to a queue, and taking it deletes it: a crash loses it. Neither syncs. Ours claims under a fenced lease, writes
that a run begins before its effect, and how it ended after it.

Sides: `ours` (each claim, begin and verdict survives a power cut), `ours_process` (at the others' durability), `floor`
(the same three commits in plain APSW, synced), `apscheduler` and `huey` with SQLite; four processes each. What would
change a decision: a job of ours that ran twice or never.

APScheduler and huey are found in the interpreter that HERMES_BENCH_QUEUES names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 4
SCRIPT = Path(__file__).with_name("sides") / "cron_worker.py"
OURS = ("ours", "ours_process")
OTHERS = ("apscheduler", "huey")
PYTHON = os.environ.get("HERMES_BENCH_QUEUES", "")


def crowd(kind: str, count: int) -> dict[str, float]:
    """Declare jobs that are due and let four processes fire them; seconds of all, and how often each ran."""
    python = PYTHON if kind in OTHERS else sys.executable
    places = SCRIPT.parent if kind in OTHERS else ROOT
    environment = {**os.environ, "PYTHONPATH": str(places)}
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        base = [python, str(SCRIPT), kind, folder]
        subprocess.run([*base, "fill", str(count)], check=True, env=environment)
        os.sync()
        workers = [
            subprocess.Popen(
                [*base, "fire", str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, env=environment,
            )
            for _ in range(WORKERS)
        ]
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        said = [json.loads(worker.communicate()[0].splitlines()[-1]) for worker in workers]
        ran = (Path(folder) / "runs").read_text().split()
    seconds = max(one["ended"] for one in said) - min(one["began"] for one in said)
    return {
        "total": seconds / max(len(set(ran)), 1), "jobs_a_second": len(set(ran)) / seconds,
        "duplicate_runs": float(len(ran) - len(set(ran))), "not_run": float(count - len(set(ran))),
        "workers_that_failed": float(sum(one["failed"] is not None for one in said)),
    }


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=3)
    count = max(20, 4 * chosen.scale)
    kinds = [*OURS, "floor", *(OTHERS if PYTHON else ())]
    sides = [runner.Side(name=kind, run=partial(crowd, kind, count)) for kind in kinds]
    series = runner.interleaved(sides, chosen.rounds)
    runner.report(
        "cron_queues", chosen, series,
        compared={
            f"{ours}/{other}": runner.ratios(series, ours, other, "total")
            for other in ("floor", *(OTHERS if PYTHON else ())) for ours in OURS
        },
        facts={
            "jobs": count, "workers": WORKERS,
            **{
                f"{kind} {what}": round(sum(one[what] for one in series[kind]) / (
                    len(series[kind]) if what == "jobs_a_second" else 1
                ), 1)
                for kind in kinds for what in ("jobs_a_second", "duplicate_runs", "not_run", "workers_that_failed")
            },
        },
        targets={},
    )


if __name__ == "__main__":
    main()
