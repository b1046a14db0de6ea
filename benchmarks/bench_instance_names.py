"""How long does it take to see whether a nickname is free, among 100 and among 10,000 instances?

Understand first: whether a name is taken is one look into a unique index over the keys of living instances; what is
around it is the way to the engine's reader, trimming, NFKC and casefolding. A renaming also commits, at `power`. The
names asked for are half taken ones, spelled another way, and half free ones.

Sides: `ours` (`store.instances.by_nickname`), `ours add` (everything that adding would check, changing nothing) and
`ours rename` (a name changed and committed) at both sizes, and `floor` (the same index read through plain apsw, the key
given). What would change a decision: a millisecond at 10,000 instances, or a look that grows with their number.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner
from benchmarks.sides import measure
from hermes_state.engine import Transaction
from hermes_state.errors import NicknameConflict
from hermes_state.instances import registry
from hermes_state.instances.nicknames import nickname_key
from hermes_state.store import Store, open_store

MILLISECOND = 0.001
LOOK = "SELECT instance_id FROM gateway_instances WHERE nickname_key = ? AND removed_at IS NULL"
FRESH = itertools.count()


def filled(store: Store, size: int) -> None:
    """That many instances, added in transactions of 500, which is no part of what is measured."""
    for first in range(0, size, 500):
        def work(tx: Transaction, first: int = first) -> None:
            at = store.core.clock.now()
            for number in range(first, min(first + 500, size)):
                registry.add(
                    tx, f"i{number}", nickname=f"Gateway {number}", connector_url=None, actor="bench", at=at
                )

        store.core.write(work)


def names(size: int, count: int) -> list[str]:
    """Taken and free ones in turn, spread over all instances."""
    step = max(1, size // count)
    return [
        f"  GATEWAY {number * step % size} " if number % 2 else f"Nobody {number}" for number in range(count)
    ]


def asked(one: Callable[[str], object], size: int, count: int) -> dict[str, float]:
    return measure.quantiles(measure.each([lambda name=name: one(name) for name in names(size, count)]))


def adding(store: Store) -> Callable[[str], object]:
    def look(name: str) -> object:
        try:
            return store.instances.preview("new", nickname=name)
        except NicknameConflict:
            return True

    return look


def floor(db: Path, size: int, count: int) -> dict[str, float]:
    """The look alone, in a plain file with the same index: a store must not be opened twice in one process."""
    connection = apsw.Connection(str(db))
    if connection.pragma("journal_mode", "wal") and not connection.pragma("table_info", "gateway_instances"):
        connection.execute("CREATE TABLE gateway_instances (instance_id TEXT, nickname_key TEXT, removed_at REAL)")
        connection.execute("CREATE UNIQUE INDEX n ON gateway_instances (nickname_key) WHERE removed_at IS NULL")
        connection.executemany(
            "INSERT INTO gateway_instances (instance_id, nickname_key) VALUES (?, ?)",
            [(f"i{number}", nickname_key(f"Gateway {number}")) for number in range(size)],
        )
    keys = [nickname_key(name) for name in names(size, count)]
    taken = measure.each([lambda key=key: connection.execute(LOOK, (key,)).fetchall() for key in keys])
    connection.close()
    return measure.quantiles(taken)


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    sizes = (100, 10_000) if chosen.scale == 100 else (20, 100)
    count = max(20, 10 * chosen.scale)
    sides = []
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        stores = {size: open_store(Path(folder) / str(size)) for size in sizes}
        for size, store in stores.items():
            filled(store, size)
            looks = {f"ours {size}": store.instances.by_nickname, f"ours add {size}": adding(store)}
            looks[f"ours rename {size}"] = lambda _name, store=store: store.instances.rename("i0", f"N {next(FRESH)}")
            sides += [
                runner.Side(name=name, run=lambda look=look, size=size: asked(look, size, count))
                for name, look in looks.items()
            ]
            plain = Path(folder) / f"plain {size}.db"
            sides.append(runner.Side(name=f"floor {size}", run=lambda db=plain, size=size: floor(db, size, count)))
        series = runner.interleaved(sides, chosen.rounds)
        for store in stores.values():
            store.close()
    small, large = sizes
    runner.report(
        "instance_names", chosen, series,
        compared={
            f"p50 {side} {large}/one millisecond": [run["p50"] / MILLISECOND for run in series[f"{side} {large}"]]
            for side in ("ours", "ours add", "ours rename")
        } | {
            f"p50 ours {large}/ours {small}": runner.ratios(series, f"ours {large}", f"ours {small}", "p50"),
            f"p50 ours {large}/floor {large}": runner.ratios(series, f"ours {large}", f"floor {large}", "p50"),
        },
        facts={"instances": f"{small} and {large}", "names_a_round": count},
        targets={
            f"p50 ours {large}/one millisecond": 1.0, f"p50 ours add {large}/one millisecond": 1.0,
            f"p50 ours {large}/ours {small}": 2.0,
        },
    )


if __name__ == "__main__":
    main()
