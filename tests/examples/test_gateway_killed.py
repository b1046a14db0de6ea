"""kill -9 of the example's server and of its plugin at any statement or frame: everything ends, each effect once.

A round gives both programs commands by a seed. Each of them dies several times on its way; in the end both are killed
and started again, and have to settle what is left, whatever that is.
"""

from __future__ import annotations

import collections
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import State
from hermes_state.store import Store, open_store
from hermes_state.turns import InteractionState, StopState, ThreadStatus, TurnState
from hermes_state.turns.records import STOP_COLUMNS, active_turn, need_thread, stop_of
from hermes_state.turns.states import ACTIVE_TURN
from tests.examples.programs import CommandRefused, Died, Program, Stage

SEED = int(os.environ.get("HERMES_STATE_SEED", "9000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "100"))
COMMANDS, KILLS = 14, 4
TURNS = ("hello out there", "ask make test", "ask make check", "choose a colour", "wait")
WHAT = (*["start"] * 4, *["answer"] * 3, *["steer"] * 2, "stop", "ensure", "drop", "away")
# How often nothing may move by itself before a round is said never to end.
MOST_LOOKS = 60


class Round:
    """Two programs, some of which are told when to die."""

    def __init__(self, stage: Stage, clock: FakeClock, seed: int) -> None:
        self.stage, self.clock, self.chance = stage, clock, random.Random(seed)
        self.kills = KILLS
        self.gateway: Program | None = None
        self.plugin: Program | None = None
        self.started: list[Program] = []
        self.seen: collections.Counter[str] = collections.Counter()
        with open_store(stage.home) as store:
            token = store.instances.enroll("laptop", nickname="My laptop", actor="test").token
            issued = store.instances.redeem(token, actor="test")
            store.instances.bind("t1", "laptop", "session-t1")
            store.turns.open_thread("t1")
        stage.plugin_home.mkdir()
        (stage.plugin_home / "credential.json").write_text(
            json.dumps({"instance_id": "laptop", "credential": issued.credential})
        )

    def _dies_at(self, most: int) -> int:
        if self.kills == 0 or self.chance.random() < 0.3:
            return 0
        self.kills -= 1
        return self.chance.randrange(1, most)

    def both(self) -> tuple[Program, Program]:
        """Both of them, connected to each other. Raises `Died`."""
        while self.gateway is None or not self.gateway.alive:
            if self.gateway is not None:
                self.seen["server killed"] += 1
            self.gateway = self.stage.gateway(dies_at=self._dies_at(240))
            self.started.append(self.gateway)
        if self.plugin is None or not self.plugin.alive:
            if self.plugin is not None:
                self.seen["plugin killed"] += 1
            self.plugin = self.stage.plugin(dies_at=self._dies_at(100))
            self.started.append(self.plugin)
        while "laptop" not in self.gateway.do("show")["connected"]:
            self.plugin.do("online")
            # It says one of the two after each of these, and what it said before only makes this look once more.
            self.plugin.until_any("connected", "disconnected")
        return self.gateway, self.plugin

    def command(self) -> None:
        """One thing that somebody does. Raises `Died`, `CommandRefused`."""
        gateway, plugin = self.both()
        what = self.chance.choice(WHAT)
        if what == "answer":
            for number in gateway.do("show")["questions"]:
                gateway.do("answer", number, self.chance.choice(["accept", "decline"]))
        elif what == "away":
            plugin.do("offline")
            if self.chance.random() < 0.5:
                plugin.do("tell", "t1", "the end")
            if self.chance.random() < 0.5:
                gateway.do("stop", "t1")
        elif what == "drop":
            gateway.do("drop", "laptop")
        else:
            words = {"start": self.chance.choice(TURNS), "steer": "go on"}.get(what, "")
            if what == "start":
                self._leave(gateway, "stop_pending")
                if self._status(gateway) == "stopped":
                    gateway.do("ensure", "t1")
                    self._leave(gateway, "stopped")
            gateway.do(what, "t1", *([words] if words else []))
        self.seen[what] += 1

    def settle(self, store: Store) -> None:
        """Start both again, answer what is asked, and wait until nothing is owed and nothing is open."""
        self.kills = 0
        for program in (self.gateway, self.plugin):
            if program is not None:
                program.kill()
        for _ in range(MOST_LOOKS):
            gateway, _plugin = self.both()
            gateway.do("look")
            shown = gateway.do("show")
            for number in shown["questions"]:
                self._try(gateway, "answer", number, "accept")
            if self._status(gateway) == "running" and not shown["questions"]:
                self._try(gateway, "steer", "t1", "go on")
            if self._settled(store):
                return
            if gateway.silent(0.2):
                self.clock.advance(7.0)  # what was lost rests, the longer the more often
        raise AssertionError(f"it does not end:\n{self.everything()}")

    def _leave(self, gateway: Program, status: str) -> None:
        """Let the thread come out of a status, as long as anything moves: a start that is refused shows little."""
        while self._status(gateway) == status and not gateway.silent(0.2):
            continue

    @staticmethod
    def _status(gateway: Program) -> str:
        return str(gateway.do("show")["threads"]["t1"]["status"])

    @staticmethod
    def _try(gateway: Program, *words: object) -> None:
        try:
            gateway.do(*map(str, words))
        except CommandRefused:
            return  # it ended in the same moment; the next look says how

    def _settled(self, store: Store) -> bool:
        owed = [one for one in store.outbox.page() if one.state in (State.PENDING, State.CLAIMED)]
        return not owed and store.turns.active("t1") is None and not store.turns.questions()

    def everything(self) -> str:
        return "\n\n".join(program.everything() for program in self.started)


def assert_whole(store: Store) -> None:
    """What holds at every moment, whoever died: in one snapshot, for those who live go on."""
    with store.core.reader() as reader, reader.snapshot():
        now, active = need_thread(reader, "t1"), active_turn(reader, "t1")
        stops = [stop_of(row) for row in reader.rows(f"SELECT {STOP_COLUMNS} FROM stops WHERE state = 'pending'")]
        owed = reader.rows("SELECT 1 FROM outbox WHERE kind = 'stop' AND settled_at IS NULL")
    assert len(stops) == len(owed) <= 1
    assert (now.status is ThreadStatus.STOP_PENDING) == bool(stops)
    assert (now.status is ThreadStatus.RUNNING) == (now.active_turn_id is not None)
    assert active is None or (active.state is TurnState.STOPPING) == bool(stops)
    assert now.status is not ThreadStatus.ERROR


def assert_ended(one: Round, store: Store) -> None:
    """What holds in the end: nothing is open, and no effect was there twice."""
    assert_whole(store)
    turns = store.turns.history("t1")
    assert not [turn for turn in turns if turn.state in ACTIVE_TURN]
    questions = store.turns.questions(only_open=False)
    assert all(asked.state in (InteractionState.RESOLVED, InteractionState.CANCELLED) for asked in questions)
    with store.core.reader() as reader:
        stops = [stop_of(row) for row in reader.rows(f"SELECT {STOP_COLUMNS} FROM stops")]
    assert all(stop.state is StopState.ACKED for stop in stops)
    did = [said for program in one.started for said in program.said if said["event"] == "once"]
    effects = collections.Counter((said["kind"], said["operation"]) for said in did)
    assert set(effects.values()) <= {1}, effects
    never = {turn.turn_id for turn in turns if turn.state is TurnState.WITHDRAWN}
    assert not never & {operation for kind, operation in effects if kind == "turn.start"}  # rolled back: nobody ran it
    with open_store(one.stage.plugin_home) as plugin, plugin.core.reader() as reader:
        known = {str(name) for (name,) in reader.rows("SELECT id FROM gateway_operations WHERE kind = 'session.stop'")}
    assert known >= {stop.stop_id for stop in stops if stop.outcome in ("stopped", "nothing ran")}
    one.seen.update(f"turn {turn.state}" for turn in turns)
    one.seen.update(f"question {asked.state}" for asked in questions)
    one.seen.update(f"stop {stop.outcome}" for stop in stops)


def one_round(folder: Path, clock: FakeClock, seed: int) -> collections.Counter[str]:
    """Commands and deaths, then the end; gives what happened."""
    stage = Stage(folder)
    try:
        one = Round(stage, clock, seed)
        with open_store(stage.home) as store:
            for _ in range(COMMANDS):
                try:
                    one.command()
                except Died:
                    one.seen["died in a command"] += 1
                except CommandRefused as refused:
                    one.seen[f"refused: {refused}"] += 1
                assert_whole(store)
            one.settle(store)
            assert_ended(one, store)
        assert stage.errors() == ""
        return one.seen
    finally:
        stage.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [SEED])
def test_kills_of_either_side_of_the_example(
    tmp_path: Path, fake_clock: FakeClock, live_store_audit_hook: Callable[..., object], seed: int
) -> None:
    """Must show 4: approvals answerable or cancelled, nothing open for ever, each effect once; one round."""
    one_round(tmp_path / "round", fake_clock, seed)


@pytest.mark.campaign
def test_many_kills_of_either_side_of_the_example(
    tmp_path: Path, fake_clock: FakeClock, live_store_audit_hook: Callable[..., object]
) -> None:
    """Must show 4."""
    began, total = time.monotonic(), collections.Counter[str]()
    for seed in range(SEED, SEED + ROUNDS):
        try:
            total += one_round(tmp_path / f"round {seed}", fake_clock, seed)
        except BaseException as error:
            error.add_note(f"in the round of seed {seed}")
            raise
    print(f"\n{ROUNDS} rounds from seed {SEED}, {time.monotonic() - began:.0f} s: {dict(sorted(total.items()))}")
    assert total["server killed"] + total["plugin killed"] > ROUNDS
