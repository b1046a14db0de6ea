"""How long does an append wait when eight processes write to one store at once?

Understand first: there is one write lock. What differs is who waits how: SQLite's own busy handler naps longer and
longer, the peer retries after 20 to 150 ms and keeps the lock while it maintains two search indexes, ours asks again
after about a millisecond and holds the lock for microseconds.

Sides: `ours`, `floor` (SQLite's busy timeout), `peer`; eight processes each, one row a transaction, at `process`. What
would change a decision: a p99 above an eighth of the peer's, or above the floor's.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner, talking


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=3)
    with talking.planned(sessions=64, messages=max(2, chosen.scale // 2)) as (plan, rows, content):
        sides = [
            runner.Side(name=kind, run=lambda kind=kind: talking.crowd(kind, plan, "process"))
            for kind in talking.kinds()
        ]
        series = runner.interleaved(sides, chosen.rounds)
    runner.report(
        "eight_writers", chosen, series,
        compared={
            f"{phase} ours/{other}": runner.ratios(series, "ours", other, phase)
            for other in ("floor", "peer") for phase in ("p50", "p99", "longest", "total")
        },
        facts={"messages": rows, "content_bytes": content, "writers": talking.WRITERS, **runner.peer_note()},
        targets={"p99 ours/peer": 1 / 8},
    )


if __name__ == "__main__":
    main()
