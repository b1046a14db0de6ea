"""A store with one login whose token is due, a provider that burns on reuse, and other processes that can die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.owners import Presence
from hermes_state.routing import Home, home_of
from hermes_state.store import Store, open_store
from hermes_state.work.credentials import Credentials, Grant, SecretFile, Secrets, Served, Verdict, verdict_of
from tests.support.token_server import TokenServer, post

LASTS = 3600.0


@pytest.fixture(name="server")
def provider() -> Iterator[TokenServer]:
    with TokenServer(lasts_seconds=LASTS) as server:
        yield server


@pytest.fixture(name="store")
def credential_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(tmp_path / "home", clock=fake_clock, durability="process") as opened:
        yield opened


class Login:
    """One credential: its row, its file, its provider, and processes that want its token."""

    def __init__(self, store: Store, server: TokenServer, name: str = "main") -> None:
        self.store, self.server, self.name = store, server, name
        self.home: Home = home_of(store.core)
        self.file = SecretFile(store.path.parent / "secrets" / f"{name}.json")
        self.presences: list[Presence] = []
        self.group = Credentials(store.core)

    def begin(self, *, expires_in: float = 60.0, single_use: bool = True, **extra: object) -> str:
        """Log in with a token that ends in so many seconds; gives the refresh token."""
        token = self.server.log_in(self.name)
        self.group.log_in(
            "nous", self.name, self.home, secrets=self.file, auth_type="oauth", single_use=single_use,
            new=Secrets(
                access_token=f"old-access-{self.name}", refresh_token=token,
                expires_at=self.store.core.clock.now() + expires_in, extra=extra,
            ),
        )
        return token

    def process(self) -> Credentials:
        """Another process."""
        self.presences.append(Presence(self.store.path.parent, clock=self.store.core.clock))
        return Credentials(self.store.core, presence=self.presences[-1])

    def exchange(self, grant: Grant) -> Verdict:
        """What a client of the provider does."""
        answer = post(self.server.port, grant.reveal())
        return verdict_of(answer.pop("status"), answer, now=self.store.core.clock.now())

    def token(self, process: Credentials | None = None, **options: object) -> Served:
        """A token, by the provider unless `exchange` says otherwise."""
        given = {"secrets": self.file, "exchange": self.exchange} | options
        return (process or self.group).token("nous", self.name, self.home, **given)  # type: ignore[arg-type]


@pytest.fixture(name="login")
def login_of(store: Store, server: TokenServer) -> Login:
    return Login(store, server)


@pytest.fixture(name="logins")
def logins_of(store: Store, server: TokenServer) -> Callable[[str], Login]:
    return lambda name: Login(store, server, name)
