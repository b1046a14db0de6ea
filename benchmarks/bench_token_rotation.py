"""For how long does a kill lose the grant while a token that works once is rotated, and how soon are eight served?

Understand first: a token that works once is gone when it is sent, and its successor is ours when the secret file is on
the disk. Whoever is killed in between loses the grant, so that window cannot be zero: it is the provider's own time
and one flush. Everything else (waiting for the lease, reading again, the marker, connecting) is outside of it. It is
measured in the process that sends, from the commit of its marker to the return of `store`.

Sides: eight processes that want one due token at the same moment, from a provider that answers at once (`ours`) and
after 50 ms (`ours_50ms`), and `floor`: the marker through plain apsw, the exchange and the file written with its
flushes, one process and no lease. `window` is the window, `total` the time until the last of the eight has the token.
What would change a decision: a window that is longer than the provider's time by more than a few flushes, or one POST
more than there were rounds.
"""

from __future__ import annotations

import json
import os
import secrets as random
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import apsw

from benchmarks import runner
from benchmarks.sides import measure
from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import SecretFile, Secrets

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = Path(__file__).with_name("sides") / "token_worker.py"
PROCESSES = 8


class Provider:
    """Gives the next token for the last one, after a time; a token that comes twice is counted."""

    def __init__(self, delay: float) -> None:
        self.posts: list[str] = []
        provider = self

        class Line(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                provider.posts.append(json.loads(self.rfile.readline())["token"])
                time.sleep(delay)
                self.wfile.write(json.dumps({
                    "status": 200, "access_token": random.token_hex(32), "refresh_token": random.token_hex(32),
                    "expires_in": 3600,
                }).encode() + b"\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Line)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def crowd(delay: float, count: int, facts: dict[str, int]) -> dict[str, float]:
    """Eight processes, `count` logins one after the other."""
    windows, last = [], []
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder, open_store(folder) as store:
        provider = Provider(delay)
        workers = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), folder, str(provider.port)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            for _ in range(PROCESSES)
        ]
        for worker in workers:
            _line(worker)
        for number in range(count):
            account = f"account {number}"
            store.work.credentials.log_in(
                "bench", account, home_of(store.core), secrets=SecretFile(Path(folder) / "secrets" / f"{account}.json"),
                auth_type="oauth", new=Secrets(
                    access_token="due", refresh_token=random.token_hex(32), expires_at=time.time() + 60.0
                ),
            )
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write(f"{account}\n")
                worker.stdin.flush()
            said = [json.loads(_line(worker)) for worker in workers]
            facts["served"] += sum("token" in one for one in said)
            facts["wanted"] += len(said)
            facts["different_tokens"] += len({one.get("token") for one in said}) - 1
            windows += [one["window"] for one in said if one.get("window") is not None]
            last.append(max(one["seconds"] for one in said))
        for worker in workers:
            worker.communicate()
        facts["posts"] += len(provider.posts)
        facts["posts_of_a_token_twice"] += len(provider.posts) - len(set(provider.posts))
        facts["rotations"] += count
        provider.close()
    measured = {f"window_{name}": value for name, value in measure.quantiles(windows).items() if name != "total"}
    return {**measured, "window": measured["window_p50"], "total": sorted(last)[len(last) // 2]}


def floor(count: int) -> dict[str, float]:
    """The same writes in one process, with nobody to share them with."""
    windows, whole = [], []
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as folder:
        provider, file = Provider(0.0), SecretFile(Path(folder) / "secret.json")
        connection = apsw.Connection(str(Path(folder) / "plain.db"))
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.execute("CREATE TABLE marker (id INTEGER PRIMARY KEY, state TEXT)")
        for _ in range(count):
            began = time.perf_counter()
            with socket.create_connection(("127.0.0.1", provider.port)) as link:
                connection.execute("INSERT OR REPLACE INTO marker VALUES (1, 'rotating')")
                marked = time.perf_counter()
                link.sendall(json.dumps({"token": random.token_hex(32)}).encode() + b"\n")
                answer: dict[str, Any] = json.loads(link.makefile().readline())
            file.store(Secrets(access_token=answer["access_token"], refresh_token=answer["refresh_token"]))
            windows.append(time.perf_counter() - marked)
            connection.execute("INSERT OR REPLACE INTO marker VALUES (1, 'whole')")
            whole.append(time.perf_counter() - began)
        connection.close()
        provider.close()
    return {"window": measure.quantiles(windows)["p50"], "total": measure.quantiles(whole)["p50"]}


def _line(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    found = worker.stdout.readline()
    if not found:
        raise SystemExit(f"a process ended with {worker.wait()}")
    return found


def main() -> None:
    chosen = runner.options(__doc__ or "", rounds=3)
    count = max(3, 30 * chosen.scale // 100)
    facts = dict.fromkeys(
        ("rotations", "posts", "posts_of_a_token_twice", "wanted", "served", "different_tokens"), 0
    )
    sides = {
        "ours": lambda: crowd(0.0, count, facts), "ours_50ms": lambda: crowd(0.05, count, facts),
        "floor": lambda: floor(count),
    }
    series = runner.interleaved([runner.Side(name=name, run=run) for name, run in sides.items()], chosen.rounds)
    runner.report(
        "token_rotation", chosen, series,
        compared={"window ours/floor": runner.ratios(series, "ours", "floor", "window")},
        facts={"processes": PROCESSES, **facts}, targets={},
    )


if __name__ == "__main__":
    main()
