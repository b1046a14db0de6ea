"""How long does it take to load a session of 200 messages as a model gets it?

Understand first: the rows of one session lie between those of others, so each is found through the index of its
session; then tool calls are parsed and paired. The peer's index does not give the order, so it sorts.

Sides: `ours` (`messages.context`), `peer` (`get_messages_as_conversation`), `floor` (the rows as they are, nothing
parsed). What would change a decision: more than half of the peer's time.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner, talking
from benchmarks.sides import measure

MESSAGES = 200


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=7)
    planned = talking.planned(sessions=max(2, chosen.scale // 5), messages=MESSAGES)
    with ExitStack() as kept:
        plan, rows, _content = kept.enter_context(planned)
        stores = {}
        for kind in talking.kinds():
            stores[kind] = kept.enter_context(talking.prepared(kind, plan))
            talking.ask(kind, "append", db=str(stores[kind]), plan=str(plan), level="process")

        def run(kind: str) -> dict[str, float]:
            answer = talking.ask(kind, "resume", db=str(stores[kind]), session="chat_00001", count=max(5, chosen.scale))
            return measure.quantiles(answer["taken"])

        series = runner.interleaved(
            [runner.Side(name=kind, run=lambda kind=kind: run(kind)) for kind in stores], chosen.rounds
        )
    runner.report(
        "resume_session", chosen, series,
        compared={f"p50 ours/{other}": runner.ratios(series, "ours", other, "p50") for other in ("floor", "peer")},
        facts={"messages_in_store": rows, "messages_in_session": MESSAGES, **runner.peer_note()},
        targets={"p50 ours/peer": 1 / 2},
    )


if __name__ == "__main__":
    main()
