"""kill -9 at every step of a rotation: each statement, each step of the secret file, each side of the POST.

Whatever the place: no token is sent twice, and whoever comes next has the new token, or is told that the grant may be
lost; that only where the marker was committed and the secret file was not renamed. Every place in the campaign, 3 of
them in the default suite (HERMES_STATE_SEED).
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from hermes_state.errors import GrantMayBeLost
from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import Grant, SecretFile, Secrets, Verdict, verdict_of
from tests.support.children import Children
from tests.support.token_server import TokenServer, post

SEED = int(os.environ.get("HERMES_STATE_SEED", "8300"))

# Counts statements, commits, steps of the file and sides of the POST, and dies before the one that it is told; the last
# line of its output is what it had done by then.
ROTATOR = """
import os, signal, socket, sys, time, json
from pathlib import Path
from hermes_state.engine.transaction import Transaction
from hermes_state.engine.core import Core
from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import Grant, SecretFile, verdict_of

home, port, dies_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
count, said = 0, []

def step(name):
    global count
    count += 1
    if count == dies_at:
        os.write(1, json.dumps([name, said]).encode())
        os.kill(os.getpid(), signal.SIGKILL)

def counting(owner, name, label):
    plain = getattr(owner, name)
    def call(*given, **named):
        step(label)
        found = plain(*given, **named)
        step("after " + label)
        return found
    setattr(owner, name, call)

def exchange(grant):
    step("connect")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        token = grant.reveal()
        said.append("marked")
        step("send")
        connection.sendall(json.dumps({"refresh_token": token}).encode() + b"\\n")
        step("sent")
        answer = json.loads(connection.makefile().readline())
    step("answered")
    return verdict_of(answer.pop("status"), answer, now=time.time())

with open_store(home) as store:
    for name in ("execute", "rows", "row"):
        counting(Transaction, name, name)
    plain_write = Core.write
    def write(self, work, **how):
        found = plain_write(self, work, **how)
        if said and said[-1] == "stored":
            said.append("kept")
        step("committed")
        return found
    Core.write = write
    counting(os, "fsync", "fsync")
    plain_replace = os.replace
    def replace(*given):
        step("rename")
        plain_replace(*given)
        said.append("stored")
        step("renamed")
    os.replace = replace
    file = SecretFile(home / "secrets" / "main.json")
    store.work.credentials.token("nous", "main", home_of(store.core), secrets=file, exchange=exchange)
os.write(1, json.dumps(["ended", said, count]).encode())
"""


def rotate(child: Children, home: Path, server: TokenServer, dies_at: int) -> str:
    """One login, one rotation that dies at a place, one that comes next; gives what that was given."""
    first = server.log_in("account")
    sent_before = len(server.posts)
    file = SecretFile(home / "secrets" / "main.json")
    with open_store(home) as store:
        store.work.credentials.log_in(
            "nous", "main", home_of(store.core), secrets=file, auth_type="oauth",
            new=Secrets(access_token="old", refresh_token=first, expires_at=time.time() + 60.0),
        )
    dying = child(ROTATOR, home, server.port, dies_at)
    status = dying.wait()
    assert status in (0, -signal.SIGKILL), dying.output
    done = json.loads(dying.stdout)

    def exchange(grant: Grant) -> Verdict:
        answer = post(server.port, grant.reveal())
        return verdict_of(answer.pop("status"), answer, now=time.time())

    with open_store(home) as store:
        group = store.work.credentials
        was = str(group.get("nous", "main").rotation)
        try:
            served = group.token("nous", "main", home_of(store.core), secrets=file, exchange=exchange)
            outcome = served.how
            assert served.access_token.startswith("access-account-")
        except GrantMayBeLost:
            outcome = "may be lost"
        row = group.get("nous", "main")
    posts = server.posts[sent_before:]
    assert len(posts) == len(set(posts)) <= 1, (done, posts)
    assert server.burned == set()
    # Lost exactly where the marker was committed and the new token was not in its place.
    in_window = was == "rotating" and "stored" not in done[1]
    assert (outcome == "may be lost") == in_window, (done, was, outcome)
    assert str(row.rotation) == ("grant_may_be_lost" if in_window else "whole")
    if not in_window:
        assert outcome == ("adopted" if was == "rotating" else "current" if "stored" in done[1] else "rotated"), done
    return f"{outcome} ({'ended' if status == 0 else 'killed'})"


def places(child: Children, home: Path, server: TokenServer) -> int:
    """How many places there are."""
    first = server.log_in("account")
    with open_store(home) as store:
        store.work.credentials.log_in(
            "nous", "main", home_of(store.core), secrets=SecretFile(home / "secrets" / "main.json"), auth_type="oauth",
            new=Secrets(access_token="old", refresh_token=first, expires_at=time.time() + 60.0),
        )
    counted = child(ROTATOR, home, server.port, 0)
    said = json.loads(counted.finish())
    assert said[:2] == ["ended", ["marked", "stored", "kept"]]
    return int(said[2])


@pytest.mark.slow
def test_t8_3_a_few_kills_anywhere_in_a_rotation(child: Children, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with TokenServer() as server:
        for place in chance.sample(range(1, 60), 3):
            rotate(child, tmp_path / "home", server, place)


@pytest.mark.campaign
def test_t8_3_a_kill_at_every_step_of_a_rotation(child: Children, tmp_path: Path) -> None:
    began = time.monotonic()
    outcomes: collections.Counter[str] = collections.Counter()
    with TokenServer() as server:
        count = places(child, tmp_path / "home", server)
        for place in range(1, count + 1):
            outcomes[rotate(child, tmp_path / "home", server, place)] += 1
    print(f"\n{count} places, {time.monotonic() - began:.0f} s: {dict(sorted(outcomes.items()))}")
    assert {"may be lost (killed)", "rotated (killed)", "adopted (killed)", "current (killed)"} <= set(outcomes)
