"""Routing entries, played by several processes that read, wait and act late.

What must hold whatever happens: an act counts only when nobody changed the entry since it was read, and then exactly as
the table says; versions rise by one, generations never fall, also over forgetting and replaced content; what is
suspended or expired goes on only by a reset; and the feed has one entry for each change.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hermes_state.clock import FakeClock
from hermes_state.errors import RouteMoved, RouteNotFound, RouteStopped
from hermes_state.routing import (
    Act,
    Inbound,
    Route,
    RoutingIdentity,
    Source,
    State,
    Transport,
    raise_generations,
    resolve,
)
from hermes_state.routing.states import TABLE, Outcome
from hermes_state.store import open_store

SOURCE = Source(platform="telegram", chat_type="dm", chat_id="1")
MARKS = (Act.RESUME_LATER, Act.SUSPEND, Act.EXPIRE)


class RoutesMachine(RuleBasedStateMachine):
    """One chat. `held` are rows as somebody read them, some of them old by now; `row` is how it stands."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        home = Path(self.folder.name)
        self.store = open_store(home, clock=FakeClock(home / "clock.json", now=1.8e9))
        self.home = self.store.routing.home
        self.bot = Transport(platform="telegram", profile="default", home=self.home)
        identity = resolve(
            SOURCE, receiver=self.bot, live=[self.bot], served={"default": self.home}, multiplexed=False
        )
        assert isinstance(identity, RoutingIdentity)
        self.event = Inbound(source=SOURCE, identity=identity)
        self.row: Route | None = None
        self.held: list[Route] = []
        self.highest = self.changes = 0

    def session(self) -> str:
        return self.store.sessions.create(source="telegram").id

    def became(self, row: Route | None) -> None:
        if row != self.row:
            self.changes += 1
        self.row = row
        if row is not None:
            self.held.append(row)
            assert row.generation >= self.highest
            self.highest = row.generation

    @precondition(lambda self: self.row is None)
    @rule()
    def bind(self) -> None:
        before = self.highest
        self.became(self.store.routing.bind(self.event, self.session()))
        assert self.row is not None
        assert (self.row.version, self.row.state, self.row.generation) == (1, State.ACTIVE, before + 1)

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data(), act=st.sampled_from([*MARKS, Act.RECEIVE, Act.GO_ON, Act.RESET, Act.CHOOSE_MODEL]))
    def act(self, data: st.DataObject, act: Act) -> None:
        read, now, routing = data.draw(st.sampled_from(self.held)), self.row, self.store.routing
        model = data.draw(st.sampled_from(["a", "b"]))
        if act is Act.RECEIVE:
            call = lambda: routing.receive(read, self.event)  # noqa: E731
        elif act is Act.GO_ON:
            call = lambda: routing.go_on(read, self.event)  # noqa: E731
        elif act is Act.RESET:
            call = lambda: routing.reset(read, self.home, self.session(), reason="new")  # noqa: E731
        elif act is Act.CHOOSE_MODEL:
            call = lambda: routing.choose_model(read, self.home, {"model": model})  # noqa: E731
        else:
            marks = dict(zip(MARKS, (routing.resume_later, routing.suspend, routing.expire), strict=True))
            call = lambda: marks[act](read, self.home, reason=str(act))  # noqa: E731
        if now is None or read != now:
            with pytest.raises(RouteNotFound if now is None else RouteMoved):
                call()
            return
        outcome = TABLE[now.state, act]
        if outcome is Outcome.STOPPED:
            with pytest.raises(RouteStopped):
                call()
            return
        after = call()
        self.became(after)
        if outcome is Outcome.SAME:
            assert after == now
            return
        assert after.state is outcome
        assert after.version in (now.version, now.version + 1)
        assert (after.version == now.version) == (after == now)
        assert after.generation == now.generation + (act is Act.RESET)

    @precondition(lambda self: self.row is not None)
    @rule()
    def forget(self) -> None:
        assert self.row is not None
        self.store.routing.forget(self.row, self.home, actor="test", reason="test")
        self.became(None)

    @precondition(lambda self: self.row is not None)
    @rule(above=st.integers(0, 5))
    def content_is_replaced(self, above: int) -> None:
        wanted = self.highest + above
        self.store.core.write(lambda tx: raise_generations(tx, wanted))
        self.row = self.store.routing.get("agent:main:telegram:dm:1")
        assert self.row is not None and self.row.generation > wanted
        self.highest = self.row.generation
        self.held.append(self.row)

    @invariant()
    def what_is_read_is_what_was_written(self) -> None:
        if not hasattr(self, "store"):
            return
        assert self.store.routing.get("agent:main:telegram:dm:1") == self.row
        with self.store.core.reader() as reader:
            told = reader.rows("SELECT count(*) FROM changes WHERE table_name = 'routing_entries'")
        assert told == [(self.changes,)]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


RoutesMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
TestRoutes = pytest.mark.slow(RoutesMachine.TestCase)
