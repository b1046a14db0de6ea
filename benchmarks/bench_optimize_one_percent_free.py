"""What does `sessions optimize` do with a 200 MB store of which one per cent is free?

Understand first: hermes-agent rewrites the whole file whatever it gains. Ours returns pages only when more than a tenth
of the file is free; then it merges the indexes and says that it kept the pages. The floor here is the merge alone.

At full size the run fails when pages were returned all the same; a small store frees a larger share by its merge. What
would change the decision (a threshold at all): work that is not clearly below the peer's, since then skipping the
rewrite gains nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import optimizing, runner
from benchmarks.store import facts

TARGET = 1.0


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    recipe = runner.recipe(chosen, megabytes=200, free_share=0.01)
    with runner.fresh_store(recipe) as db:
        shape = facts(db)
        said = json.loads(runner.ours("sessions", "optimize", "--json", home=db.parent).stdout)
    if said["reclaim"]["runs"] and chosen.scale == 100:
        raise SystemExit(f"pages were returned: {said['reclaim']}")
    sizes = optimizing.Sizes()
    series = runner.interleaved(optimizing.sides(recipe, sizes, vacuum=False), chosen.rounds)
    runner.report(
        "optimize_one_percent_free",
        chosen,
        series,
        compared={
            "work/peer inside": runner.ratios(series, "ours", "inside", "work", "total"),
            "total/peer command": runner.ratios(series, "ours", "peer"),
            "work/floor": runner.ratios(series, "ours", "floor", "work", "total"),
            "size/peer size": sizes.ratios("ours", "peer"),
        },
        facts={
            **shape,
            "pages_returned": said["reclaim"]["runs"],
            "why": said["reclaim"]["reason"],
            **sizes.facts(),
            **runner.peer_note(),
        },
        targets={"work/peer inside": TARGET},
    )


if __name__ == "__main__":
    main()
