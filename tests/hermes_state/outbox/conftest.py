"""A store with an outbox, senders that can die, and short ways to record and to list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import StateError
from hermes_state.outbox import Outbox, Recorded
from hermes_state.owners import Presence
from hermes_state.store import Store
from hermes_state.testing import temporary_store


@pytest.fixture(name="store")
def outbox_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@pytest.fixture(name="box")
def outbox(store: Store) -> Outbox:
    return store.outbox


@pytest.fixture(name="owe")
def recorder(box: Outbox) -> Callable[..., Recorded]:
    def owe(dedupe_id: str, policy: str = "at_least_once", **fields: Any) -> Recorded:
        return box.append(
            **{"dedupe_id": dedupe_id, "kind": "final", "transport": "telegram", "payload": {"text": dedupe_id}}
            | fields, policy=policy,  # type: ignore[arg-type]
        )

    return owe


class Sender:
    """Another process that claims from the same store, and can die."""

    def __init__(self, store: Store) -> None:
        self.presence = Presence(store.path.parent, clock=store.core.clock)
        self.box = Outbox(store.core, presence=self.presence)

    def die(self) -> None:
        """What the kernel does at kill -9."""
        self.presence.end()


@pytest.fixture(name="sender")
def new_sender(store: Store) -> Callable[[], Sender]:
    return lambda: Sender(store)


def told(error: StateError) -> str:
    """Everything an error tells a person: its message and its hint."""
    return f"{error} {error.hint or ''}".strip()
