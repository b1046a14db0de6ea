"""Chats, people and marks of routing in a store: some of everything that its tables hold."""

from __future__ import annotations

import weakref
from typing import Any

from hermes_state.errors import PairingRefused, SessionNotFound
from hermes_state.routing import Inbound, Route, RoutingIdentity, Source, Transport
from hermes_state.store import Store

_CONNECTED: list[Transport] = []  # identities refer to them weakly


def event(store: Store, chat: str, *, bot: str = "default", **of: Any) -> Inbound:
    """A message of a direct chat, taken in by a bot of that profile, in the home of this store."""
    home = store.routing.home
    _CONNECTED.append(Transport(platform="telegram", profile=bot, home=home))
    identity = RoutingIdentity(
        transport_profile=bot, runtime_profile="default", authorization_home=home, runtime_home=home, multiplexed=True,
        transport=weakref.ref(_CONNECTED[-1]),
    )
    source = Source(**{"platform": "telegram", "chat_type": "dm", "chat_id": chat} | of)
    return Inbound(source=source, identity=identity)


def bound(store: Store, chat: str, session: str = "", *, bot: str = "default", **of: Any) -> Route:
    """The chat, bound to a session, which is made where it is not there."""
    name = session or f"session of {chat}"
    try:
        store.sessions.get(name)
    except SessionNotFound:
        store.sessions.create(id=name, source="telegram")
    return store.routing.bind(event(store, chat, bot=bot, **of), name)


def reset(store: Store, route: Route, session: str, *, reason: str = "new") -> Route:
    """The chat in a new session of that id."""
    store.sessions.create(id=session, source="telegram")
    return store.routing.reset(route, store.routing.home, session, reason=reason)


def paired(store: Store, user: str, platform: str = "telegram") -> None:
    """Somebody who asked and was let in."""
    code = store.routing.pairing.request(platform, user, store.routing.home, user_name=f"{user} by name")
    assert store.routing.pairing.approve(platform, code, store.routing.home, by="test") is not None


def locked(store: Store, platform: str = "telegram") -> None:
    """A platform on which too many wrong codes were tried."""
    for _ in range(5):
        assert store.routing.pairing.approve(platform, "wrong", store.routing.home, by="guesser") is None
    try:
        store.routing.pairing.approve(platform, "wrong", store.routing.home, by="guesser")
    except PairingRefused:
        return
    raise AssertionError("it is not locked")


def route(store: Store) -> None:
    """Entries in every state, somebody who waits, somebody who is paired, a lock, and what is not served."""
    home, routing = store.routing.home, store.routing
    bound(store, "1", "routed", user_name="Ann", chat_name="Ann's chat")
    routing.choose_model(bound(store, "2", "routed 2"), home, {"model": "model-a"})
    routing.resume_later(bound(store, "3", "routed 3", bot="work"), home, reason="restart")
    routing.suspend(bound(store, "4", "routed 4"), home, reason="stuck")
    routing.expire(bound(store, "5", "routed 5"), home, reason="idle")
    reset(store, bound(store, "6", "routed 6"), "routed 6 b")
    routing.forget(reset(store, bound(store, "7", "routed 7"), "routed 7 b"), home, actor="test", reason="left")
    routing.take_in(
        {
            "session_key": "agent:main:telegram:dm:8", "session_id": "routed",
            "origin": {"platform": "telegram", "chat_type": "dm", "chat_id": "8"},
        },
        home,
    )
    paired(store, "friend")
    routing.pairing.request("telegram", "stranger", home, user_name="Stranger")
    locked(store, "discord")
    routing.refuse("whatsapp", "side", home, reason="the bridge serves the default profile only")
    routing.refuse("signal", "side", home, reason="it was down")
    routing.connected("signal", "side", home)
