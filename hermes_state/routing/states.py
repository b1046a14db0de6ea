"""The state machine of a routing entry: what may happen to a chat's conversation, and what follows.

Invariant: every pair of a state and an act has its outcome in the table here, and nothing else decides. What is
suspended or expired goes on only in a new session: no restart, no late mark and no message brings the old one back.
An act that changes nothing writes nothing.

Not for: reading or writing rows (see `changing`). Separate flags that any code may set, as hermes-agent has them, were
rejected: "suspended" and "resume pending" at once meant what the reader looked at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum


class State(StrEnum):
    """How the next message of the chat goes on."""

    ACTIVE = "active"  # in its session
    RESUMING = "resuming"  # in its session, whose last turn was interrupted and is to be taken up again
    SUSPENDED = "suspended"  # in a new session: somebody stopped it for good
    EXPIRED = "expired"  # in a new session: it was too old, and was seen off once


class Act(StrEnum):
    """What can happen to it."""

    RECEIVE = "receive"  # a message came, and its turn begins: nothing has come of a mark yet
    GO_ON = "go on"  # a turn ended well
    RESUME_LATER = "resume later"  # a turn was interrupted by a restart
    SUSPEND = "suspend"
    EXPIRE = "expire"
    RESET = "reset"  # a new session, or another one that a person chose: the next generation
    FOLLOW = "follow"  # its session goes on as another one after a compaction: the same generation
    CHOOSE_MODEL = "choose a model"


class Outcome(Enum):
    """What follows, other than a state."""

    SAME = "same"  # nothing: the first mark stays
    STOPPED = "stopped"  # RouteStopped: only a new session goes on


TABLE: Mapping[tuple[State, Act], State | Outcome] = {
    (State.ACTIVE, Act.RECEIVE): State.ACTIVE,
    (State.ACTIVE, Act.GO_ON): State.ACTIVE,
    (State.ACTIVE, Act.RESUME_LATER): State.RESUMING,
    (State.ACTIVE, Act.SUSPEND): State.SUSPENDED,
    (State.ACTIVE, Act.EXPIRE): State.EXPIRED,
    (State.ACTIVE, Act.RESET): State.ACTIVE,
    (State.ACTIVE, Act.FOLLOW): State.ACTIVE,
    (State.ACTIVE, Act.CHOOSE_MODEL): State.ACTIVE,
    (State.RESUMING, Act.RECEIVE): State.RESUMING,
    (State.RESUMING, Act.GO_ON): State.ACTIVE,
    (State.RESUMING, Act.RESUME_LATER): Outcome.SAME,
    (State.RESUMING, Act.SUSPEND): State.SUSPENDED,
    (State.RESUMING, Act.EXPIRE): State.EXPIRED,
    (State.RESUMING, Act.RESET): State.ACTIVE,
    (State.RESUMING, Act.FOLLOW): State.RESUMING,
    (State.RESUMING, Act.CHOOSE_MODEL): State.RESUMING,
    (State.SUSPENDED, Act.RECEIVE): Outcome.STOPPED,
    (State.SUSPENDED, Act.GO_ON): Outcome.STOPPED,
    (State.SUSPENDED, Act.RESUME_LATER): Outcome.STOPPED,
    (State.SUSPENDED, Act.SUSPEND): Outcome.SAME,
    (State.SUSPENDED, Act.EXPIRE): State.EXPIRED,
    (State.SUSPENDED, Act.RESET): State.ACTIVE,
    (State.SUSPENDED, Act.FOLLOW): Outcome.STOPPED,
    (State.SUSPENDED, Act.CHOOSE_MODEL): State.SUSPENDED,
    (State.EXPIRED, Act.RECEIVE): Outcome.STOPPED,
    (State.EXPIRED, Act.GO_ON): Outcome.STOPPED,
    (State.EXPIRED, Act.RESUME_LATER): Outcome.STOPPED,
    (State.EXPIRED, Act.SUSPEND): Outcome.SAME,
    (State.EXPIRED, Act.EXPIRE): Outcome.SAME,
    (State.EXPIRED, Act.RESET): State.ACTIVE,
    (State.EXPIRED, Act.FOLLOW): Outcome.STOPPED,
    (State.EXPIRED, Act.CHOOSE_MODEL): State.EXPIRED,
}
