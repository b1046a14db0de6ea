"""What a plugin says first, a connection, and what `accept` gives.

Invariant: frozen, and none of them is stored; no field but that of a hello can hold a credential.

Not for: deciding anything (see `connections`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hermes_state.errors import InvalidInput
from hermes_state.instances.connection_states import LinkState
from hermes_state.instances.generations import Generation
from hermes_state.instances.protocol import VersionRange
from hermes_state.instances.sanitising import has_surrogate

Plan = TypeVar("Plan")
MOST_CHARACTERS = 512
MOST_CAPABILITIES = 64


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The first frame of a plugin."""

    instance_id: str  # who it says it is
    credential: str = field(repr=False)  # raw; used once, kept nowhere
    boot_id: str  # random for each start of the plugin's process
    versions: VersionRange  # of the protocol that it speaks
    plugin_version: str  # for people
    hermes_version: str  # for people
    capabilities: tuple[str, ...] = ()  # what it can do beyond its protocol version
    model: str | None = None  # for people


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One live connection. In memory only."""

    generation: Generation
    instance_id: str
    protocol_version: int  # negotiated
    boot_id: str  # of the plugin's process
    plugin_version: str  # for people
    hermes_version: str  # for people
    capabilities: tuple[str, ...]
    model: str | None  # for people
    connected_at: float  # epoch seconds UTC
    session_count: int | None  # as it said last; None before it did


@dataclass(frozen=True, kw_only=True)
class Accepted(Generic[Plan]):
    """What `accept` gives."""

    connection: Connection
    # the connection that it took the place of: fail its requests, then close its socket with 4001
    displaced: Connection | None
    # what there was to recover; stored already, what is to be sent is owed
    recovery_plan: Plan
    # whether this is another process of the plugin than the last time, or the first one ever
    boot_id_changed: bool

    @property
    def generation(self) -> Generation:
        """Of the new connection."""
        return self.connection.generation


@dataclass(frozen=True, kw_only=True)
class DeliveryAccepted:
    """A socket that may only send home deliveries: it has no generation, is not probed and displaces nobody."""

    instance_id: str
    protocol_version: int  # negotiated


@dataclass(frozen=True, kw_only=True)
class UpgradeRequired:
    """The plugin that was refused last for want of a common version."""

    versions: VersionRange  # that it speaks
    plugin_version: str  # for people
    hermes_version: str  # for people
    refused_at: float  # epoch seconds UTC


@dataclass(frozen=True, kw_only=True)
class Link:
    """How one instance stands with this server."""

    state: LinkState = LinkState.OFFLINE
    connection: Connection | None = None  # exactly when connected
    upgrade: UpgradeRequired | None = None  # exactly when an upgrade is required


def refuse_odd(hello: Hello) -> None:
    """Raise `InvalidInput` when a hello has what no hello can have."""
    texts = {
        "instance_id": hello.instance_id, "boot_id": hello.boot_id, "plugin_version": hello.plugin_version,
        "hermes_version": hello.hermes_version, "model": "" if hello.model is None else hello.model,
    }
    for name, value in texts.items():
        wrong = not _fine(value)
        if wrong or (not value and name in ("instance_id", "boot_id")):
            raise InvalidInput(
                f"{name} of a hello is a text of at most {MOST_CHARACTERS} characters without NUL"
                f"{', not empty' if name in ('instance_id', 'boot_id') else ''}.",
                argument=name,
            )
    if not isinstance(hello.versions, VersionRange):
        raise InvalidInput(f"versions of a hello are a VersionRange, not {hello.versions!r:.80}.", argument="versions")
    given = hello.capabilities
    if not isinstance(given, (tuple, list)) or len(given) > MOST_CAPABILITIES or not all(map(_fine, given)):
        raise InvalidInput(
            f"capabilities of a hello are at most {MOST_CAPABILITIES} texts of at most {MOST_CHARACTERS} characters.",
            argument="capabilities",
        )


def _fine(value: object) -> bool:
    return (
        isinstance(value, str) and len(value) <= MOST_CHARACTERS and "\0" not in value and not has_surrogate(value)
    )
