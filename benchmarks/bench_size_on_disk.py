"""How many bytes on disk does a byte of content take, with search, and is every word still found?

Understand first: the peer keeps each text three times and two kinds of postings. Ours keeps it once, and an index
without texts beside the store. What is cold can be compressed by `sessions optimize`; the index stays whole, so search
does not notice.

Sides: `ours hot` (after the last append, index complete, checkpointed), `ours cold` (after `sessions optimize` with
everything cold), `peer`, `floor` (one table, no search). Seconds are those of the optimize run. What would change a
decision: more than 1.75 bytes hot or 1.1 cold for a byte of content, or one word of a thousand not found.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner, talking

WORDS = 1_000


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=1)
    facts: dict[str, object] = {}
    series: dict[str, list[dict[str, float]]] = {}
    compared: dict[str, list[float]] = {}
    with talking.planned(sessions=60, messages=max(4, chosen.scale)) as (plan, rows, content):
        for kind in talking.kinds():
            with talking.prepared(kind, plan) as db, runner.timing() as measured:
                talking.ask(kind, "append", db=str(db), plan=str(plan), level="process")
                if kind == "ours":
                    hot_and_cold(db, content, chosen.scale, facts, compared)
                else:
                    facts[f"bytes by a byte of content, {kind}"] = round(main_files(db) / content, 3)
            series[kind if kind != "ours" else "ours hot and cold"] = [measured]
    runner.report(
        "size_on_disk", chosen, series, compared=compared,
        facts={"messages": rows, "content_bytes": content, **facts, **runner.peer_note()},
        targets={"hot, bytes by a byte of content": 1.75, "cold, bytes by a byte of content": 1.1},
    )


def hot_and_cold(
    db: Path, content: int, scale: int, facts: dict[str, object], compared: dict[str, list[float]]
) -> None:
    """Size and recall before and after compression."""
    words = max(20, WORDS * scale // 100)
    for state in ("hot", "cold"):
        if state == "cold":
            runner.ours(
                "sessions", "optimize", "--db", str(db), "--compress", "always", home=db.parent
            )
        answer = talking.ask("ours", "recall", db=str(db), count=words, seed=7)
        size = main_files(db)
        facts[f"{state}: words found"] = f"{answer['found']} of {answer['tried']} {answer['missed'] or ''}".strip()
        facts[f"{state}: bytes"] = size
        compared[f"{state}, bytes by a byte of content"] = [size / content]


def main_files(db: Path) -> int:
    """Bytes of the store and its search index after a checkpoint, -wal and -shm not counted."""
    checkpoint(db)
    return sum(found.stat().st_size for found in db.parent.glob("*.db"))


def checkpoint(db: Path) -> None:
    """Move everything into the main files; nobody has them open."""
    import apsw

    for found in db.parent.glob("*.db"):
        connection = apsw.Connection(str(found))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()


if __name__ == "__main__":
    main()
