"""How long does `sessions optimize` take on a 200 MB store of which half is free, and how small does it get?

Understand first: optimizing has three parts. Merging rewrites two search indexes; returning pages (VACUUM) rewrites
what is left of the file and writes it once more from the WAL; checks read all pages and both indexes before and after,
and hermes-agent makes none. So `work` (merge, reclaim, checkpoint) is compared with the peer's, and the checks are
shown apart. The store was built and pruned through the peer's SQLite and the file's own triggers.

Sides: `ours` is our command; `peer` hermes-agent's command; `inside` its calls without the start of its command line,
close included; `floor` the bare statements. What would change a decision: work above 1.0 of either of the peer's times
(then the way of merging or rewriting is wrong), a total above 3 (then checks must become optional or cheaper), a file
more than 2 % larger than the peer's (then the reclaim is not one).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import optimizing, runner
from benchmarks.store import facts

WORK, TOTAL, SIZE = 1.0, 3.0, 1.02


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=7)
    recipe = runner.recipe(chosen, megabytes=200, free_share=0.5)
    with runner.fresh_store(recipe) as db:
        shape = facts(db)
    sizes = optimizing.Sizes()
    series = runner.interleaved(optimizing.sides(recipe, sizes, vacuum=True), chosen.rounds)
    runner.report(
        "optimize_200mb_half_free",
        chosen,
        series,
        compared={
            "work/peer inside": runner.ratios(series, "ours", "inside", "work", "total"),
            "work/peer command": runner.ratios(series, "ours", "peer", "work", "total"),
            "total/peer command": runner.ratios(series, "ours", "peer"),
            "work/floor": runner.ratios(series, "ours", "floor", "work", "total"),
            "size/peer size": sizes.ratios("ours", "peer"),
            "size/floor size": sizes.ratios("ours", "floor"),
        },
        facts={**shape, **sizes.facts(), **runner.peer_note()},
        targets={
            "work/peer inside": WORK,
            "work/peer command": WORK,
            "total/peer command": TOTAL,
            "size/peer size": SIZE,
        },
    )


if __name__ == "__main__":
    main()
