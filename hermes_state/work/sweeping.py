"""After a sign-in: chats leave the model that only guests have.

Invariant: in each chat the durable override is cleared before its cached agent is evicted, so that what is rebuilt does
not find the old model again. An override that cannot be cleared twice keeps its agent: the chat goes on as its row
says, and is counted. One chat's trouble stops no other.

Not for: choosing a model: the next turn of each chat reads the settings anew. Writing an override with the new model
was rejected: it would pin an access token's route that nothing refreshes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_state.errors import StateError
from hermes_state.routing.homes import Home
from hermes_state.routing.records import Route
from hermes_state.routing.routing import Routing
from hermes_state.work import callbacks

if TYPE_CHECKING:
    from hermes_state.engine.core import Core

# How often an override is tried to be cleared; the seed's number.
TRIES = 2


@dataclass(frozen=True, kw_only=True)
class GuestModel:
    """What guests have, and nobody who is signed in."""

    provider: str
    model: str

    def is_pinned_by(self, override: Mapping[str, str] | None) -> bool:
        """Whether an override names it; one that names no provider does too."""
        return (
            override is not None and override.get("model") == self.model
            and override.get("provider", self.provider) == self.provider
        )


@dataclass(frozen=True, kw_only=True)
class CachedAgent:
    """An agent that a process keeps for a chat."""

    session_key: str
    provider: str
    model: str


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep did."""

    cleared: tuple[str, ...]  # session keys whose override was cleared
    evicted: tuple[str, ...]  # session keys whose agent was evicted
    kept: Mapping[str, StateError] = field(default_factory=dict)  # chats that go on as before: what kept the override
    # chats whose override is cleared and whose agent could not be evicted: restart the process, or evict it again
    not_evicted: Mapping[str, Exception] = field(default_factory=dict)


def sweep(
    core: Core, home: Home, guest: GuestModel, *, cached: Iterable[CachedAgent] = (),
    evict: Callable[[str], None] | None = None,
) -> Swept:
    """Clear every override that pins the guests' model, then evict each cached agent that has it.

    `evict(session_key)` is the caller's; without one nothing is evicted. Raises `WrongHome`, `HomeRemoved`.
    """
    routing = Routing(core)
    stale = {
        one.session_key for one in cached if (one.provider, one.model) == (guest.provider, guest.model)
    }
    cleared: list[str] = []
    evicted: list[str] = []
    kept: dict[str, StateError] = {}
    not_evicted: dict[str, Exception] = {}
    for key in sorted(stale | _pinned(core, guest)):
        try:
            if _clear(routing, home, key, guest):
                cleared.append(key)
        except StateError as error:
            kept[key] = error
            continue
        if key in stale and evict is not None:
            try:
                callbacks.run("evict", evict, key)
            except Exception as error:  # the caller's code: whatever it raises must not keep the others
                not_evicted[key] = error
            else:
                evicted.append(key)
    return Swept(cleared=tuple(cleared), evicted=tuple(evicted), kept=kept, not_evicted=not_evicted)


def _pinned(core: Core, guest: GuestModel) -> set[str]:
    with core.reader() as reader:
        keys = [key for (key,) in reader.rows(
            "SELECT session_key FROM routing_entries WHERE model_override ->> '$.model' = ?", (guest.model,)
        )]
    routing = Routing(core)
    return {key for key in keys if _pins(routing.get(key), guest)}


def _clear(routing: Routing, home: Home, key: str, guest: GuestModel) -> bool:
    """Clear one override, or find that there is none of that model; the row is read anew for each try."""
    for number in range(1, TRIES + 1):
        route = routing.get(key)
        if route is None or not _pins(route, guest):
            return False
        try:
            routing.choose_model(route, home, None)
        except StateError:
            if number == TRIES:
                raise
        else:
            return True
    return False


def _pins(route: Route | None, guest: GuestModel) -> bool:
    return route is not None and guest.is_pinned_by(route.model_override)
