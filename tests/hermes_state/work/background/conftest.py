"""A store with background work, gateways that can die, and short ways to begin and to deliver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted, Verdict
from hermes_state.owners import Presence
from hermes_state.routing import Home, Inbound, Route, Source, Transport, resolve
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from hermes_state.work.background import Delegation, Process, Tell
from hermes_state.work.delegations import Delegations
from hermes_state.work.notices import Notice
from hermes_state.work.processes import Processes

TURN = Tell(mode="turn", transport="telegram", target="chat 7")  # type: ignore[arg-type]
RECEIPT = Tell(mode="receipt", transport="telegram", target="chat 7")  # type: ignore[arg-type]
DISPLAY = Tell(mode="display", transport="api_server")  # type: ignore[arg-type]


@pytest.fixture(name="store")
def work_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@pytest.fixture(name="home")
def store_home(store: Store) -> Home:
    return store.routing.home


@pytest.fixture(name="begin")
def beginner(store: Store, home: Home) -> Callable[..., Process]:
    def begin(process_id: str, tell: Tell = TURN, **fields: Any) -> Process:
        return store.work.processes.register(process_id, home, **{"command": "make", "tell": tell} | fields)

    return begin


@pytest.fixture(name="dispatch")
def dispatcher(store: Store, home: Home) -> Callable[..., Delegation]:
    def dispatch(delegation_id: str, tell: Tell = TURN, **fields: Any) -> Delegation:
        return store.work.delegations.dispatch(
            delegation_id, home, **{"task": {"goal": "look"}, "tell": tell} | fields
        )

    return dispatch


class Admitting:
    """A conversation that takes notices, or does what it is told to."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.seen: list[Notice] = []
        self.verdict: Verdict | None = Accepted()

    def admit(self, notice: Notice) -> Verdict | None:
        self.seen.append(notice)
        return self.verdict

    def deliver(self, *transports: str, limit: int = 100) -> list[str]:
        """The keys of what was given to it."""
        before = len(self.seen)
        self.store.work.notices.deliver(self.admit, transports or ("telegram",), limit=limit)
        return [work.key for notice in self.seen[before:] for work in notice.works]


@pytest.fixture(name="chat")
def conversation(store: Store) -> Admitting:
    return Admitting(store)


class Gateway:
    """Another process that watches over background work, and can die."""

    def __init__(self, store: Store) -> None:
        self.presence = Presence(store.path.parent, clock=store.core.clock)
        self.processes = Processes(store.core, presence=self.presence)
        self.delegations = Delegations(store.core, presence=self.presence)

    def die(self) -> None:
        """What the kernel does at kill -9."""
        self.presence.end()


@pytest.fixture(name="gateway")
def other_gateway(store: Store) -> Gateway:
    return Gateway(store)


def entry(store: Store, session_id: str, chat_id: str = "-100") -> Route:
    """The routing entry of a chat, bound to a session."""
    home = store.routing.home
    bot = Transport(platform="telegram", profile="default", home=home)
    source = Source(platform="telegram", chat_type="group", chat_id=chat_id)
    identity = resolve(source, receiver=bot, live=[bot], served={"default": home}, multiplexed=False)
    return store.routing.bind(Inbound(source=source, identity=identity), session_id)  # type: ignore[arg-type]


def obligations(store: Store) -> dict[str, str]:
    """What is in the outbox: dedupe id to state."""
    return {one.dedupe_id: str(one.state) for one in store.outbox.page(limit=1000)}
