"""What does compacting a session cost when 0, 5,000 or 50,000 messages have been compacted before?

Understand first: a pass reads the live view alone, makes its digest outside any transaction, and commits a fixed number
of rows; what was archived is neither read nor written. The first pass on a session that was never compacted has all of
it for its live view, once.

Sides: `ours behind N` (`compaction.plan`, then `compact`, after 40 messages came in), `floor` (reading the same live
view). What would change a decision: a time or a number of rows that grows with what is archived.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner, talking

ARCHIVED = (0, 5_000, 50_000)
# So many messages are there before the first pass when nothing is archived.
SMALLEST = 40
TABLES = ("compactions", "compaction_heads", "compaction_clips", "changes")


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    sizes = [max(SMALLEST, rows * chosen.scale // 100 // 4 * 4) for rows in ARCHIVED]
    names = [f"ours behind {rows}" for rows in ARCHIVED]
    first: dict[str, dict[str, float]] = {}
    written: dict[str, list[int]] = {name: [] for name in names}
    series: dict[str, list[dict[str, float]]] = {**{name: [] for name in names}, "floor": []}
    with ExitStack() as kept:
        stores = {name: kept.enter_context(talking.home()) / "state.db" for name in names}
        for (name, db), rows in zip(stores.items(), sizes, strict=True):
            first[name] = talking.ask("passes", "prepare", db=str(db), rows=rows)["first"]
        for number in range(chosen.rounds):
            turn = number % len(names)
            for name in [*names[turn:], *names[:turn]]:
                before = counted(stores[name])
                answer = talking.ask("passes", "passes", db=str(stores[name]), first=number * 3, count=3)
                grown = {table: counted(stores[name])[table] - before[table] for table in before}
                written[name].append(sum(grown.values()) // 3)
                series[name] += [
                    {key: one[key] for key in ("total", "plan", "commit", "transaction")} for one in answer["passes"]
                ]
                if name == names[0]:
                    series["floor"] += [{"total": one["read"]} for one in answer["passes"]]
    compared: dict[str, list[float]] = {}
    for phase in ("plan", "commit", "transaction"):
        for name in names[1:]:
            compared[f"{phase} {name}/{ARCHIVED[0]}"] = runner.ratios(series, name, names[0], phase)
    facts: dict[str, Any] = {"messages_archived": dict(zip(names, sizes, strict=True))}
    facts["rows added by one pass"] = {name: sorted(set(numbers)) for name, numbers in written.items()}
    facts["first pass, never compacted, seconds"] = {
        name: {key: round(first[name][key], 4) for key in ("plan", "total", "commit", "transaction")} for name in names
    }
    runner.report(
        "compact_pass", chosen, series, compared=compared, facts={**facts, **runner.peer_note()},
        targets={name: 1.5 for name in compared},
    )


def counted(db: Path) -> dict[str, int]:
    """Rows of the tables that a pass writes to; no store has the file open in this process."""
    with apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READONLY) as connection:
        found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        there = {name for (name,) in found}
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for table in TABLES if table in there
        }


if __name__ == "__main__":
    main()
