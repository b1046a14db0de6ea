"""A gateway server and another process at one instance, and two servers at one store, at the same moment."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.errors import InstanceRevoked, ServerReplaced, StateError
from hermes_state.gateway import Hello, VersionRange
from hermes_state.store import open_store
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "7000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "500"))
VERSIONS = VersionRange(2, 3)

REVOKER = """
import json, sys, time, gates
from hermes_state.store import open_store

with open_store(path=sys.argv[1]) as store:
    gates.reach("ready")
    for number in range(int(sys.argv[2])):
        at = json.loads(gates.wait(f"go {number}"))
        while time.monotonic() < at:
            pass
        store.instances.revoke("mac", actor="racer", reason="race")
        gates.reach(f"done {number}")
"""

SERVER = """
import json, sys, time, gates
from hermes_state.errors import StateError
from hermes_state.gateway import Hello, VersionRange
from hermes_state.store import open_store

V = VersionRange(2, 3)
with open_store(path=sys.argv[1]) as store:
    gates.reach("ready")
    for number in range(int(sys.argv[2])):
        at = json.loads(gates.wait(f"go {number}"))
        while time.monotonic() < at:
            pass
        with store.gateway.serve(versions=V) as server:
            try:
                told = str(server.accept(Hello(instance_id="mac", credential=sys.argv[3], boot_id="b", versions=V,
                    plugin_version="", hermes_version="")).generation)
            except StateError as error:
                told = error.code
            gates.reach(f"told {number}", json.dumps([server.epoch, told]))
            gates.wait(f"end {number}")
"""


def hello(credential: str) -> Hello:
    return Hello(
        instance_id="mac", credential=credential, boot_id="b", versions=VERSIONS, plugin_version="", hermes_version=""
    )


def revoked_while_let_in(path: Path, child: Children, rounds: int) -> Counter[str]:
    chance, outcomes = random.Random(SEED), Counter[str]()
    revoker = child(REVOKER, path, rounds)
    revoker.wait_for("ready")
    with open_store(path=path) as store, store.gateway.serve(versions=VERSIONS) as server:
        for number in range(rounds):
            minted = store.instances.enroll("mac", nickname="Mac", actor="test")
            credential = store.instances.redeem(minted.token, actor="plugin").credential
            server.poll()
            at = time.monotonic() + 0.01
            revoker.release(f"go {number}", json.dumps(at + chance.uniform(-0.003, 0.003)))
            while time.monotonic() < at:
                pass
            try:
                accepted = server.accept(hello(credential))
            except InstanceRevoked:
                accepted = None
            revoker.wait_for(f"done {number}")
            ended = server.poll().ended
            assert server.connected() == [], f"round {number}, seed {SEED}: a revoked instance stayed connected"
            assert [(one.connection, one.code) for one in ended] == (
                [] if accepted is None else [(accepted.connection, 4003)]
            )
            outcomes["refused" if accepted is None else "let in, out at the next look"] += 1
    revoker.finish()
    return outcomes


@pytest.mark.slow
def test_whoever_is_revoked_while_it_is_let_in_is_out_after_one_look(tmp_path: Path, child: Children) -> None:
    """Another process revokes at about the moment of the accept, five times."""
    revoked_while_let_in(tmp_path / "state.db", child, 5)


@pytest.mark.campaign
def test_many_revocations_at_the_moment_of_an_accept(tmp_path: Path, child: Children) -> None:
    told(revoked_while_let_in, tmp_path / "state.db", child)


def two_servers(path: Path, child: Children, rounds: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    with open_store(path=path) as store:
        minted = store.instances.enroll("mac", nickname="Mac", actor="test")
        credential = store.instances.redeem(minted.token, actor="plugin").credential
        other = child(SERVER, path, rounds, credential)
        other.wait_for("ready")
        for number in range(rounds):
            at = time.monotonic() + 0.01
            other.release(f"go {number}", json.dumps(at))
            while time.monotonic() < at:
                pass
            with store.gateway.serve(versions=VERSIONS) as server:
                try:
                    ours = str(server.accept(hello(credential)).generation)
                except StateError as error:
                    ours = error.code
                epoch, theirs = json.loads(other.wait_for(f"told {number}"))
                assert epoch != server.epoch
                last, said = max((epoch, theirs), (server.epoch, ours))
                assert said == f"{last}.1", f"round {number}: the server that was started last let nobody in"
                holder = store.gateway.holder()
                assert holder is not None and (holder.epoch, holder.standing) == (last, "running")
                if server.epoch != last:
                    server.poll()
                    assert server.replaced and server.connected() == []
                    with pytest.raises(ServerReplaced):
                        server.accept(hello(credential))
                first = theirs if server.epoch == last else ours
                outcomes[f"the {'other' if server.epoch != last else 'own'} was last"] += 1
                outcomes[f"the first was {'replaced before' if first == ServerReplaced.code else 'replaced after'}"
                         " its accept"] += 1
                other.release(f"end {number}")
        other.finish()
    return outcomes


def told(race: Callable[[Path, Children, int], Counter[str]], path: Path, child: Children) -> None:
    """Run a race as a campaign and say how it went; if one process always won, it was no race."""
    began = time.monotonic()
    outcomes = race(path, child, ROUNDS)
    print(f"\n{ROUNDS} rounds from seed {SEED}, {time.monotonic() - began:.0f} s: {dict(sorted(outcomes.items()))}")
    assert len(outcomes) > 1 and min(outcomes.values()) > ROUNDS // 50


@pytest.mark.slow
def test_of_two_servers_that_start_at_once_the_last_one_serves(tmp_path: Path, child: Children) -> None:
    """T1.21: five times; each epoch is given out once."""
    two_servers(tmp_path / "state.db", child, 5)


@pytest.mark.campaign
def test_many_starts_of_two_servers_at_once(tmp_path: Path, child: Children) -> None:
    """T1.21."""
    told(two_servers, tmp_path / "state.db", child)
