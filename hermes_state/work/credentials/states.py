"""The state machines of a credential: its status, and what may be done about its token.

Invariant: every pair of a status and an event has its outcome in a table here, and every situation of a rotation has
its one step in `decide`; both are pure. A token that works once is sent only when nothing says that it was sent before:
after a crash the marker says so until the secret file shows what came back.

Not for: reading rows and files (see `rows`, `rotation`). Sending the token again after a crash was rejected: a server
that burns on reuse ends the whole login then, for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Whether a credential can be used."""

    OK = "ok"
    EXHAUSTED = "exhausted"  # refused or used up: not before its `reset_at`
    DEAD = "dead"  # the provider has ended the grant; only a new login changes that


class Event(StrEnum):
    """What happens to a status."""

    WORK = "work"  # a request succeeded
    LIMIT = "limit"  # refused, used up, or no new token for now
    END = "end"  # the provider says that the grant is over
    RENEW = "renew"  # there is a new grant: a rotation, a login here, or another program's


STATUSES: Mapping[tuple[Status, Event], Status] = {
    (Status.OK, Event.WORK): Status.OK,
    (Status.OK, Event.LIMIT): Status.EXHAUSTED,
    (Status.OK, Event.END): Status.DEAD,
    (Status.OK, Event.RENEW): Status.OK,
    (Status.EXHAUSTED, Event.WORK): Status.OK,
    (Status.EXHAUSTED, Event.LIMIT): Status.EXHAUSTED,
    (Status.EXHAUSTED, Event.END): Status.DEAD,
    (Status.EXHAUSTED, Event.RENEW): Status.OK,
    (Status.DEAD, Event.RENEW): Status.OK,
}



def after(status: Status, event: Event) -> Status:
    """The status that follows; what the table does not have changes nothing: a dead grant only ends by a new one."""
    return STATUSES.get((status, event), status)


# Seconds for which a credential rests after a refusal, unless the provider says when; hermes-agent's (0.19.0).
UNAUTHORISED_SECONDS = 300.0  # after 401
LIMITED_SECONDS = 3600.0  # after 429 and everything else
# A token that ends within this many seconds is due: renewed before it is used.
DUE_SECONDS = 120.0
# One that ends within this many seconds is not used at all.
LEAST_SECONDS = 10.0
# Until it is tried again, after an exchange that certainly sent nothing: a name not found, a line that is down.
UNSENT_SECONDS = 30.0
# A dead credential that a person added is forgotten after this many seconds.
DEAD_KEPT_SECONDS = 86_400.0


def rest_until(at: float, code: str | int | None, reset_at: float | None) -> float:
    """Until when a credential rests that was refused with `code` (an HTTP status) at `at`; the provider's word wins."""
    if reset_at is not None and reset_at > at:
        return reset_at
    return at + (UNAUTHORISED_SECONDS if str(code) == "401" else LIMITED_SECONDS)


def renew_after(at: float, expires_at: float | None) -> float | None:
    """When a token that was given at `at` is to be renewed at the earliest; None: when it is due.

    One that lasts so short that it would be due at once, or soon, is used for half of its life first.
    """
    if expires_at is None or not 0 < expires_at - at <= 2 * DUE_SECONDS:
        return None
    return at + (expires_at - at) / 2


class Rotation(StrEnum):
    """What is known of the token that gets the next one."""

    WHOLE = "whole"  # nobody is sending it
    ROTATING = "rotating"  # it is being sent, or its sender died
    MAY_BE_LOST = "grant_may_be_lost"  # its sender is gone, and what came back is not known


class Held(StrEnum):
    """What the secret file has, beside what the row says of it."""

    NOTHING = "nothing"  # no file, or no token in it
    SAME = "same"  # what the row knows
    NEWER = "newer"  # something else: another process or program has written it
    SPENT = "spent"  # a token that the row knows to be spent: an old copy of the file


class Step(StrEnum):
    """What is to be done now."""

    SERVE = "serve"  # the token in the file is good
    ADOPT = "adopt"  # take what the file has into the row, and look again
    POST = "post"  # get a new token
    LOSE = "lose"  # write into the row that the grant may be lost
    LOST = "lost"  # it says so already: GrantMayBeLost
    DEAD = "dead"  # CredentialDead
    COOLING = "cooling"  # CredentialCooling
    MISSING = "missing"  # SecretMissing
    EXPIRED = "expired"  # CredentialExpired


# Steps that change the row or ask the provider: only with the lease.
WITH_LEASE = frozenset({Step.ADOPT, Step.POST, Step.LOSE})


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a process sees when it wants a token."""

    held: Held
    status: Status
    cooling: bool  # exhausted, and its time is not over
    rotation: Rotation
    usable: bool  # there is an access token that is neither due nor refused by the server
    renewable: bool  # there is a refresh token


def decide(seen: Situation) -> Step:
    """The one step that follows. With the lease, ROTATING means that the one who sent the token is gone."""
    if seen.held is Held.NOTHING:
        return Step.MISSING
    if seen.held is Held.SPENT:
        return Step.LOST
    if seen.held is Held.NEWER:
        return Step.ADOPT
    if seen.status is Status.DEAD:
        return Step.DEAD
    if seen.rotation is Rotation.MAY_BE_LOST and not seen.usable:
        return Step.LOST  # no rest brings it back
    if seen.status is Status.EXHAUSTED and seen.cooling:
        return Step.COOLING
    if seen.usable:
        return Step.SERVE
    if seen.rotation is Rotation.ROTATING:
        return Step.LOSE
    return Step.POST if seen.renewable else Step.EXPIRED
