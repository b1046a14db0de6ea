"""What a gateway server tells its caller to do, and who has a store.

Invariant: frozen, and none of them is stored. One code has one reason, whoever ended the connection.

Not for: deciding anything (see `server`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hermes_state.instances.close_codes import CLOSINGS, closing
from hermes_state.instances.connection_records import Connection
from hermes_state.instances.liveness import Due
from hermes_state.instances.records import Instance
from hermes_state.owners import OwnerIdentity

# The transport's own "going away": a plugin takes it for a dropped socket and connects again, to the server of now.
GOING_AWAY = 1001


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A connection that is over for this server: its requests have failed, its socket is still to be closed."""

    connection: Connection
    code: int  # to close the socket with
    reason: str  # to close it with; at most 123 bytes


def reason_of(code: int) -> str:
    """Why a connection is over, as its code says it."""
    if code == GOING_AWAY:
        return "this server ends"
    known = closing(code)
    return "its socket closed" if known is None else CLOSINGS[known.code].reason


def ended_with(connection: Connection, code: int) -> Ended:
    """What is to be told of a connection that was just ended."""
    return Ended(connection=connection, code=int(code), reason=reason_of(code))


@dataclass(frozen=True, kw_only=True)
class Noticed:
    """What others did, in this process or another one, since the last look."""

    ended: tuple[Ended, ...]  # revoked, removed, enrolled again, or this server was replaced
    renamed: tuple[Instance, ...]  # connected ones that have another nickname now
    owed: tuple[Connection, ...]  # those that something is due for: `send` it


@dataclass(frozen=True, kw_only=True)
class Ticked(Noticed):
    """What the time brought as well; `ended` has also who does not answer."""

    probes: tuple[Due, ...]  # to be sent now


class Standing(StrEnum):
    """How the server that was started last stands, by what can be proven."""

    NONE = "none"  # it let go of the store
    RUNNING = "running"  # its process runs
    ENDED = "ended"  # its process is gone
    UNKNOWN = "unknown"  # neither can be proven from here


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Which server has a store, from rows and the process table; who is connected to it, only it knows."""

    epoch: int  # how often a server was started on the store
    standing: Standing
    owner: OwnerIdentity | None  # its process; None when it let go, or was written by what cannot be read here
    since: float | None  # epoch seconds UTC of its start; None when nobody wrote it down
    because: str  # what the standing rests on, for people
