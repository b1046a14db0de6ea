"""The three sides that both optimize benchmarks compare: our command, hermes-agent's, and the bare statements.

Invariant: every side starts from a new copy of the same file, already on the disk, and ends with an empty WAL, so that
work that one side leaves to its close is counted for it as well.

Not for: the checks of the result, which the tests of `maintenance.space` make.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import apsw

from benchmarks import runner
from benchmarks.store import Recipe

INDEXES = ("messages_fts", "messages_fts_trigram")


class Sizes:
    """File sizes at the end of each run, by side."""

    def __init__(self) -> None:
        self.bytes: dict[str, list[int]] = {}

    def note(self, side: str, db: Path) -> None:
        """Main file and WAL."""
        total = sum(os.stat(name).st_size for name in (db, f"{db}-wal") if os.path.exists(name))
        self.bytes.setdefault(side, []).append(total)

    def ratios(self, of: str, to: str) -> list[float]:
        """Size of one side by size of another in the same round."""
        return [mine / theirs for mine, theirs in zip(self.bytes.get(of, []), self.bytes.get(to, []), strict=False)]

    def facts(self) -> dict[str, object]:
        """Sizes for the report: one figure, or all that were seen."""
        return {f"{side}_bytes_after": sorted(set(seen)) for side, seen in self.bytes.items()}


def sides(recipe: Recipe, sizes: Sizes, *, vacuum: bool) -> list[runner.Side]:
    """Ours, the floor, and where it is installed the peer twice: its whole command, and its calls alone.

    `vacuum` says whether the floor returns pages, as the peer always does.
    """
    found = [
        runner.Side(name="ours", run=lambda: ours(recipe, sizes)),
        runner.Side(name="floor", run=lambda: floor(recipe, sizes, vacuum=vacuum)),
    ]
    if runner.peer():
        found.append(runner.Side(name="peer", run=lambda: command_of_peer(recipe, sizes)))
        found.append(runner.Side(name="inside", run=lambda: calls_of_peer(recipe, sizes)))
    return found


def ours(recipe: Recipe, sizes: Sizes) -> dict[str, float]:
    """Our command; the phases are what it says of itself, `work` is all that is not a check or the program's start."""
    with runner.fresh_store(recipe) as db:
        with runner.timing() as measured:
            done = runner.ours("sessions", "optimize", "--json", home=db.parent)
        said = json.loads(done.stdout)["seconds"]
        sizes.note("ours", db)
    phases = ("merge", "reclaim", "checkpoint")
    return {
        **measured,
        **{phase: said[phase] for phase in phases},
        "checks": said["checks_before"] + said["checks_after"],
        "locked": said["locked"],
        "work": sum(said[phase] for phase in phases),
    }


def command_of_peer(recipe: Recipe, sizes: Sizes) -> dict[str, float]:
    """`hermes sessions optimize` of hermes-agent."""
    with runner.fresh_store(recipe) as db:
        with runner.timing() as measured:
            runner.theirs("sessions", "optimize", home=db.parent)
        sizes.note("peer", db)
    return measured


def calls_of_peer(recipe: Recipe, sizes: Sizes) -> dict[str, float]:
    """The same work of hermes-agent without the start of its command: its call, then its close."""
    peer = runner.peer()
    assert peer is not None
    with runner.fresh_store(recipe) as db:
        answer = peer.timed(db, "optimize")
        sizes.note("inside", db)
    return {"total": answer["closed_seconds"], "call": answer["seconds"]}


def floor(recipe: Recipe, sizes: Sizes, *, vacuum: bool) -> dict[str, float]:
    """The bare statements through apsw with SQLite's defaults: no lock, no check, no plan."""
    with runner.fresh_store(recipe) as db:
        with runner.timing() as measured:
            connection = apsw.Connection(str(db))
            for index in INDEXES:
                connection.execute(f"INSERT INTO {index}({index}) VALUES ('optimize')").fetchall()
            if vacuum:
                connection.execute("VACUUM").fetchall()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.close()
        sizes.note("floor", db)
    return measured
