"""Two processes at one instance, and kill -9 at any statement of a change of one.

A killed process is a fork of one that has loaded everything and opened nothing, so that a kill at each statement costs
milliseconds.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import EnrollmentExpired, InvalidAuthentication, StateError
from hermes_state.instances import Instance, Instances, State
from hermes_state.store import Store, open_store
from tests.support.children import Child, Children
from tests.support.gateways import at_work

SEED = int(os.environ.get("HERMES_STATE_SEED", "7000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "500"))

# Does one piece of work a round, at the same moment as the other process: both wait for a time of the monotonic clock,
# which all processes of a machine share.
RACER = """
import json, sys, time, gates
from hermes_state.errors import StateError
from hermes_state.store import open_store

path, rounds = sys.argv[1], int(sys.argv[2])
with open_store(path=path) as store:
    registry = store.instances
    works = {
        "redeem": lambda given: registry.redeem(given["token"], actor="racer").instance.instance_id,
        "enroll": lambda given: registry.enroll(given["id"], nickname=given["name"], actor="racer").instance.nickname,
    }
    gates.reach("ready")
    for number in range(rounds):
        given = json.loads(gates.wait(f"go {number}"))
        while time.monotonic() < given["at"]:
            pass
        try:
            told = ["done", works[given["work"]](given)]
        except StateError as error:
            told = ["refused", error.code]
        gates.reach(f"told {number}", json.dumps(told))
"""

# Forks for each number of a statement, does the work in the fork, and dies before that statement; says how each ended.
KILLED = """
import json, os, signal, sys
from hermes_state.engine.transaction import Transaction
from hermes_state.store import open_store

import hermes_state.instances
import hermes_state.engine.core

path, work, argument, numbers = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
WORKS = {
    "enroll": lambda registry: registry.enroll(argument, actor="test"),
    "redeem": lambda registry: registry.redeem(argument, actor="plugin"),
    "revoke": lambda registry: registry.revoke(argument, actor="test", reason="old"),
    "remove": lambda registry: registry.remove(argument, actor="test", reason="old"),
}

def die_at(number):
    seen = 0
    def counting(name):
        plain = getattr(Transaction, name)
        def call(self, *given):
            nonlocal seen
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(self, *given)
        setattr(Transaction, name, call)
    for name in ("execute", "executemany", "rows"):
        counting(name)

for number in numbers:
    pid = os.fork()
    if pid == 0:
        with open_store(path=path) as store:
            die_at(number)
            WORKS[work](store.instances)
        os._exit(0)
    _pid, status = os.waitpid(pid, 0)
    print(json.dumps([number, os.waitstatus_to_exitcode(status)]), flush=True)
    if os.waitstatus_to_exitcode(status) == 0:
        break
    import gates
    gates.reach(f"killed {number}")
    gates.wait(f"next {number}")
