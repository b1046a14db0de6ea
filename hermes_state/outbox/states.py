"""The state machine of an obligation: what may happen to it, and what follows.

Invariant: every pair of a state that is not terminal and an event has its outcome in the table here, and nothing else
decides; terminal states have no events. A crash is judged by the policy of the row: what may have been sent once is
never sent again under `at_most_once` (it is `unknown`), and is always sent again, marked, under `at_least_once`.
A verdict on a pending row is one that came late: its claim was taken for lost, and nobody has claimed the row since.

Not for: reading or writing rows (see `claims`, `settling`). A state "delivered" was rejected: what a receiver accepted
is all that a sender ever knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where an obligation stands. All but the first two are terminal."""

    PENDING = "pending"  # owed, nobody is sending it
    CLAIMED = "claimed"  # one process is sending it
    ACCEPTED = "accepted"  # the receiver has it
    REFUSED = "refused"  # the receiver will never take it
    FAILED = "failed"  # it can never be sent, whoever tries
    UNKNOWN = "unknown"  # at most once: its sender died on the way, or does not know
    DROPPED = "dropped"  # out of attempts, or taken back by a person
    SUPPRESSED = "suppressed"  # not wanted any more: its conversation ended, a newer one says the same


class Policy(StrEnum):
    """What a crash between claim and verdict means."""

    AT_MOST_ONCE = "at_most_once"  # never sent again
    AT_LEAST_ONCE = "at_least_once"  # sent again and marked: the receiver drops what it knows by the dedupe id


class Event(StrEnum):
    """What can happen to an obligation that is not settled."""

    CLAIM = "claim"
    ACCEPT = "accept"
    REFUSE = "refuse"
    NOT_ADMIT = "not admit"  # the receiver had no room: not an attempt
    FAIL = "fail"  # certainly not sent, may be tried again
    FAIL_LAST = "fail with the last attempt"
    FAIL_FOR_GOOD = "fail for good"
    LOSE = "lose its sender"  # at least once: crashed, ran out, or an error that says nothing
    LOSE_ONCE = "lose its only sender"  # the same at most once
    DROP = "drop"  # by a person
    SUPPRESS = "suppress"


TERMINAL = frozenset(State) - {State.PENDING, State.CLAIMED}

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.PENDING, Event.CLAIM): State.CLAIMED,
    (State.PENDING, Event.ACCEPT): State.ACCEPTED,
    (State.PENDING, Event.REFUSE): State.REFUSED,
    (State.PENDING, Event.NOT_ADMIT): State.PENDING,
    (State.PENDING, Event.FAIL): State.PENDING,
    (State.PENDING, Event.FAIL_LAST): State.DROPPED,
    (State.PENDING, Event.FAIL_FOR_GOOD): State.FAILED,
    (State.PENDING, Event.DROP): State.DROPPED,
    (State.PENDING, Event.SUPPRESS): State.SUPPRESSED,
    (State.CLAIMED, Event.ACCEPT): State.ACCEPTED,
    (State.CLAIMED, Event.REFUSE): State.REFUSED,
    (State.CLAIMED, Event.NOT_ADMIT): State.PENDING,
    (State.CLAIMED, Event.FAIL): State.PENDING,
    (State.CLAIMED, Event.FAIL_LAST): State.DROPPED,
    (State.CLAIMED, Event.FAIL_FOR_GOOD): State.FAILED,
    (State.CLAIMED, Event.LOSE): State.PENDING,
    (State.CLAIMED, Event.LOSE_ONCE): State.UNKNOWN,
    (State.CLAIMED, Event.SUPPRESS): State.SUPPRESSED,
}


def lost(policy: Policy) -> Event:
    """What the loss of a sender is to a row of this policy."""
    return Event.LOSE_ONCE if policy is Policy.AT_MOST_ONCE else Event.LOSE
