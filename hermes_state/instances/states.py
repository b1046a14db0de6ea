"""The state machines of an instance and of an enrollment token: what may happen, and what follows.

Invariant: every pair of a state and an event has its outcome in a table here, a refusal included, and nothing else
decides; the triggers of the schema refuse every other change. A removed instance and a settled token never change.

Not for: reading or writing rows, and whether an instance is connected (see `connection_states`). A state "enrolling"
was rejected: a pending token is a row of its own, and an instance goes on being what it was until that is redeemed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where an instance stands."""

    CONFIGURED = "configured"  # added, never enrolled
    ENROLLED = "enrolled"  # a plugin has, or had, its credential
    REVOKED = "revoked"  # may not connect until it is enrolled again; its nickname stays taken
    REMOVED = "removed"  # gone for people; its id is kept from coming back by a tombstone


class Event(StrEnum):
    """What can happen to an instance."""

    MINT = "mint a token"
    ENROLL = "enroll"  # a token was redeemed
    CHANGE = "change"  # another nickname or connector
    BIND = "bind a thread"
    REVOKE = "revoke"
    REMOVE = "remove"


class Refusal(StrEnum):
    """Why an event does not happen. Each has an error of its own."""

    NOT_ENROLLED = "it was never enrolled"
    REVOKED = "it is revoked"
    NOT_REVOKED = "it is not revoked"
    REMOVED = "it was removed"


class Gone(StrEnum):
    """An outcome that is no state."""

    GONE = "the row goes, and leaves no tombstone"


Outcome = State | Refusal | Gone

TRANSITIONS: Mapping[tuple[State, Event], Outcome] = {
    (State.CONFIGURED, Event.MINT): State.CONFIGURED,
    (State.CONFIGURED, Event.ENROLL): State.ENROLLED,
    (State.CONFIGURED, Event.CHANGE): State.CONFIGURED,
    (State.CONFIGURED, Event.BIND): Refusal.NOT_ENROLLED,
    (State.CONFIGURED, Event.REVOKE): State.REVOKED,
    (State.CONFIGURED, Event.REMOVE): Gone.GONE,  # nothing can refer to it: threads are bound to enrolled ones only
    (State.ENROLLED, Event.MINT): State.ENROLLED,
    (State.ENROLLED, Event.ENROLL): State.ENROLLED,
    (State.ENROLLED, Event.CHANGE): State.ENROLLED,
    (State.ENROLLED, Event.BIND): State.ENROLLED,
    (State.ENROLLED, Event.REVOKE): State.REVOKED,
    (State.ENROLLED, Event.REMOVE): Refusal.NOT_REVOKED,
    (State.REVOKED, Event.MINT): State.REVOKED,
    (State.REVOKED, Event.ENROLL): State.ENROLLED,
    (State.REVOKED, Event.CHANGE): State.REVOKED,
    (State.REVOKED, Event.BIND): Refusal.REVOKED,
    (State.REVOKED, Event.REVOKE): State.REVOKED,
    (State.REVOKED, Event.REMOVE): State.REMOVED,
    (State.REMOVED, Event.MINT): Refusal.REMOVED,
    (State.REMOVED, Event.ENROLL): Refusal.REMOVED,
    (State.REMOVED, Event.CHANGE): Refusal.REMOVED,
    (State.REMOVED, Event.BIND): Refusal.REMOVED,
    (State.REMOVED, Event.REVOKE): Refusal.REMOVED,
    (State.REMOVED, Event.REMOVE): State.REMOVED,
}


def to_event(state: State, event: Event) -> Outcome:
    """What follows when `event` happens to an instance in `state`."""
    return TRANSITIONS[state, event]


class TokenState(StrEnum):
    """Where an enrollment token stands. All but the first are terminal."""

    PENDING = "pending"
    CONSUMED = "consumed"
    SUPERSEDED = "superseded"  # a newer one of the same instance was minted
    FORGOTTEN = "forgotten"  # its instance was revoked or removed
    EXPIRED = "expired"  # a matter of time: never written, the row goes with the next sweep


class TokenEvent(StrEnum):
    """What can happen to a token."""

    CONSUME = "consume"
    SUPERSEDE = "supersede"
    FORGET = "forget"
    EXPIRE = "expire"


_ENDS = {
    TokenEvent.CONSUME: TokenState.CONSUMED, TokenEvent.SUPERSEDE: TokenState.SUPERSEDED,
    TokenEvent.FORGET: TokenState.FORGOTTEN, TokenEvent.EXPIRE: TokenState.EXPIRED,
}
# Terminal is terminal: only a pending one goes anywhere. None: the event does not happen.
TOKEN_TRANSITIONS: Mapping[tuple[TokenState, TokenEvent], TokenState | None] = {
    (state, event): _ENDS[event] if state is TokenState.PENDING else None
    for state in TokenState for event in TokenEvent
}


def token_to_event(state: TokenState, event: TokenEvent) -> TokenState | None:
    """What follows when `event` happens to a token in `state`; None when it does not happen."""
    return TOKEN_TRANSITIONS[state, event]


def expired(expires_at: float, now: float) -> bool:
    """Whether a token is dead by time: strictly, so at `expires_at` itself it is still good."""
    return expires_at < now
