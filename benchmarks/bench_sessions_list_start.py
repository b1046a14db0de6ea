"""How long does `sessions list` take from the shell to the last line, ours against hermes-agent's?

Understand first: a listing of twenty sessions reads some dozen pages; nearly all of the time is the start of Python and
the import of modules. Both sides run the console script of an installed environment, with compiled modules and files
in the page cache; each has run once before anything is counted. The peer's listing also opens the store for writing
and checkpoints at its end, ours opens it read-only.

Sides: `ours`, `peer`, and as floor the start of a bare Python that lists twenty titles with apsw. What would change the
decision (lazy imports, no rich on plain listings): a median above half of the peer's.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import runner
from benchmarks.store import facts, made

TARGET = 0.5
FLOOR = (
    "import apsw, sys; c = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY); "
    "print(c.execute('SELECT id, title FROM sessions ORDER BY started_at DESC LIMIT 20').fetchall())"
)


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=20)
    peer = runner.peer()
    recipe = runner.recipe(chosen, megabytes=20, messages=20)
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        homes = {}
        for name in ("ours", "peer"):
            homes[name] = Path(folder) / name
            made(recipe, homes[name] / "state.db", python=peer.python if peer else None)
        shape = facts(homes["ours"] / "state.db")
        db = homes["ours"] / "state.db"
        sides = [
            runner.Side(name="ours", run=lambda: ours(homes["ours"])),
            runner.Side(name="floor", run=lambda: floor(db)),
        ]
        if peer:
            sides.append(runner.Side(name="peer", run=lambda: theirs(homes["peer"])))
        for side in sides:
            side.run()
        series = runner.interleaved(sides, chosen.rounds)
    runner.report(
        "sessions_list_start",
        chosen,
        series,
        compared={
            "ours/peer": runner.ratios(series, "ours", "peer"),
            "ours/floor": runner.ratios(series, "ours", "floor"),
        },
        facts={**shape, "command": "sessions list", **runner.peer_note()},
        targets={"ours/peer": TARGET},
    )


def ours(home: Path) -> dict[str, float]:
    with runner.timing() as measured:
        done = runner.ours("sessions", "list", home=home)
    assert "bench_" in done.stdout, done.stdout
    return measured


def theirs(home: Path) -> dict[str, float]:
    with runner.timing() as measured:
        done = runner.theirs("sessions", "list", home=home)
    assert "bench_" in done.stdout, done.stdout
    return measured


def floor(db: Path) -> dict[str, float]:
    with runner.timing() as measured:
        subprocess.run(
            [sys.executable, "-c", FLOOR, str(db)],
            check=True,
            capture_output=True,
            env=runner.our_environment(db.parent),
        )
    return measured


if __name__ == "__main__":
    main()
