"""A store with a gateway server on it, and plugins that are let in by the registry itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.gateway import Accepted, Hello, Server, VersionRange
from hermes_state.outbox import Accepted as Took
from hermes_state.outbox import Claim, Verdict
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from hermes_state.turns import Frame, FrameKind, RecoveryPlan

VERSIONS = VersionRange(2, 3)


class Plugin:
    """The other end of one instance: its credential, and what it was told, in order."""

    def __init__(self, store: Store, instance_id: str = "mac") -> None:
        self.store, self.instance_id = store, instance_id
        self.boot_id = "boot 1"
        self.active: str | None = None
        self.heard: list[str] = []
        self.enroll()

    def enroll(self) -> None:
        """Enrolled, again if it was."""
        minted = self.store.instances.enroll(
            self.instance_id, nickname=f"Gateway {self.instance_id}", actor="test"
        )
        self.credential = self.store.instances.redeem(minted.token, actor="plugin").credential

    def hello(self, versions: VersionRange = VERSIONS) -> Hello:
        """Its first frame."""
        return Hello(
            instance_id=self.instance_id, credential=self.credential, boot_id=self.boot_id, versions=versions,
            plugin_version="1.0", hermes_version="0.19",
        )

    def connect(self, server: Server) -> Accepted[RecoveryPlan]:
        """A connection, and everything that is owed taken on it."""
        accepted = server.accept(self.hello())
        server.send(self.instance_id, accepted.generation, self.take)
        return accepted

    def take(self, claim: Claim) -> Verdict:
        """What is owed, as it comes."""
        one = claim.primary
        self.heard.append(one.kind)
        if one.kind == "ensure":
            return Took(
                result={
                    "session_id": one.payload["session_id"], "active_turn_id": self.active, "boot_id": self.boot_id,
                    "history_rows": 0,
                }
            )
        return Took(result={"outcome": "stopped"})

    def frame(self, kind: FrameKind, turn_id: str | None = None, **fields: object) -> Frame:
        """A frame about its thread."""
        return Frame(
            kind=kind, instance_id=self.instance_id, thread_id=f"thread of {self.instance_id}", session_id="session",
            turn_id=turn_id, fields=fields,
        )


@pytest.fixture(name="store")
def store_of_gateway(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@pytest.fixture(name="server")
def server_on_store(store: Store) -> Iterator[Server]:
    with store.gateway.serve(versions=VERSIONS) as serving:
        yield serving


@pytest.fixture(name="plugin")
def plugin_maker(store: Store) -> Callable[..., Plugin]:
    """`plugin("mac")` is enrolled and serves a thread of its own."""

    def make(instance_id: str = "mac") -> Plugin:
        made = Plugin(store, instance_id)
        store.instances.bind(f"thread of {instance_id}", instance_id, "session")
        store.turns.open_thread(f"thread of {instance_id}")
        return made

    return make


def silent(_turn: object, _connection: object) -> None:
    """An announcement that arrives."""
