"""What does it cost to append one message to a store, and how many bytes are written for it?

Understand first: at `process` a commit syncs nothing, so its time is SQLite's own work, the guards and Python; at
`power` one fsync outweighs everything. What a commit writes is whole pages: one for each b-tree that it touches, once
to the WAL and once more at the checkpoint. The peer keeps two search indexes in the same transaction.

Sides: `ours` (`messages.append`), `floor` (plain apsw: one table, one index, one counter row), `peer`
(`append_message`). The same 6,000 rows of 60 sessions, each in a transaction of its own, store closed at the end. What
would change a decision: a p50 above 2.5 times the floor's at `process` or 1.3 times at `power`, or more than 1.25 times
its bytes: then the row is too wide or a guard is too slow.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner, talking
from benchmarks.sides import measure


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=3)
    with talking.planned(sessions=60, messages=max(4, chosen.scale)) as (plan, rows, content):
        written: dict[str, float] = {}

        def side(kind: str, level: str) -> runner.Side:
            def run() -> dict[str, float]:
                with talking.prepared(kind, plan) as db:
                    answer = talking.ask(kind, "append", db=str(db), plan=str(plan), level=level)
                written[f"{kind} {level}"] = answer["written"] / content
                return {**measure.quantiles(answer["taken"]), "written": answer["written"] / content}

            return runner.Side(name=f"{kind} {level}", run=run)

        sides = [side(kind, level) for level in ("process", "power") for kind in talking.kinds()]
        series = runner.interleaved(sides, chosen.rounds)
    bytes_of = {name: [run.pop("written") for run in runs] for name, runs in series.items()}
    compared = {
        f"{level} p50 ours/{other}": runner.ratios(series, f"ours {level}", f"{other} {level}", "p50")
        for level in ("process", "power") for other in ("floor", "peer")
    }
    for other in ("floor", "peer"):
        if f"{other} process" in bytes_of:
            pairs = zip(bytes_of["ours process"], bytes_of[f"{other} process"], strict=True)
            compared[f"bytes written ours/{other}"] = [mine / theirs for mine, theirs in pairs]
    runner.report(
        "append_message", chosen, series, compared=compared,
        facts={
            "messages": rows, "content_bytes": content,
            **{f"bytes written per byte of content, {name}": round(value, 2) for name, value in written.items()},
            **runner.peer_note(),
        },
        targets={
            "process p50 ours/floor": 2.5, "power p50 ours/floor": 1.3, "process p50 ours/peer": 1 / 8,
            "power p50 ours/peer": 1 / 2, "bytes written ours/floor": 1.25, "bytes written ours/peer": 1 / 7,
        },
    )


if __name__ == "__main__":
    main()
