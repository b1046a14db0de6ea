"""An instance as it stands, and what its changes give.

Invariant: nothing here can carry a token or a credential but `Minted` and `Issued`, which are given once, hide it in
their repr, and are never stored.

Not for: rows of connections (see `connection_records`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_state.instances.states import State

if TYPE_CHECKING:
    from hermes_state.tombstones import Tombstone

COLUMNS = (
    "i.no, i.instance_id, i.nickname, i.connector_url, i.state, i.state_at, i.state_actor, i.state_reason,"
    " i.created_at, i.enrolled_at, i.removed_at,"
    " (SELECT issued_at FROM gateway_credentials AS c WHERE c.instance_id = i.instance_id),"
    " (SELECT expires_at FROM enrollment_tokens AS t WHERE t.instance_id = i.instance_id AND t.state = 'pending')"
)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance. Times are epoch seconds UTC."""

    number: int  # the order in which instances were added
    instance_id: str
    nickname: str  # as it was given, trimmed
    connector_url: str | None
    state: State
    state_at: float  # since when it is in this state
    state_actor: str  # who brought it there
    state_reason: str  # why, as far as somebody said
    created_at: float
    enrolled_at: float | None  # when it was enrolled last
    removed_at: float | None
    credential_issued_at: float | None  # None: no credential opens it
    enrollment_expires_at: float | None  # of its pending token, which may be dead by time; None: none is pending


@dataclass(frozen=True, kw_only=True)
class Enrollment:
    """A token that was found to be good. It says nothing about the moment after."""

    instance_id: str
    created_at: float  # epoch seconds UTC
    expires_at: float  # epoch seconds UTC; still good then


@dataclass(frozen=True, kw_only=True)
class Minted:
    """A new enrollment token. The only time that it is given."""

    instance: Instance
    expires_at: float  # epoch seconds UTC; still good then
    added: bool  # whether the instance was added in the same transaction
    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A new credential. The only time that it is given."""

    instance: Instance
    credential: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Changed:
    """What a change of an instance found."""

    instance: Instance  # as it stands now
    changed: bool  # False: it was so before, and nothing was written


@dataclass(frozen=True, kw_only=True)
class Removed:
    """What removing an instance did."""

    instance_id: str
    tombstone: Tombstone | None  # None: it was never enrolled, so nothing refers to it and its id is free
    changed: bool  # False: it was removed before


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Which instance serves a thread."""

    thread_id: str
    instance_id: str
    session_id: str  # the gateway's id of the session
    created_at: float  # epoch seconds UTC


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What sweeping tokens did."""

    expired: int  # pending ones that were dead by time
    settled: int  # consumed, superseded and forgotten ones whose time was over as well
    more: bool  # whether others are due


@dataclass(frozen=True, kw_only=True)
class Freed:
    """What the collection of tombstones did."""

    instance_ids: tuple[str, ...]  # ids that may be used again
    more: bool  # whether others are due


def instance(row: Sequence[Any]) -> Instance:
    """A row of `COLUMNS`."""
    (
        number, name, nickname, url, state, state_at, actor, reason, created_at, enrolled_at, removed_at, issued_at,
        expires_at,
    ) = row
    return Instance(
        number=number, instance_id=name, nickname=nickname, connector_url=url, state=State(state), state_at=state_at,
        state_actor=actor, state_reason=reason, created_at=created_at, enrolled_at=enrolled_at, removed_at=removed_at,
        credential_issued_at=issued_at, enrollment_expires_at=expires_at,
    )
