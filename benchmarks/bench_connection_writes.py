"""What do 1,000 connections and disconnections, and 10,000 probes with their answers, write to the store?

Understand first: who is connected is in the server's memory. A connect commits only when the plugin's process or the
negotiated version is another one than the last time, a probe never, and when an instance was last heard of is written
by a timer, at most once in ten minutes. What was written is seen by another connection of the file (`data_version`
changes with every commit), by the length of the WAL, and by the bytes that this process passed to write calls.

Sides: `ours` (connect and disconnect, all instances in turn), `ours probes` (a probe sent and answered), `ours new` (a
connect of another process of the plugin, which does commit, for scale), and `floor` (a row of last contact updated for
every connect, through plain apsw, which is what is not done). What would change a decision: one byte, or one commit, of
the first two.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner
from benchmarks.bench_enrollment_isolation import VERSIONS, hello, instances
from benchmarks.sides import measure
from hermes_state.engine import Reader
from hermes_state.gateway import Server
from hermes_state.instances.liveness import ANSWER_WITHIN_SECONDS, PROBE_AFTER_SECONDS, Act, Watch
from hermes_state.store import Store, open_store

COUNT = 100  # instances


class Looking:
    """What was written by a piece of work, added up over all rounds."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.facts: dict[str, int] = defaultdict(int)

    def at(self, name: str, work: Callable[[], dict[str, float]]) -> dict[str, float]:
        # A reader of its own: `data_version` of one connection tells of the commits of all others.
        with self.store.core.new_reader() as reader:
            version, wal, wrote = self._seen(reader)
            measured = work()
            after = self._seen(reader)
        self.facts[f"{name}: rounds with a commit"] += int(after[0] != version)
        self.facts[f"{name}: WAL bytes"] += after[1] - wal
        self.facts[f"{name}: bytes written"] += after[2] - wrote
        return measured

    def _seen(self, reader: Reader) -> tuple[int, int, int]:
        version = int(reader.rows("PRAGMA data_version")[0][0])
        wal = self.store.path.with_name(f"{self.store.path.name}-wal")
        return version, wal.stat().st_size, measure.written_bytes()


def cycles(server: Server, known: dict[str, str], count: int, *, restarted: bool) -> dict[str, float]:
    names = list(known)

    def cycle(number: int) -> None:
        name = names[number % len(names)]
        accepted = server.accept(hello(name, known[name], secrets.token_hex(8) if restarted else "boot"))
        assert server.disconnect(name, accepted.generation)

    return measure.quantiles(measure.each([lambda number=number: cycle(number) for number in range(count)]))


def probes(server: Server, known: dict[str, str], count: int) -> dict[str, float]:
    """Every instance is connected and probed, round after round, on a clock of our own; each probe is answered."""
    live = {name: server.accept(hello(name, credential, "boot")).generation for name, credential in known.items()}
    watch, now, sent, taken = Watch(), 0.0, 0, []
    for name, generation in live.items():
        watch.begin(name, generation, now)
    while sent < count:
        now += PROBE_AFTER_SECONDS + ANSWER_WITHIN_SECONDS / 2
        for due in watch.due(now):
            assert due.act is Act.PROBE
            began = time.perf_counter()
            assert watch.answer(due.instance_id, due.generation, due.probe, now)
            assert server.pong(due.instance_id, due.generation, due.probe)
            taken.append(time.perf_counter() - began)
            sent += 1
    for name, generation in live.items():
        server.disconnect(name, generation)
    return measure.quantiles(taken)


def floor(db: Path, count: int) -> dict[str, float]:
    """What a server does that writes when each instance came: one small commit each, at the cheaper durability."""
    connection = apsw.Connection(str(db))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "normal")
    connection.execute("CREATE TABLE IF NOT EXISTS seen (name TEXT PRIMARY KEY, at REAL)")
    sql = "INSERT OR REPLACE INTO seen VALUES (?, ?)"
    taken = measure.each([
        lambda number=number: connection.execute(sql, (f"i{number % COUNT}", float(number))) for number in range(count)
    ])
    connection.close()
    return measure.quantiles(taken)


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=3)
    connects, probed = max(20, 10 * chosen.scale), max(200, 100 * chosen.scale)
    with (
        tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder, open_store(folder) as store,
        store.gateway.serve(versions=VERSIONS) as server,
    ):
        known = instances(store, max(4, COUNT * chosen.scale // 100))
        looking = Looking(store)

        def quietly(name: str, work: Callable[[], dict[str, float]]) -> dict[str, float]:
            cycles(server, known, len(known), restarted=False)  # what `ours new` changed is remembered again
            return looking.at(name, work)

        sides: dict[str, Callable[[], dict[str, float]]] = {
            "ours": lambda: quietly("ours", lambda: cycles(server, known, connects, restarted=False)),
            "ours probes": lambda: quietly("ours probes", lambda: probes(server, known, probed)),
            "ours new": lambda: looking.at("ours new", lambda: cycles(server, known, connects, restarted=True)),
            "floor": lambda: floor(Path(folder) / "plain.db", connects),
        }
        series = runner.interleaved([runner.Side(name=name, run=run) for name, run in sides.items()], chosen.rounds)
    runner.report(
        "connection_writes", chosen, series,
        compared={
            "p50 ours/floor": runner.ratios(series, "ours", "floor", "p50"),
            "p50 ours/ours new": runner.ratios(series, "ours", "ours new", "p50"),
        },
        facts={
            "instances": len(known), "rounds": chosen.rounds, "connects_a_round": connects, "probes_a_round": probed,
            **looking.facts,
        },
        targets={},
    )


if __name__ == "__main__":
    main()
