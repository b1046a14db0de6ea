"""Must show 2, T8.1 and T8.3: eight processes want the next token of one login, from a server that burns on reuse.

No kill: one POST, eight served. Killed before the marker: served after the takeover. Killed between marker and the
secret file's rename: the grant may be lost, told by name, and the token is never sent again. Killed after the rename:
adopted. 5 rounds in the default suite, HERMES_STATE_ROUNDS (default 120) from HERMES_STATE_SEED in the campaign.
"""

from __future__ import annotations

import collections
import json
import os
import random
import time
from pathlib import Path

import pytest

from hermes_state.routing import home_of
from hermes_state.store import open_store
from hermes_state.work.credentials import SecretFile, Secrets
from tests.support.children import SUPPORT, Child, Children
from tests.support.token_server import TokenServer

SEED = int(os.environ.get("HERMES_STATE_SEED", "8100"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "120"))
PROCESSES = 8
PLACES = ("nobody", "before", "marked", "sent", "answered", "written", "kept", "ended")
# Where a kill loses the grant, with the POSTs that there were.
LOST = {"marked": 0, "sent": 1, "answered": 1, "written": 1}


class Fleet:
    """Eight processes at one home; whoever is killed is replaced for the next round."""

    def __init__(self, child: Children, home: Path, server: TokenServer, count: int) -> None:
        self._child, self._home, self._server = child, home, server
        self.workers: list[tuple[Child, int]] = []  # with the number of its next round
        for _ in range(count):
            self.workers.append((self._start(), 0))
        for worker, _ in self.workers:
            worker.wait_for("ready")

    def _start(self) -> Child:
        return self._child(SUPPORT / "token_worker.py", self._home, self._server.port)

    def begin(self, at: int, account: str, stop_at: str | None) -> tuple[Child, int]:
        worker, number = self.workers[at]
        if worker.process.poll() is not None:  # killed in the round before
            worker, number = self.workers[at] = (self._start(), 0)
        worker.release(f"round-{number}", json.dumps({"account": account, "stop_at": stop_at}))
        return worker, number

    def end(self, at: int) -> dict[str, str]:
        worker, number = self.workers[at]
        found: dict[str, str] = json.loads(worker.wait_for(f"done-{number}"))
        self.workers[at] = (worker, number + 1)
        return found

    def kill(self, at: int) -> None:
        self.workers[at][0].kill()


def one_round(fleet: Fleet, home: Path, server: TokenServer, account: str, place: str, waiting: bool) -> list[float]:
    """One login, one due token, eight that want it; gives the windows that were measured."""
    first = server.log_in(account)
    file = SecretFile(home / "secrets" / f"{account}.json")
    with open_store(home) as store:
        group = store.work.credentials
        group.log_in("nous", account, home_of(store.core), secrets=file, auth_type="oauth", new=Secrets(
            access_token=f"old-{account}", refresh_token=first, expires_at=time.time() + 60.0,
        ))
        others, kills = range(len(fleet.workers)), place not in ("nobody", "ended")
        if place == "ended":  # nobody is killed, and the provider says that the grant is over
            server.answers.append({"status": 400, "error": "invalid_grant"})
        if kills:
            victim, number = fleet.begin(0, account, place)
            victim.wait_for(f"at-{number}")
            if place == "sent":
                server.wait_for_post_of(account)
            others = range(1, len(fleet.workers))
            if not waiting:
                fleet.kill(0)
        for at in others:
            fleet.begin(at, account, None)
        if kills and waiting:  # the others wait for its lease by now, or come to it in a moment
            fleet.kill(0)
        found = [fleet.end(at) for at in others]
        row = group.get("nous", account)
    posts = server.posts_of(account)
    assert len(posts) == len(set(posts)), "one token was sent twice"
    assert account not in server.burned
    if place in LOST:
        assert {one.get("error") for one in found} == {"grant_may_be_lost"}, found
        assert str(row.rotation) == "grant_may_be_lost"
        assert len(posts) == LOST[place]
        return []
    assert len(posts) == 1, (place, posts)
    if place == "ended":  # T8.4: one POST ever
        assert [one.get("error") for one in found] == ["credential_dead"] * PROCESSES
        assert str(row.status) == "dead"
        return []
    assert all("error" not in one for one in found), found
    (token,) = {one["token"] for one in found}
    assert token.startswith(f"access-{account}-")
    ways = collections.Counter(one["how"] for one in found)
    assert ways["rotated"] == (0 if place == "kept" else 1), ways
    assert ways["adopted"] == (1 if place == "kept" else 0), ways
    assert str(row.rotation) == "whole"
    return [float(one["window"]) for one in found if one["window"] is not None]


def no_secret_in(home: Path, server: TokenServer) -> None:
    """For when nothing has the store open: no token is in any byte of it."""
    bytes_of_store = b"".join(path.read_bytes() for path in home.glob("state.db*"))
    assert bytes_of_store
    for word in (b"refresh-account", b"access-account", b"old-account", b"id-"):
        assert word not in bytes_of_store, word


def rounds(child: Children, home: Path, places: list[str], chance: random.Random) -> list[float]:
    windows: list[float] = []
    with TokenServer() as server:
        fleet = Fleet(child, home, server, PROCESSES)
        for number, place in enumerate(places):
            windows += one_round(fleet, home, server, f"account{number}", place, chance.random() < 0.5)
        for worker, number in fleet.workers:
            worker.release(f"round-{number}", "null")
        for worker, _ in fleet.workers:
            worker.wait()
        no_secret_in(home, server)
    return windows


@pytest.mark.slow
def test_t8_1_and_t8_3_eight_processes_and_a_kill_at_each_kind_of_place(child: Children, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    places = ["nobody", "before", "sent", chance.choice(["answered", "written", "ended"]), "kept"]
    rounds(child, tmp_path / "home", places, chance)


@pytest.mark.campaign
def test_t8_1_and_t8_3_eight_processes_and_kills_in_many_rounds(child: Children, tmp_path: Path) -> None:
    chance, began = random.Random(SEED), time.monotonic()
    places = [*PLACES, *(chance.choice(PLACES) for _ in range(ROUNDS - len(PLACES)))]
    windows = sorted(rounds(child, tmp_path / "home", places, chance))
    print(
        f"\n{ROUNDS} rounds from seed {SEED}, {time.monotonic() - began:.0f} s:"
        f" {dict(sorted(collections.Counter(places).items()))}; window p50 {windows[len(windows) // 2] * 1000:.2f} ms,"
        f" most {windows[-1] * 1000:.2f} ms of {len(windows)}"
    )
