"""A process that wants tokens, round after round, and stops where it is told to: for tests of kills in a rotation.

    token_worker.py HOME PORT

Waits for `round-N` with JSON {"account": ..., "stop_at": place or null}; says at `done-N` what it got, or at `at-N`
that it has stopped, for ever. Places, in the order of a rotation: before (asked, nothing marked), marked, sent,
answered, written (beside the file, not renamed), kept (renamed, the row not written).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

import gates

from hermes_state.errors import StateError
from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import Grant, SecretFile, Secrets, Verdict, verdict_of

home, port = Path(sys.argv[1]), int(sys.argv[2])
number = 0
stop_at: str | None = None


def stop(place: str) -> None:
    """Stop for ever where the parent wants to kill us."""
    if stop_at == place:
        gates.reach(f"at-{number}")
        gates.wait("never", 600)


def exchange(grant: Grant) -> Verdict:
    stop("before")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        token = grant.reveal()
        stop("marked")
        connection.sendall(json.dumps({"refresh_token": token}).encode() + b"\n")
        stop("sent")
        answer = json.loads(connection.makefile().readline())
    stop("answered")
    return verdict_of(answer.pop("status"), answer, now=time.time())


plain_replace = os.replace


def replace(source: str, target: str) -> None:
    if str(source).endswith(".new"):
        stop("written")
    plain_replace(source, target)


os.replace = replace  # type: ignore[assignment]


class Stopping(SecretFile):
    """The secret file, with a stop after it and before the row."""

    def store(self, secrets: Secrets) -> None:
        super().store(secrets)
        stop("kept")


with open_store(home) as store:
    here, group = home_of(store.core), store.work.credentials
    gates.reach("ready")
    while (said := json.loads(gates.wait(f"round-{number}", 600))) is not None:
        stop_at, account = said["stop_at"], said["account"]
        file = Stopping(home / "secrets" / f"{account}.json")
        try:
            served = group.token("nous", account, here, secrets=file, exchange=exchange)
            found = {"how": served.how, "token": served.access_token, "window": served.window_seconds}
        except StateError as error:
            found = {"error": error.code, "message": str(error)}
        gates.reach(f"done-{number}", json.dumps(found))
        number += 1