"""


def killed_at_each_statement(
    child: Children, path: Path, work: str, argument: str, judge: Callable[[Store], None],
    numbers: Sequence[int] = range(1, 60),
) -> int:
    """Kill the work before its first, second, ... statement until it is done; `judge` looks after each kill.

    `numbers`: of the statements, the last beyond its end. Gives how often it was killed.
    """
    killer = child(KILLED, path, work, argument, json.dumps(list(numbers)), env={"PYTHONWARNINGS": "ignore"})
    for kills, number in enumerate(numbers):
        if not killer.wait_for_or_end(f"killed {number}"):
            lines = [json.loads(line) for line in killer.finish().splitlines()]
            assert [status for _number, status in lines] == [-9] * kills + [0]
            return kills
        with open_store(path=path) as store:
            judge(store)
        killer.release(f"next {number}")
    raise AssertionError(f"{work} was not done within {numbers[-1]} statements")


@pytest.fixture(name="path")
def store_path(tmp_path: Path, fake_clock: FakeClock) -> Path:
    return tmp_path / "home" / "state.db"


def enroll(path: Path, name: str = "a") -> tuple[Instance, str]:
    """An enrolled instance and its credential."""
    with open_store(path=path) as store:
        minted = store.instances.enroll(name, nickname=name, actor="test")
        issued = store.instances.redeem(minted.token, actor="plugin")
    return issued.instance, issued.credential


def work_of(store: Store) -> dict[str, list[Any]]:
    """How all that the instances are at stands."""
    with store.core.reader() as reader:
        states = {
            "threads": "SELECT status FROM thread_states ORDER BY 1", "turns": "SELECT state FROM turns ORDER BY 1",
            "questions": "SELECT state FROM interactions ORDER BY 1", "stops": "SELECT state FROM stops",
            "operations": "SELECT state FROM gateway_operations",
        }
        found = {name: [state for (state,) in reader.rows(query)] for name, query in states.items()}
        return found | {"owed": reader.rows("SELECT kind, state FROM outbox ORDER BY 1")}


# --- kill -9 -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_old_credential_is_good_until_the_commit_of_the_next_enrollment_and_dead_from_it(
    path: Path, child: Children
) -> None:
    """T1.7: kill -9 before each statement of the enrollment."""
    _instance, old = enroll(path)
    kills = killed_at_each_statement(
        child, path, "enroll", "a", lambda store: store.instances.authenticate("a", old) and None
    )
    assert kills > 8
    with open_store(path=path) as store, pytest.raises(InvalidAuthentication):
        store.instances.authenticate("a", old)


@pytest.mark.slow
def test_a_token_survives_a_kill_at_any_statement_of_its_redeeming(path: Path, child: Children) -> None:
    """T1.3, T1.5: minted, killed, opened again, redeemed within its time; spent and credential are one."""
    with open_store(path=path) as store:
        token = store.instances.enroll("a", nickname="A", actor="test").token

    def judge(store: Store) -> None:
        assert store.instances.check_token(token).instance_id == "a"
        found = store.instances.get("a")
        assert (found.state, found.credential_issued_at) == (State.CONFIGURED, None)

    assert killed_at_each_statement(child, path, "redeem", token, judge) > 8
    with open_store(path=path) as store:
        assert store.instances.get("a").state is State.ENROLLED
        with pytest.raises(EnrollmentExpired):
            store.instances.redeem(token, actor="plugin")


def ended_or_not(path: Path, child: Children, revoking: Sequence[int], removing: Sequence[int]) -> tuple[int, int]:
    """Revoke and remove an instance that is at work, killed at these statements; gives how often each was."""
    with open_store(path=path) as store:
        at_work(store)
        before = work_of(store)

    def enrolled_whole(store: Store) -> None:
        found = store.instances.get("laptop")
        assert (found.state, found.credential_issued_at is None) == (State.ENROLLED, False)
        assert work_of(store) == before

    kills = killed_at_each_statement(child, path, "revoke", "laptop", enrolled_whole, revoking)
    with open_store(path=path) as store:
        revoked = work_of(store)
    assert revoked == {
        "threads": ["ready"] * 4 + ["stop_pending"], "turns": ["failed"] * 4 + ["stopped"],
        "questions": ["cancelled", "resolved"], "stops": ["pending"], "operations": ["indeterminate"],
        "owed": [("approval", "suppressed"), ("ensure", "suppressed"), ("stop", "pending")],
    }

    def revoked_whole(store: Store) -> None:
        assert store.instances.get("laptop").state is State.REVOKED
        assert store.instances.tombstones() == []
        assert [one.instance_id for one in store.instances.page()] == ["laptop"]
        assert work_of(store) == revoked

    more = killed_at_each_statement(child, path, "remove", "laptop", revoked_whole, removing)
    with open_store(path=path) as store:
        (tombstone,) = store.instances.tombstones()
        assert (tombstone.key, tombstone.references) == ("laptop", 5)
        assert store.instances.page() == []
        assert work_of(store) == revoked | {
            "threads": ["stopped"] * 5, "stops": ["cancelled"],
            "owed": [("approval", "suppressed"), ("ensure", "suppressed"), ("stop", "suppressed")],
        }
    return kills, more


@pytest.mark.slow
def test_a_kill_leaves_an_instance_fully_revoked_or_fully_removed(path: Path, child: Children) -> None:
    """T1.17: never without its tombstone, its id never free, and with all that ends with it or with none of it."""
    chance = random.Random(SEED)
    revoking, removing = ([*sorted(chance.sample(range(1, last), 5)), 9999] for last in (90, 75))
    assert ended_or_not(path, child, revoking, removing) == (5, 5)


@pytest.mark.campaign
def test_a_kill_at_every_statement_leaves_an_instance_fully_revoked_or_fully_removed(
    path: Path, child: Children
) -> None:
    """T1.17."""
    began = time.monotonic()
    kills = ended_or_not(path, child, range(1, 999), range(1, 999))
    print(f"\nkilled before each of {kills[0]} statements of a revoke and {kills[1]} of a remove,"
          f" {time.monotonic() - began:.0f} s")
    assert min(kills) > 60


@pytest.mark.slow
def test_a_token_survives_the_kill_of_who_minted_it(path: Path, child: Children) -> None:
    """T1.5: mint, kill -9 with the store open, reopen, redeem."""
    minter = child(
        """
        import sys, gates
        from hermes_state.store import open_store
        with open_store(path=sys.argv[1]) as store:
            gates.reach("minted", store.instances.enroll("a", nickname="A", actor="test").token)
            gates.wait("never")
        """,
        path,
    )
    token = minter.wait_for("minted")
    minter.kill()
    with open_store(path=path) as store:
        assert store.instances.redeem(token, actor="plugin").instance.state is State.ENROLLED


# --- two processes -----------------------------------------------------------------------------------------------


def race(racers: list[Child], number: int, works: list[dict[str, str]]) -> list[list[str]]:
    """Let both work at the same moment, the first of `works` by the first; gives what each says."""
    at = time.monotonic() + 0.01
    for racer, work in zip(racers, works, strict=True):
        racer.release(f"go {number}", json.dumps(work | {"at": at}))
    return [json.loads(racer.wait_for(f"told {number}")) for racer in racers]


def races(child: Children, path: Path, rounds: int) -> Counter[str]:
    """Each round: both redeem one token, then both enroll under one name. Gives who won how often."""
    chance = random.Random(SEED)
    with open_store(path=path) as store:
        racers = [child(RACER, path, rounds * 2) for _ in range(2)]
        for racer in racers:
            racer.wait_for("ready")
        wins: Counter[str] = Counter()
        for number in range(rounds):
            registry = store.instances
            token = registry.enroll(f"t{number}", nickname=f"Token {number}", actor="test").token
            told = race(racers, 2 * number, [{"work": "redeem", "token": token}] * 2)
            assert sorted(told) == [["done", f"t{number}"], ["refused", "enrollment_expired"]], number
            wins[f"redeem by {told.index(['done', f't{number}'])}"] += 1
            assert_enrolled(registry, f"t{number}")
            spelled = [f"Shared {number}", f"  SHARED {number}  ", f"\uff33hared {number}"]
            names = chance.sample(spelled, 2)
            told = race(racers, 2 * number + 1, [
                {"work": "enroll", "id": f"n{number} {who}", "name": name} for who, name in enumerate(names)
            ])
            assert sorted(one[0] for one in told) == ["done", "refused"], (number, told)
            assert ["refused", "nickname_conflict"] in told
            winner = [one[0] for one in told].index("done")
            wins[f"name by {winner}"] += 1
            holder = registry.by_nickname(spelled[0])
            assert holder is not None
            assert holder.instance_id == f"n{number} {winner}"
            with pytest.raises(StateError, match="There is no instance"):
                registry.get(f"n{number} {1 - winner}")
        for racer in racers:
            racer.finish()
    return wins


def assert_enrolled(registry: Instances, name: str) -> None:
    found = registry.get(name)
    assert (found.state, found.enrollment_expires_at) == (State.ENROLLED, None)
    assert found.credential_issued_at is not None


@pytest.mark.slow
def test_one_of_two_processes_redeems_a_token_and_one_gets_a_name(path: Path, child: Children) -> None:
    """T1.2, T1.10, T1.14, R5: five rounds; 500 as a campaign."""
    races(child, path, 5)


@pytest.mark.campaign
def test_many_races_of_two_processes(path: Path, child: Children) -> None:
    """T1.2, T1.10, T1.14, R5."""
    began = time.monotonic()
    wins = races(child, path, ROUNDS)
    print(f"\n{ROUNDS} rounds from seed {SEED}, {time.monotonic() - began:.0f} s: {dict(sorted(wins.items()))}")
    assert min(wins.values()) > ROUNDS // 20, "one process always won: it was no race"
