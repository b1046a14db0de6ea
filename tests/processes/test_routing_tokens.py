"""Two real processes want one bot token at the same moment: one gets it, the other is told who has it.

Half of the rounds begin with a lock that a killed process left, which is what hermes-agent 0.19 gives to both
(T2.13, T4.7, R89): each judges the same stale record, and both create theirs. 5 rounds of each kind in the default
suite, HERMES_STATE_ROUNDS in the campaign.
"""

from __future__ import annotations

import collections
import json
import os
from pathlib import Path

import pytest

from hermes_state.leases import TokenLocks
from hermes_state.store import open_store
from tests.support.children import Children

ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "500"))

# Acquires every other lock and is killed: what it leaves is stale.
LEAVER = """
    import sys, gates
    from hermes_state.leases import TokenLocks
    from hermes_state.store import open_store

    with open_store(sys.argv[1]) as store:
        locks = TokenLocks(store.core)
        for number in range(0, int(sys.argv[2]), 2):
            locks.acquire("telegram", f"token {number}", profile="gone", term_seconds=86_400)
        gates.reach("left")
        gates.wait("never", 600)
"""

# Meets the other one at a file for each round, then both try at once; nobody releases what it got.
CONTENDER = """
    import json, os, sys, time
    from pathlib import Path
    from hermes_state.errors import LeaseHeld
    from hermes_state.leases import TokenLocks
    from hermes_state.store import open_store

    home, meeting, rounds, me, other = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    results = []
    with open_store(home) as store:
        locks = TokenLocks(store.core)
        for number in range(rounds):
            (meeting / f"{number}.{me}").touch()
            there = meeting / f"{number}.{other}"
            until = time.monotonic() + 60
            while not there.exists():
                if time.monotonic() > until:
                    sys.exit(f"the other one did not come to round {number}")
            try:
                lock = locks.acquire("telegram", f"token {number}", profile=me)
                results.append(["won", lock.fence])
            except LeaseHeld as error:
                results.append(["held", error.note.get("profile"), error.owner.pid])
        print(json.dumps([os.getpid(), results]))
"""


def race(child: Children, tmp_path: Path, rounds: int) -> None:
    home, meeting = tmp_path / "home", tmp_path / "meeting"
    meeting.mkdir()
    leaver = child(LEAVER, home, rounds)
    leaver.wait_for("left", 300)
    leaver.kill()
    a, b = (child(CONTENDER, home, meeting, rounds, *names) for names in (("a", "b"), ("b", "a")))
    (pid_a, said_a), (pid_b, said_b) = (json.loads(one.finish(1200)) for one in (a, b))
    winners: collections.Counter[str] = collections.Counter()
    for number, (of_a, of_b) in enumerate(zip(said_a, said_b, strict=True)):
        fence = 2 if number % 2 == 0 else 1  # the stale lock's own was 1
        outcomes = {"a": of_a, "b": of_b}
        won = [name for name, said in outcomes.items() if said[0] == "won"]
        assert len(won) == 1, (number, outcomes)
        (winner,) = won
        loser = "b" if winner == "a" else "a"
        assert outcomes[winner] == ["won", fence]
        # What a loser is told is who has it: never nobody, and never the one that was killed.
        assert outcomes[loser] == ["held", winner, pid_a if winner == "a" else pid_b], number
        winners[winner] += 1
    with open_store(home) as store:
        assert sorted(one.fence for one in TokenLocks(store.core).all()) == sorted([1, 2] * (rounds // 2))
    print(f"{rounds} races: {dict(winners)}")


@pytest.mark.slow
def test_t4_7_of_two_processes_one_gets_the_token_and_the_other_is_told_who(child: Children, tmp_path: Path) -> None:
    race(child, tmp_path, 10)


@pytest.mark.campaign
def test_t4_7_it_is_so_in_hundreds_of_races(child: Children, tmp_path: Path) -> None:
    race(child, tmp_path, ROUNDS + ROUNDS % 2)
