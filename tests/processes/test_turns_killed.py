"""kill -9 of a gateway server at any statement: one effect of a stop; and two processes at one thread.

What the gateway heard is a file that outlives the server: a line for each frame. Deliveries home are in
`test_home_deliveries`.
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

from hermes_state.clock import FakeClock
from hermes_state.store import open_store
from hermes_state.turns import FrameKind, InteractionState, StopState, ThreadStatus, TurnState
from hermes_state.turns.records import STOP_COLUMNS, stop_of
from tests.hermes_state.turns.conftest import GATEWAY, frame, silent
from tests.support.bound_threads import bind
from tests.support.children import Child, Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "7000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "500"))
# Processes that are told to die in one round, before two that are not.
KILLS = 2

# It dies before the statement or step that it is told, 0 for never.
DYING = """
import json, os, signal, sys
from hermes_state.engine.transaction import Transaction
from hermes_state.outbox import Accepted
from hermes_state.store import open_store

dies_at, count = int(sys.argv[1]), 0

def step():
    global count
    count += 1
    if count == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)

def counting(name):
    plain = getattr(Transaction, name)
    def call(self, *given, **named):
        step()
        return plain(self, *given, **named)
    setattr(Transaction, name, call)

for name in ("execute", "rows", "row"):
    counting(name)

def line(path, *said):
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(out, (json.dumps(said) + "\\n").encode())
    os.close(out)
"""

# A server: asks for a stop, unless it did, and sends what is owed. The plugin's memory of what it answered is a file.
SERVER = DYING + """
home, answers = sys.argv[2], sys.argv[3]

def plugin(claim):
    one = claim.primary
    step()
    line(answers, "heard", one.kind, one.payload["thread_id"], one.payload.get("stop_id"))
    step()
    if one.kind == "stop":
        return Accepted(result={"outcome": "stopped"})
    if one.kind == "ensure":
        payload = one.payload
        return Accepted(result={"session_id": payload["session_id"], "active_turn_id": None, "boot_id": "boot-1"})
    return Accepted()

with open_store(home) as store:
    turns = store.turns
    step()
    turns.stop("thread")
    line(answers, "asked")
    step()
    turns.recover(turns.plan("gateway-1", boot_id="boot-1"))
    step()
    turns.sweep()
    step()
    turns.send("gateway-1", plugin)
    step()
"""

# Two processes that start a turn of one thread at once.
STARTER = """
import sys
from gates import reach, wait
from hermes_state.errors import TurnActive
from hermes_state.store import open_store

with open_store(sys.argv[1]) as store:
    reach("ready")
    wait("go")
    try:
        print(store.turns.start("thread", lambda turn: None, turn_id=sys.argv[2]).turn_id)
    except TurnActive as error:
        print(error.code)
