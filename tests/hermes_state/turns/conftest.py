"""A store with bound threads, and the frames that their gateway sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted, Claim, Verdict
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from hermes_state.turns import Frame, FrameKind
from hermes_state.turns.turns import Turns
from tests.support.bound_threads import bind

GATEWAY = "gateway-1"


@pytest.fixture(name="store")
def store_with_thread(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        bind(opened, "thread", GATEWAY, "session")
        yield opened


@pytest.fixture(name="turns")
def turns_of_store(store: Store) -> Turns:
    return store.turns


def frame(kind: FrameKind | str, turn_id: str | None = None, *, thread: str = "thread", **fields: Any) -> Frame:
    """A frame of the gateway about the thread, in its session."""
    session = fields.pop("session_id", "session")
    instance = fields.pop("instance_id", GATEWAY)
    return Frame(
        kind=FrameKind(kind), instance_id=instance, thread_id=thread, session_id=session, turn_id=turn_id, fields=fields
    )


def silent(_turn: object) -> None:
    """An announcement that arrives."""


class Plugin:
    """The other end: what it was told, in order, and a session for whatever it is asked for."""

    def __init__(self, turns: Turns, *, boot_id: str = "boot-1") -> None:
        self.turns = turns
        self.boot_id = boot_id
        self.active: dict[str, str] = {}  # thread -> turn that it works on
        self.rows: dict[str, int] = {}  # thread -> turns in its history
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.outcomes: dict[str, str] = {}  # stop id -> what it said first
        self.effects = 0

    def __call__(self, claim: Claim) -> Verdict:
        one = claim.primary
        self.heard.append((one.kind, one.payload))
        thread = one.payload["thread_id"]
        if one.kind == "stop":
            stop_id = one.payload["stop_id"]
            if stop_id not in self.outcomes:
                self.effects += 1
                self.outcomes[stop_id] = "stopped" if self.active.pop(thread, None) else "nothing ran"
            return Accepted(result={"outcome": self.outcomes[stop_id]})
        if one.kind == "ensure":
            return Accepted(
                result={
                    "session_id": one.payload["session_id"], "active_turn_id": self.active.get(thread),
                    "boot_id": self.boot_id, "history_rows": self.rows.get(thread, 0),
                }
            )
        return Accepted()

    def hear(self) -> list[str]:
        """Connect and take everything that is owed; gives the kinds of what was new."""
        before = len(self.heard)
        self.turns.send(GATEWAY, self)
        return [kind for kind, _payload in self.heard[before:]]

    def reconnect(self, *, boot_id: str | None = None) -> list[str]:
        """A new connection of the same process, or of another one, as a server takes it."""
        changed = boot_id is not None and boot_id != self.boot_id
        if changed:
            self.active.clear()
            self.rows.clear()
            self.boot_id = boot_id or self.boot_id
        self.turns.recover(self.turns.plan(GATEWAY, boot_id=self.boot_id, boot_id_changed=changed))
        return self.hear()


@pytest.fixture(name="plugin")
def plugin_of_gateway(turns: Turns) -> Plugin:
    return Plugin(turns)


@pytest.fixture(name="run")
def run_turn(turns: Turns, plugin: Plugin) -> Callable[..., str]:
    """`run("t1")` starts a turn that both sides know; gives its id."""

    def run(turn_id: str, *, thread: str = "thread") -> str:
        turns.start(thread, silent, turn_id=turn_id, boot_id=plugin.boot_id)
        plugin.active[thread] = turn_id
        return turn_id

    return run
