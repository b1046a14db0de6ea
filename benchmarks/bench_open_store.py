"""What does opening a store cost in a process that has the library loaded, while another has the store open?

Understand first: opening checks that the file is ours, that its schema is known and that no process still writes into
files that were unlinked. The peer runs its whole schema script and an update of every row whose flag is missing.

Sides: `ours` (`open_store`, count, close), `peer` (`SessionDB`, count, close), `floor` (apsw, one read, close). What
would change a decision: more than half of the peer's time.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner, talking
from benchmarks.sides import measure


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    with ExitStack() as kept:
        plan, rows, _content = kept.enter_context(talking.planned(sessions=20, messages=max(4, chosen.scale // 2)))
        stores = {}
        for kind in talking.kinds():
            stores[kind] = kept.enter_context(talking.prepared(kind, plan))
            talking.ask(kind, "append", db=str(stores[kind]), plan=str(plan), level="process")
        kept.enter_context(held_open("ours", stores["ours"], plan))

        def run(kind: str) -> dict[str, float]:
            answer = talking.ask(kind, "open", db=str(stores[kind]), count=max(5, chosen.scale))
            return measure.quantiles(answer["taken"])

        series = runner.interleaved(
            [runner.Side(name=kind, run=lambda kind=kind: run(kind)) for kind in stores], chosen.rounds
        )
    runner.report(
        "open_store", chosen, series,
        compared={f"p50 ours/{other}": runner.ratios(series, "ours", other, "p50") for other in ("floor", "peer")},
        facts={"messages_in_store": rows, **runner.peer_note()},
        targets={"p50 ours/peer": 1 / 2},
    )


class held_open:
    """Another process that has the store open until the block ends."""

    def __init__(self, side: str, db: Path, plan: Path) -> None:
        self.words, self.environment = talking.command(
            side, "append", db=str(db), plan=str(plan), level="process", first=10**9, wait=True
        )

    def __enter__(self) -> None:
        self.process = subprocess.Popen(
            self.words, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def __exit__(self, *failure: object) -> None:
        self.process.communicate("go\n")


if __name__ == "__main__":
    main()
