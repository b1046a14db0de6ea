"""What is the engine's own share of the shortest write and of the shortest read?

Understand first: `Store.write` and `rows` do nothing but what keeps rows safe: the turn among threads, the checks
before BEGIN, before COMMIT and after it, and error translation. Everything else is SQLite's. At `process` durability
nothing is synced, so some microseconds of checks are a visible share; at `power` they disappear behind the fsync and
are not measured here. A check costs mostly its system calls, so the pieces are timed alone as well.

Sides: `floor write` (plain apsw: BEGIN IMMEDIATE, a row into a table with one index, an update of a counter row,
COMMIT), `ours write` (`Store.write` with the same two statements), `ours block` (the same in `transaction`, which also
asks before each statement), `floor read` and `ours read` (one row by its key). What would change a decision: more than
16 microseconds above the floor for a write (then an append cannot stay within 2.5 times its floor and a check must
become cheaper), more than 10 for a read, or a `block` above twice a `write` (then short work must not use it).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner, writing
from hermes_state.engine import Store, Transaction, open_write
from hermes_state.engine.descriptors import REGISTRY

WRITE_MICROSECONDS = 16.0
READ_MICROSECONDS = 10.0
BATCH = 20
TEXT = "A message of ordinary length, as a chat has it. " * 4
ADD = "INSERT INTO message(session, body) VALUES (?, ?)"
COUNT = "UPDATE session SET messages = messages + 1 WHERE no = ?"
READ = "SELECT messages FROM session WHERE no = ?"
Prepared = Callable[[Path], AbstractContextManager[Callable[[], object]]]


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=9)
    count = max(50, 5000 * chosen.scale // 100)
    sides = {"floor write": floor_write, "ours write": ours_write, "ours block": ours_block}
    sides |= {"floor read": floor_read, "ours read": ours_read}

    def side(name: str, prepared: Prepared) -> runner.Side:
        return runner.Side(name=name, run=lambda: one(prepared, count))

    series = runner.interleaved([side(name, prepared) for name, prepared in sides.items()], chosen.rounds)
    pieces = cost_of_pieces(max(100, 20_000 * chosen.scale // 100))
    write = above(series, "ours write", "floor write")
    read = above(series, "ours read", "floor read")
    ours = 1e6 * statistics.median(run["p50"] for run in series["ours write"])
    guards = sum(pieces.values())
    runner.report(
        "engine_write_path",
        chosen,
        series,
        compared={
            f"{ours_side} p50 ours/floor": runner.ratios(series, ours_side, floor_side, "p50")
            for ours_side, floor_side in (
                ("ours write", "floor write"), ("ours block", "floor write"), ("ours read", "floor read"),
            )
        },
        facts={
            "transactions": count,
            "row_bytes": len(TEXT),
            "write_above_floor_microseconds": round(write, 2),
            "write_above_floor_target_microseconds": WRITE_MICROSECONDS,
            "write_above_floor_target_met": write <= WRITE_MICROSECONDS,
            "read_above_floor_microseconds": round(read, 2),
            "read_above_floor_target_microseconds": READ_MICROSECONDS,
            "read_above_floor_target_met": read <= READ_MICROSECONDS,
            **{f"piece, microseconds: {name}": round(cost, 2) for name, cost in pieces.items()},
            "guards_microseconds": round(guards, 2),
            "guards_share_of_a_write": round(guards / ours, 3),
        },
        targets={},
    )


def above(series: dict[str, list[dict[str, float]]], of: str, to: str) -> float:
    """Microseconds that the p50 of one side lies above that of another, the median of the rounds."""
    pairs = zip(series[of], series[to], strict=True)
    return 1e6 * statistics.median(mine["p50"] - floor["p50"] for mine, floor in pairs)


@contextmanager
def made() -> Iterator[Path]:
    """A store with one table, one index and one counter row."""
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        path = writing.make(Path(folder) / "state.db")
        connection = apsw.Connection(str(path))
        for sql in (
            "CREATE TABLE message(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, body TEXT NOT NULL)",
            "CREATE INDEX message_session ON message(session, id)",
            "CREATE TABLE session(no INTEGER PRIMARY KEY, messages INTEGER NOT NULL)",
            "INSERT INTO session VALUES (1, 0)",
        ):
            connection.execute(sql).fetchall()
        connection.close()
        yield path


def one(prepared: Prepared, count: int) -> dict[str, float]:
    """p50 and p99 of `count` calls on a new store; `prepared` opens it and gives what is called."""
    with made() as path, prepared(path) as call, runner.timing() as measured:
        taken = []
        for _ in range(count):
            started = time.perf_counter()
            call()
            taken.append(time.perf_counter() - started)
    ordered = sorted(taken)
    return {**measured, "p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100]}


@contextmanager
def plain(path: Path) -> Iterator[apsw.Connection]:
    """A connection of plain apsw."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(writing.BUSY_MILLISECONDS)
    connection.execute("PRAGMA synchronous = NORMAL").fetchall()
    yield connection
    connection.close()


@contextmanager
def floor_write(path: Path) -> Iterator[Callable[[], object]]:
    with plain(path) as connection:

        def call() -> None:
            connection.execute("BEGIN IMMEDIATE").fetchall()
            connection.execute(ADD, (1, TEXT)).fetchall()
            connection.execute(COUNT, (1,)).fetchall()
            connection.execute("COMMIT").fetchall()

        yield call


def both(transaction: Transaction) -> None:
    transaction.execute(ADD, (1, TEXT))
    transaction.execute(COUNT, (1,))


@contextmanager
def ours_write(path: Path) -> Iterator[Callable[[], object]]:
    with open_write(path) as store:
        yield lambda: store.write(both)


@contextmanager
def ours_block(path: Path) -> Iterator[Callable[[], object]]:
    with open_write(path) as store:

        def call() -> None:
            with store.transaction() as transaction:
                both(transaction)

        yield call


@contextmanager
def floor_read(path: Path) -> Iterator[Callable[[], object]]:
    with plain(path) as connection:
        yield lambda: connection.execute(READ, (1,)).fetchall()


@contextmanager
def ours_read(path: Path) -> Iterator[Callable[[], object]]:
    with open_write(path) as store:
        yield lambda: store.rows(READ, (1,))


def cost_of_pieces(calls: int) -> dict[str, float]:
    """Microseconds of what one `write` does beside SQLite's work, each timed alone."""
    with made() as path, open_write(path) as store:
        store.write(both)
        outside = {name: timed(piece, calls) for name, piece in before_begin(store).items()}
        with store.transaction() as transaction:
            both(transaction)
            return outside | {name: timed(piece, calls) for name, piece in around_commit(store).items()}


def before_begin(store: Store) -> dict[str, Callable[[], object]]:
    me = threading.get_ident()

    def turn() -> None:
        store._take_turn(me, None)
        store._turn.give(me)

    return {
        "turn among threads": turn,
        "descriptors counted": REGISTRY.changed,
        "write lock free of other libraries": store._refuse_foreign_writer,
    }


def around_commit(store: Store) -> dict[str, Callable[[], object]]:
    return {
        "before COMMIT: files, contents, locks": store._check_before_commit,
        "after COMMIT: reports, locks": store._after_commit,
    }


def timed(piece: Callable[[], object], calls: int) -> float:
    """Microseconds of one call: the median of batches that are too short to lose the processor often."""
    batches = []
    for _ in range(calls // BATCH):
        started = time.perf_counter()
        for _ in range(BATCH):
            piece()
        batches.append((time.perf_counter() - started) / BATCH)
    return 1e6 * statistics.median(batches)


if __name__ == "__main__":
    main()
