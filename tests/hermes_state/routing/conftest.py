"""A host with three homes, each with its store, and bots that are connected or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.routing import (
    Home,
    Inbound,
    ProfileRoute,
    Route,
    RoutingIdentity,
    Source,
    Transport,
    Unserved,
    canonicalize,
    resolve,
    served_homes,
)
from hermes_state.store import Store, open_store

PROFILES = ("default", "work", "side")


class Stores(dict[str, Store]):
    """The stores of a host by profile, each opened when it is first asked for: most tests need one."""

    def __init__(self, root: Path, clock: FakeClock) -> None:
        super().__init__()
        self._root = root
        self._clock = clock

    def __missing__(self, profile: str) -> Store:
        folder = self._root if profile == "default" else self._root / "profiles" / profile
        self[profile] = open_store(folder, clock=self._clock)
        return self[profile]


@dataclass(kw_only=True)
class Host:
    """One process that serves three profiles."""

    stores: Stores
    live: list[Transport] = field(default_factory=list)
    routes: list[ProfileRoute] = field(default_factory=list)
    unserved: set[str] = field(default_factory=set)

    def home(self, profile: str) -> Home:
        return self.stores[profile].routing.home

    @property
    def served(self) -> dict[str, Home]:
        """The homes of every profile that is open or that a route names, but for those that are not to be served."""
        named = {*self.stores, *(route.profile for route in self.routes)}
        return dict(served_homes(self.home(one) for one in PROFILES if one in named and one not in self.unserved))

    def bot(self, profile: str, platform: str = "telegram", *, runs_as: str | None = None) -> Transport:
        """Connect a bot."""
        made = Transport(platform=platform, profile=profile, home=self.home(profile), runs_as=runs_as)
        self.live.append(made)
        return made

    def gone(self, bot: Transport) -> None:
        """It lost its connection."""
        self.live = [one for one in self.live if one is not bot]

    def identity(self, given: Source, receiver: Transport | None) -> RoutingIdentity | Unserved:
        return resolve(
            given, receiver=receiver, live=self.live, served=self.served, routes=self.routes, multiplexed=True
        )

    def event(self, receiver: Transport | None, **of: str) -> Inbound:
        """A message that a bot received, and that somebody here may take in."""
        found = canonicalize(source(**of), lambda given: self.identity(given, receiver))
        assert isinstance(found, Inbound)
        return found

    def bound(self, inbound: Inbound) -> Route:
        """Its chat, bound to a new session of the home that it runs in."""
        store = self.stores[inbound.identity.runtime_profile]
        return store.routing.bind(inbound, store.sessions.create(source="telegram").id)


def source(**of: str) -> Source:
    """A message from a group."""
    return Source(**{"platform": "telegram", "chat_type": "group", "chat_id": "-100", "user_id": "7"} | of)


@pytest.fixture(name="host")
def new_host(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Host]:
    stores = Stores(tmp_path / "hermes", fake_clock)
    yield Host(stores=stores)
    for store in stores.values():
        store.close()


@pytest.fixture(name="store")
def default_store(host: Host) -> Store:
    return host.stores["default"]


@pytest.fixture(name="home")
def default_home(host: Host) -> Home:
    return host.home("default")
