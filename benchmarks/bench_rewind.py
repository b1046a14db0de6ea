"""What does it cost to take a hundred messages out of a session's view?

Understand first: the peer flips a flag on every row, and its search triggers index each row again. Ours writes one row
that says which messages the view leaves out; compaction hides messages by a row of the same table.

Sides: `ours` (`messages.rewind`), `peer` (`rewind_to_message`), `floor` (one append, the least that any change costs).
What would change a decision: more than a twentieth of the peer's time or bytes.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner, talking
from benchmarks.sides import measure

BACK = 100


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    written: dict[str, list[float]] = {}
    with talking.planned(sessions=4, messages=BACK + 20) as (plan, rows, _content), ExitStack() as kept:
        stores = {}
        for kind in talking.kinds():
            stores[kind] = kept.enter_context(talking.prepared(kind, plan))
            if kind != "floor":
                talking.ask(kind, "append", db=str(stores[kind]), plan=str(plan), level="process")

        def run(kind: str) -> dict[str, float]:
            times = max(3, chosen.scale // 5)
            if kind == "floor":
                with talking.prepared(kind, plan) as db:
                    answer = talking.ask(kind, "append", db=str(db), plan=str(plan), level="process")
                return measure.quantiles(answer["taken"])
            answer = talking.ask(kind, "rewind", db=str(stores[kind]), session="chat_00001", back=BACK, count=times)
            written.setdefault(kind, []).append(answer["written"] / times)
            return measure.quantiles(answer["taken"])

        series = runner.interleaved(
            [runner.Side(name=kind, run=lambda kind=kind: run(kind)) for kind in stores], chosen.rounds
        )
    compared = {f"p50 ours/{other}": runner.ratios(series, "ours", other, "p50") for other in ("floor", "peer")}
    if "peer" in written:
        compared["bytes ours/peer"] = [a / b for a, b in zip(written["ours"], written["peer"], strict=True)]
    runner.report(
        "rewind", chosen, series, compared=compared,
        facts={
            "messages_in_store": rows, "messages_hidden": BACK,
            **{f"bytes written by one, {kind}": round(statistics.median(values)) for kind, values in written.items()},
            **runner.peer_note(),
        },
        targets={"p50 ours/peer": 1 / 20, "bytes ours/peer": 1 / 20},
    )


if __name__ == "__main__":
    main()