"""


def ended(child: Child) -> bool:
    """Wait for it; gives whether it was killed."""
    status = child.wait()
    assert status in (0, -signal.SIGKILL), child.output
    return status == -signal.SIGKILL


def lines(path: Path) -> list[list[object]]:
    return [json.loads(one) for one in path.read_text().splitlines()] if path.exists() else []


def a_stop(home: Path, child: Children, clock: FakeClock, seed: int) -> collections.Counter[str]:
    """A running turn with a question and an owed ensure is stopped by servers that die, then by one that lives."""
    home.mkdir()
    chance, answers = random.Random(seed), home / "answers"
    with open_store(home) as store:
        bind(store, "thread", GATEWAY, "session")
        turns = store.turns
        turns.start("thread", silent, turn_id="t1", boot_id="boot-1")
        asked = turns.receive(
            frame(FrameKind.APPROVAL, "t1", request_id="r1", request_type="x"), boot_id="boot-1"
        ).interaction
        assert asked is not None
        turns.ensure("thread")
    total: collections.Counter[str] = collections.Counter()
    for attempt in range(KILLS + 2):  # what lost its sender rests: the first that lives finds it, the next sends it
        clock.advance(600.0)
        dies_at = chance.randrange(1, 75) if attempt < KILLS else 0
        total["killed"] += ended(child(SERVER, dies_at, home, answers))
        with open_store(home) as store:  # whole at every moment: what was asked for is owed, or nothing is
            now, turn = store.turns.thread("thread"), store.turns.get("t1")
            with store.core.reader() as reader:
                stops = [stop_of(row) for row in reader.rows(f"SELECT {STOP_COLUMNS} FROM stops")]
                owed = reader.rows("SELECT 1 FROM outbox WHERE kind = 'stop' AND settled_at IS NULL")
            assert turn is not None
            assert len(stops) <= 1
            pending = bool(stops) and stops[0].state is StopState.PENDING
            assert (now.status is ThreadStatus.STOP_PENDING) == pending == bool(owed)
            assert (turn.state is TurnState.STOPPING) == pending
            assert not stops or store.turns.questions() == []
            assert stops or turn.state is TurnState.RUNNING
    heard = [said for said in lines(answers) if said[0] == "heard"]
    assert {str(said[1]) for said in heard} == {"stop"}, heard  # never the ensure that came before it
    assert len({said[3] for said in heard}) == 1
    total["repeated"] += len(heard) > 1
    with open_store(home) as store:
        now, turn, question = store.turns.thread("thread"), store.turns.get("t1"), store.turns.question(1)
        assert turn is not None
        assert (now.status, turn.state, turn.exit_class) == (ThreadStatus.STOPPED, TurnState.STOPPED, "graceful")
        assert question.state is InteractionState.CANCELLED
        assert not store.turns.admits(frame(FrameKind.CONTENT_DELTA, "t1", text="late"))
    return total


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_t1_41_a_few_kills_of_a_server_that_stops(
    tmp_path: Path, fake_clock: FakeClock, child: Children, seed: int
) -> None:
    """T1.41: at every step, one stop id, sent until acknowledged, before anything else of its thread."""
    a_stop(tmp_path / "home", child, fake_clock, seed)


@pytest.mark.campaign
def test_t1_41_many_kills_of_a_server_that_stops(tmp_path: Path, fake_clock: FakeClock, child: Children) -> None:
    """T1.41."""
    began, total = time.monotonic(), collections.Counter[str]()
    for seed in range(SEED, SEED + ROUNDS):
        total += a_stop(tmp_path / f"home {seed}", child, fake_clock, seed)
    print(f"\n{ROUNDS} rounds from seed {SEED}, {time.monotonic() - began:.0f} s: {dict(total)}")
    assert total["killed"] > ROUNDS


@pytest.mark.campaign
def test_t1_41_a_kill_before_each_statement_of_a_stop(tmp_path: Path, fake_clock: FakeClock, child: Children) -> None:
    """T1.41: not at random places but before each, one after the other."""
    dies_at, killed = 0, True
    while killed:
        dies_at += 1
        home = tmp_path / f"home {dies_at}"
        home.mkdir()
        with open_store(home) as store:
            bind(store, "thread", GATEWAY, "session")
            store.turns.start("thread", silent, turn_id="t1", boot_id="boot-1")
        killed = ended(child(SERVER, dies_at, home, home / "answers"))
        assert not ended(child(SERVER, 0, home, home / "answers"))
        with open_store(home) as store:
            assert store.turns.thread("thread").status is ThreadStatus.STOPPED
            with store.core.reader() as reader:
                assert reader.rows("SELECT state, count(*) FROM stops") == [("acked", 1)]
    print(f"\nkilled before each of {dies_at - 1} statements and steps")
    assert dies_at > 40


def a_race(home: Path, child: Children) -> str:
    home.mkdir()
    with open_store(home) as store:
        bind(store, "thread", GATEWAY, "session")
        both = [child(STARTER, home, name) for name in ("a", "b")]
        for one in both:
            one.wait_for("ready")
        for one in both:
            one.release("go")
        said = sorted(one.finish().strip() for one in both)
        active = store.turns.active("thread")
        assert active is not None
        assert said == sorted([active.turn_id, "turn_active"])
        return active.turn_id


@pytest.mark.slow
def test_t1_40_of_two_processes_that_start_one_wins(tmp_path: Path, child: Children) -> None:
    """T1.40: five races."""
    for number in range(5):
        a_race(tmp_path / f"home {number}", child)


@pytest.mark.campaign
def test_t1_40_of_two_processes_that_start_one_wins_every_time(tmp_path: Path, child: Children) -> None:
    """T1.40."""
    began = time.monotonic()
    won = collections.Counter(a_race(tmp_path / f"home {number}", child) for number in range(ROUNDS))
    print(f"\n{ROUNDS} races, {time.monotonic() - began:.0f} s, won by {dict(sorted(won.items()))}")
    assert len(won) == 2, "one process always won: it was no race"
