"""One of eight processes that want a token: `token_worker.py HOME PORT`, a line of an account in, one of JSON out.

Invariant: the exchange is one request over a socket of this machine to the provider of the benchmark.
Not for: kills, which the tests of the rotation make.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

from hermes_state.errors import StateError
from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import Grant, SecretFile, Verdict, verdict_of


def main() -> None:
    home, port = Path(sys.argv[1]), int(sys.argv[2])

    def exchange(grant: Grant) -> Verdict:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(json.dumps({"token": grant.reveal()}).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())
        return verdict_of(answer.pop("status"), answer, now=time.time())

    with open_store(home) as store:
        print("ready", flush=True)
        for line in sys.stdin:
            account, began = line.strip(), time.perf_counter()
            said: dict[str, object] = {}
            try:
                served = store.work.credentials.token(
                    "bench", account, home_of(store.core), secrets=SecretFile(home / "secrets" / f"{account}.json"),
                    exchange=exchange,
                )
                said = {"how": served.how, "token": served.access_token, "window": served.window_seconds}
            except StateError as error:
                said = {"error": error.code}
            print(json.dumps({**said, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
