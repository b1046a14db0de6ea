"""What do fifty messages of one session cost in one transaction?

Understand first: what a transaction costs once is spread over fifty rows here, so this shows what a row costs: its
encoding, its check and its share of the pages. The peer has no public call that appends several messages.

Sides: `ours` (`messages.append_many`) and `floor` (plain apsw, `executemany`). What would change a decision: more than
1.6 times the floor: then a row does too much in Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner, talking
from benchmarks.sides import measure

SIZE = 50


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    with talking.planned(sessions=60, messages=max(4, chosen.scale)) as (plan, rows, content):

        def side(kind: str, level: str) -> runner.Side:
            def run() -> dict[str, float]:
                with talking.prepared(kind, plan) as db:
                    answer = talking.ask(kind, "batch", db=str(db), plan=str(plan), level=level, size=SIZE)
                return measure.quantiles(answer["taken"])

            return runner.Side(name=f"{kind} {level}", run=run)

        sides = [side(kind, level) for level in ("process", "power") for kind in ("ours", "floor")]
        series = runner.interleaved(sides, chosen.rounds)
    runner.report(
        "append_fifty", chosen, series,
        compared={
            f"{level} p50 ours/floor": runner.ratios(series, f"ours {level}", f"floor {level}", "p50")
            for level in ("process", "power")
        },
        facts={"messages": rows, "content_bytes": content, "rows_in_a_transaction": SIZE},
        targets={"process p50 ours/floor": 1.6, "power p50 ours/floor": 1.6},
    )


if __name__ == "__main__":
    main()
