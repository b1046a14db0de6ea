"""How long does the first page of the session list take in a small store and in a large one?

Understand first: the list is in order of last activity, which an append does not write: the newest message of a
session says it. So the page is read from a coarse stamp that is at most a minute old, and made exact from the newest
message of each candidate. Nothing may grow with the number of sessions.

Sides: `ours` (`sessions.list(limit=50)`) in stores of three sizes, and `floor` (fifty rows by an index, nothing else)
in the same stores; `peer` (`list_sessions_rich`) in a store of 100 and, at full scale, one of 1,000 sessions, since it
needs seconds beyond that. What would change a decision: a millisecond at 100,000 sessions, or more than twice the time
of 100 sessions.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner, talking
from benchmarks.sides import measure

MILLISECOND = 0.001


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    sizes = (100, 10_000, 100_000) if chosen.scale == 100 else (100, 300)
    with ExitStack() as kept:
        stores = {}
        for size in sizes:
            folder = kept.enter_context(talking.home())
            stores[size] = folder / "state.db"
            talking.ask("ours", "many", db=str(stores[size]), sessions=size)
        sides = []
        for size, db in stores.items():
            sides.append(runner.Side(name=f"ours {size}", run=lambda db=db: listed("ours", db)))
            sides.append(runner.Side(name=f"floor {size}", run=lambda db=db: floor(db)))
        if runner.peer():
            for size in (100, *((1_000,) if chosen.scale == 100 else ())):
                folder = kept.enter_context(talking.home())
                talking.ask("peer", "many", db=str(folder / "state.db"), sessions=size)
                sides.append(runner.Side(name=f"peer {size}", run=lambda db=folder / "state.db": listed("peer", db)))
        series = runner.interleaved(sides, chosen.rounds)
    small, large = sizes[0], sizes[-1]
    compared = {
        f"p50 ours {large}/ours {small}": runner.ratios(series, f"ours {large}", f"ours {small}", "p50"),
        f"p50 ours {large}/floor {large}": runner.ratios(series, f"ours {large}", f"floor {large}", "p50"),
        f"p50 ours {small}/peer {small}": runner.ratios(series, f"ours {small}", f"peer {small}", "p50"),
        f"p50 ours {large}/one millisecond": [run["p50"] / MILLISECOND for run in series[f"ours {large}"]],
    }
    runner.report(
        "list_sessions", chosen, series, compared=compared,
        facts={"sizes": json.dumps(sizes), "messages_in_a_session": 2, **runner.peer_note()},
        targets={f"p50 ours {large}/one millisecond": 1.0, f"p50 ours {large}/ours {small}": 2.0},
    )


def listed(kind: str, db: Path) -> dict[str, float]:
    """Fifty calls of the list."""
    return measure.quantiles(talking.ask(kind, "list", db=str(db), count=50)["taken"])


def floor(db: Path) -> dict[str, float]:
    """The fifty sessions with the newest stamp, and nothing about them."""
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READONLY)
    sql = "SELECT no, id, title FROM sessions ORDER BY active_at DESC LIMIT 50"
    taken = measure.repeated(lambda: connection.execute(sql).fetchall(), 50)
    connection.close()
    return measure.quantiles(taken)


if __name__ == "__main__":
    main()
