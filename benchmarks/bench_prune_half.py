"""How long does it take to delete the older half of the sessions, ours against hermes-agent's?

Understand first: deleting a message costs an entry in each of two search indexes, through the file's own triggers, so
both sides pay the same per row; what differs is how many commits they make, what they look up for each session, and
what they read before. Ours also checks guards again in each transaction, writes a ledger and yields to writers.
`--before` is the same moment for both, between two sessions. Neither side returns pages here (`--reclaim never`); the
second pair compares our prune with its reclaim to hermes-agent's prune followed by its optimize.

Sides: `ours` and `peer` are whole commands; `floor` deletes the same rows in one transaction through apsw; `all` and
`all_peer` return the space as well. The run fails when the sides keep different sessions. What would change a decision
(bounded transactions of 200 rows): a ratio above 1.0.
"""

from __future__ import annotations

import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner
from benchmarks.store import Recipe, facts

TARGET = 1.0


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    recipe = runner.recipe(chosen, megabytes=100, messages=40)
    with runner.fresh_store(recipe) as db:
        shape, cut = facts(db), cutoff(db)
        floor_delete(db, cut)
        kept = sessions(db)
    prune = ("sessions", "prune", "--before", moment(cut), "--yes")
    ours = (*prune, "--allow-large")

    def side(name: str, *commands: tuple[str, ...], by_peer: bool = False) -> runner.Side:
        return runner.Side(name=name, run=lambda: command(recipe, kept, commands, by_peer=by_peer))

    sides = [
        side("ours", (*ours, "--reclaim", "never")),
        runner.Side(name="floor", run=lambda: floor(recipe, cut)),
        side("all", ours),
    ]
    if runner.peer():
        sides.append(side("peer", prune, by_peer=True))
        sides.append(side("all_peer", prune, ("sessions", "optimize"), by_peer=True))
    series = runner.interleaved(sides, chosen.rounds)
    runner.report(
        "prune_half",
        chosen,
        series,
        compared={
            "ours/peer": runner.ratios(series, "ours", "peer"),
            "all/all_peer": runner.ratios(series, "all", "all_peer"),
            "ours/floor": runner.ratios(series, "ours", "floor"),
        },
        facts={**shape, "sessions_kept": kept, "before": moment(cut), **runner.peer_note()},
        targets={"ours/peer": TARGET, "all/all_peer": TARGET},
    )


def command(recipe: Recipe, kept: int, commands: tuple[tuple[str, ...], ...], *, by_peer: bool) -> dict[str, float]:
    """Wall time of the commands, one after the other, on a new copy."""
    with runner.fresh_store(recipe) as db:
        with runner.timing() as measured:
            for arguments in commands:
                if by_peer:
                    runner.theirs(*arguments, home=db.parent)
                else:
                    runner.ours(*arguments, home=db.parent)
        left = sessions(db)
    assert left == kept, f"{commands}: {left} sessions left, {kept} expected"
    return measured


def floor(recipe: Recipe, cut: float) -> dict[str, float]:
    with runner.fresh_store(recipe) as db, runner.timing() as measured:
        floor_delete(db, cut)
    return measured


def floor_delete(db: Path, cut: float) -> None:
    """The same rows in one transaction, WAL emptied at the end."""
    connection = apsw.Connection(str(db))
    connection.execute("BEGIN IMMEDIATE").fetchall()
    chosen = "SELECT id FROM sessions WHERE ended_at IS NOT NULL AND started_at < ?"
    connection.execute(f"DELETE FROM messages WHERE session_id IN ({chosen})", (cut,)).fetchall()
    connection.execute(f"DELETE FROM sessions WHERE id IN ({chosen})", (cut,)).fetchall()
    connection.execute("COMMIT").fetchall()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def cutoff(db: Path) -> float:
    """A whole second after the last end of the older half and before the next start."""
    connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
    try:
        starts = [row[0] for row in connection.execute("SELECT started_at FROM sessions ORDER BY started_at")]
    finally:
        connection.close()
    return float(int(starts[len(starts) // 2]) - 60)


def moment(cut: float) -> str:
    """The cutoff as an ISO time that both sides read as UTC."""
    return datetime.fromtimestamp(cut, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def sessions(db: Path) -> int:
    connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM sessions").fetchone()[0])
    finally:
        connection.close()


if __name__ == "__main__":
    main()
