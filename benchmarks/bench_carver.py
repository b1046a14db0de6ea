"""How fast does the carver bring back the rows of a damaged file, and how fast is `.recover` of a sqlite3 shell?

Understand first: the carver decodes every row in Python, so what counts for long rows are bytes and for short rows are
rows. Both files have lost the root page of their table: all of its leaves have to be told by their columns. `mixed` is
142 MB of the recovery reference (texts of some hundred bytes, one in forty of 20 KB in overflow pages, an index, a
search index), `small` 35 MB of rows of 45 bytes.

Sides: `ours` yields every row of every place (slack and free pages too); `floor` is SELECT over the file before it was
damaged; `recover` is `.recover` into nothing and `recover into` the same piped into a second shell, as its users run
it; both need a sqlite3 with the dbpage table (HERMES_RECOVER_SHELL or PATH; Debian's has none). `cpu` is the time that
processors worked, of all processes of a side: beside other work it says more than the wall. What would change the
decision: less than 50 MB/s on mixed rows, or more than half of the time of `recover into`, because then the ladder
should ask a shell first.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner
from hermes_state.testing.corruption import zero_root
from hermes_state.testing.reference import reference_database
from maintenance.recovery.carve.rows import carve, shapes_of
from maintenance.recovery.format.image import Image

SHELL_VARIABLE = "HERMES_RECOVER_SHELL"
TARGET_MB_PER_SECOND, TARGET_OF_RECOVER = 50.0, 0.5
# At scale 100: 142 MB of mixed rows, 35 MB of small ones.
MIXED_ROWS, SMALL_ROWS = 51_000, 780_000
TABLES = {"mixed": "messages", "small": "small"}


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        sound = {
            "mixed": mixed(Path(folder) / "mixed.db", MIXED_ROWS * chosen.scale // 100),
            "small": small(Path(folder) / "small.db", SMALL_ROWS * chosen.scale // 100),
        }
        broken = {name: without_root(path, TABLES[name]) for name, path in sound.items()}
        shell = shell_with_recover(broken["small"])
        sides = []
        for name in sound:
            sides.append(runner.Side(name=f"ours {name}", run=carving(broken[name])))
            sides.append(runner.Side(name=f"floor {name}", run=selecting(sound[name])))
            if shell is not None:
                sides.append(runner.Side(name=f"recover {name}", run=recovering(shell, broken[name], into=False)))
                sides.append(runner.Side(name=f"recover into {name}", run=recovering(shell, broken[name], into=True)))
        series = runner.interleaved(sides, chosen.rounds)
        facts = {f"{name}_bytes": path.stat().st_size for name, path in sound.items()}
        for name in sound:
            best = runner.summary([run["total"] for run in series[f"ours {name}"]])["median"]
            facts[f"{name}_mb_per_second"] = round(sound[name].stat().st_size / 1e6 / best, 1)
            cpu = runner.summary([run["cpu"] for run in series[f"ours {name}"]])["median"]
            facts[f"{name}_mb_per_cpu_second"] = round(sound[name].stat().st_size / 1e6 / max(cpu, 0.01), 1)
            facts[f"{name}_rows_per_second"] = round(series[f"ours {name}"][0]["rows"] / best)
    for runs in series.values():
        for run in runs:
            run.pop("rows", None)
    runner.report(
        "carver",
        chosen,
        series,
        compared={
            f"ours/{other} {name}{' cpu' * (phase == 'cpu')}": runner.ratios(
                series, f"ours {name}", f"{other} {name}", phase
            )
            for name in sound
            for other in ("floor", "recover", "recover into")
            for phase in ("total", "cpu")
        },
        facts={
            **facts,
            "target_mb_per_second": TARGET_MB_PER_SECOND,
            "shell": shell.name if shell else f"no sqlite3 with the dbpage table (set {SHELL_VARIABLE})",
        },
        targets={f"ours/recover into {name}": TARGET_OF_RECOVER for name in sound},
    )


def mixed(path: Path, rows: int) -> Path:
    """The recovery reference, everything in the main file."""
    reference_database(path, rows=max(rows, 50))
    Path(f"{path}-wal").unlink(missing_ok=True)
    return path


def small(path: Path, rows: int) -> Path:
    """One table of short rows."""
    chance = random.Random(1)
    connection = apsw.Connection(str(path))
    try:
        connection.execute(
            "CREATE TABLE small(id INTEGER PRIMARY KEY, a INTEGER NOT NULL, b TEXT NOT NULL, c REAL, d TEXT)"
        ).fetchall()
        with connection:
            connection.executemany(
                "INSERT INTO small(a, b, c, d) VALUES(?, ?, ?, ?)",
                (
                    (chance.randrange(1 << 30), f"key{chance.randrange(10**6)}", chance.random(), f"user{number}")
                    for number in range(max(rows, 200))
                ),
            )
    finally:
        connection.close()
    return path


@contextmanager
def timing() -> Iterator[dict[str, float]]:
    """Fills `total` with the wall seconds of the block and `cpu` with what it and its children worked."""
    before = worked()
    with runner.timing() as measured:
        yield measured
    measured["cpu"] = worked() - before


def worked() -> float:
    """Processor seconds of this process and of its children that ended; `os.times` counts in hundredths only."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in both)


def without_root(sound: Path, table: str) -> Path:
    """A copy that has lost the root of its table."""
    broken = sound.with_name(f"broken-{sound.name}")
    shutil.copy(sound, broken)
    zero_root(broken, table)
    return broken


def carving(path: Path) -> Callable[[], dict[str, float]]:
    def run() -> dict[str, float]:
        with timing() as measured, Image.read(path) as image:
            rows = sum(1 for _ in carve(image, shapes_of(image)))
        return {**measured, "rows": rows}

    return run


def selecting(path: Path) -> Callable[[], dict[str, float]]:
    def run() -> dict[str, float]:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            with timing() as measured:
                names = connection.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
                ).fetchall()
                for (name,) in names:
                    for _ in connection.execute(f'SELECT * FROM "{name}"'):
                        pass
        finally:
            connection.close()
        return measured

    return run


def recovering(shell: Path, path: Path, *, into: bool) -> Callable[[], dict[str, float]]:
    def run() -> dict[str, float]:
        target = path.with_name("recovered.db")
        target.unlink(missing_ok=True)
        with timing() as measured:
            source = subprocess.Popen(
                [str(shell), str(path), ".recover"], stdout=subprocess.PIPE if into else subprocess.DEVNULL
            )
            if into:
                subprocess.run([str(shell), str(target)], stdin=source.stdout, check=False, stdout=subprocess.DEVNULL)
            source.wait()
        target.unlink(missing_ok=True)
        return measured

    return run


def shell_with_recover(path: Path) -> Path | None:
    """A sqlite3 shell whose `.recover` gives rows of `path`."""
    for candidate in (os.environ.get(SHELL_VARIABLE), shutil.which("sqlite3")):
        if not candidate:
            continue
        done = subprocess.run([candidate, str(path), ".recover"], capture_output=True, check=False)
        if done.returncode == 0 and done.stdout.count(b"INSERT") > 10:
            return Path(candidate)
    return None


if __name__ == "__main__":
    main()
