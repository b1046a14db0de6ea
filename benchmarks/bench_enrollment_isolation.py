"""How much slower are the handshakes of 100 instances while another one's enrollment is inside a slow step?

Understand first: a plugin is let in by `check_token`, then whatever the server wants to know of it (5 seconds here, in
another program), then `redeem`. Only the two ends touch the store, so nothing is held in between. A handshake is
`accept`: authenticate, negotiate, read what there is to recover, register; it commits only when the plugin's process is
another one than the last time. Each run opens the store anew and has the instances connect one after the other, at a
steady rate, for the time of the slow step. One that could not begin when it was due is timed from then, so that a stall
counts for every handshake that it holds up and not for one.

Sides: `ours slow` (beside an enrollment that takes the whole run) and `ours` (without it), of plugins that connect
again; `ours slow new` and `ours new`, of plugins that were restarted, each with a commit at `power`; `floor` (the
credential of an instance read through plain apsw, and compared). What would change a decision: a p99 beside it of more
than 1.5 of the p99 without it.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner
from benchmarks.sides import measure
from hermes_state.gateway import Hello, Server, VersionRange
from hermes_state.store import Store, open_store

RATE, RATE_NEW = 400.0, 100.0  # handshakes a second, well below what one core does
VERSIONS = VersionRange(1, 2)


def instances(store: Store, count: int) -> dict[str, str]:
    """Enrolled ones with their credentials."""
    made = {}
    for number in range(count):
        minted = store.instances.enroll(f"i{number}", nickname=f"Gateway {number}", actor="bench")
        made[f"i{number}"] = store.instances.redeem(minted.token, actor="bench").credential
    return made


def hello(name: str, credential: str, boot_id: str) -> Hello:
    return Hello(
        instance_id=name, credential=credential, boot_id=boot_id, versions=VERSIONS, plugin_version="1",
        hermes_version="1",
    )


def handshakes(server: Server, known: dict[str, str], seconds: float, *, restarted: bool) -> list[float]:
    """Connect all of them, again and again; seconds of each."""
    taken: list[float] = []
    first, gap = time.perf_counter(), 1 / (RATE_NEW if restarted else RATE)
    for number, (name, credential) in enumerate(itertools.cycle(known.items())):
        greeting = hello(name, credential, secrets.token_hex(8) if restarted else "boot")
        due = first + number * gap
        if due > first + seconds:
            return taken
        if (left := due - time.perf_counter()) > 0:
            time.sleep(left)
            due = time.perf_counter()  # how late this program wakes is no part of it
        server.accept(greeting)
        taken.append(time.perf_counter() - due)
    return taken


def enrolling(store: Store, token: str, slow: subprocess.Popen[str], seconds: float) -> None:
    """One enrollment whose external step takes so long: what another program answers then."""
    store.instances.check_token(token)
    slow.communicate(f"{seconds}\n")
    store.instances.redeem(token, actor="bench")


def run(home: Path, known: dict[str, str], seconds: float, *, slow: bool, restarted: bool) -> dict[str, float]:
    with open_store(home) as store, store.gateway.serve(versions=VERSIONS) as server:
        for name, credential in known.items():
            server.accept(hello(name, credential, "boot"))
        token = store.instances.enroll("late", nickname="Late", actor="bench").token
        # It is there before the clock starts: how the machine starts programs is no part of the question.
        program = subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; print(flush=True); time.sleep(float(input()))"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        assert program.stdout is not None
        program.stdout.readline()
        beside = threading.Thread(target=enrolling, args=(store, token, program, seconds if slow else 0.0))
        if slow:
            beside.start()
        taken = handshakes(server, known, seconds, restarted=restarted)
        if not slow:
            beside.start()
        beside.join()
    return measure.quantiles(taken)


def floor(home: Path, count: int) -> dict[str, float]:
    """In a file of its own: a store must not be opened twice in one process."""
    connection = apsw.Connection(str(home / "plain.db"))
    if connection.pragma("journal_mode", "wal") and not connection.pragma("table_info", "credentials"):
        connection.execute("CREATE TABLE credentials (instance_id TEXT PRIMARY KEY, digest BLOB) WITHOUT ROWID")
        connection.executemany(
            "INSERT INTO credentials VALUES (?, ?)",
            [(f"i{number}", secrets.token_bytes(32)) for number in range(count)],
        )

    def look(name: str) -> None:
        found = connection.execute("SELECT digest FROM credentials WHERE instance_id = ?", (name,)).fetchall()
        kept = found[0][0]
        assert isinstance(kept, bytes)
        hmac.compare_digest(kept, hmac.digest(b"key", name.encode(), hashlib.sha256))

    taken = measure.each([lambda name=f"i{number % count}": look(name) for number in range(20 * count)])
    connection.close()
    return measure.quantiles(taken)


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=5)
    count, seconds = (100, 5.0) if chosen.scale == 100 else (10, 0.2)
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        home = Path(folder)
        with open_store(home) as store:
            known = instances(store, count)
        sides = [
            runner.Side(
                name="ours" + (" slow" if slow else "") + (" new" if restarted else ""),
                run=lambda slow=slow, restarted=restarted: run(home, known, seconds, slow=slow, restarted=restarted),
            )
            for slow in (True, False) for restarted in (False, True)
        ]
        sides.append(runner.Side(name="floor", run=lambda: floor(home, count)))
        series = runner.interleaved(sides, chosen.rounds)
    runner.report(
        "enrollment_isolation", chosen, series,
        compared={
            "p99 ours slow/ours": runner.ratios(series, "ours slow", "ours", "p99"),
            "p99 ours slow new/ours new": runner.ratios(series, "ours slow new", "ours new", "p99"),
            "p50 ours slow/ours": runner.ratios(series, "ours slow", "ours", "p50"),
            "p50 ours/floor": runner.ratios(series, "ours", "floor", "p50"),
        },
        facts={
            "instances": count, "slow_step_seconds": seconds,
            "handshakes_a_second": f"{RATE:.0f}, restarted {RATE_NEW:.0f}",
        },
        targets={"p99 ours slow/ours": 1.5, "p99 ours slow new/ours new": 1.5},
    )


if __name__ == "__main__":
    main()
