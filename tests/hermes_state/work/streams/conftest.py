"""One home with its store, a chat that is bound to a session, and a platform that keeps what it was sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted, Verdict
from hermes_state.routing import Home, Inbound, Route, RoutingIdentity, Source, Transport, resolve
from hermes_state.store import Store, open_store
from hermes_state.work.streams import Sending


@pytest.fixture(name="store")
def new_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        yield store


@pytest.fixture(name="home")
def its_home(store: Store) -> Home:
    return store.routing.home


class Chats:
    """Chats of a store, each an event of its bot."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bot = Transport(platform="telegram", profile="default", home=store.routing.home)

    def event(self, chat_id: str = "7") -> Inbound:
        home = self._store.routing.home
        source = Source(platform="telegram", chat_type="dm", chat_id=chat_id, user_id=chat_id)
        identity = resolve(source, receiver=self._bot, live=[self._bot], served={"default": home}, multiplexed=False)
        assert isinstance(identity, RoutingIdentity)
        return Inbound(source=source, identity=identity)

    def bound(self, chat_id: str = "7") -> Route:
        """The chat, bound to a new session."""
        return self._store.routing.bind(self.event(chat_id), self._store.sessions.create(source="telegram").id)


@pytest.fixture(name="chats")
def new_chats(store: Store) -> Chats:
    return Chats(store)


@dataclass(kw_only=True)
class Platform:
    """What a chat platform has: messages by their ids. It appends, edits, and counts."""

    messages: dict[str, str] = field(default_factory=dict)
    sends: int = 0
    edits: int = 0
    media: list[object] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def post(self, text: str) -> str:
        self.sends += 1
        message_id = f"m{len(self.messages) + 1}"
        self.messages[message_id] = text
        self.order.append(f"send {message_id}")
        return message_id

    def deliver(self, sending: Sending) -> Verdict:
        """The handler of a gateway."""
        if sending.text is None:
            self.media.append(sending.media)
            self.order.append("media")
            return Accepted()
        if sending.edit is not None:
            self.edits += 1
            self.messages[sending.edit] = sending.text
            self.order.append(f"edit {sending.edit}")
            return Accepted(result={"message_id": sending.edit})
        mark = "(again) " if sending.may_be_shown else ""
        return Accepted(result={"message_id": self.post(mark + sending.text)})


@pytest.fixture(name="platform")
def new_platform() -> Platform:
    return Platform()
