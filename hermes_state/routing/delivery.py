"""Which connection may take an event in, and which may answer: a table over an identity or a row and what is up.

Invariant: pure, closed and failing closed. Taking in needs the connection that received the event; what was restored
from a row was received by nobody now, so there is none. Answering goes through the bot that received it, and where a
row does not say which that was, through the only bot of (platform, runtime profile). Two that would do are none. There
is no other way, and no default.

    what is known                                   intake                        delivery
    live: the connection is up                      it                            it
    live: it is gone, its bot is up once            that                          that
    live: its bot is down, or up twice              none                          none
    restored, the row names the bot                 none                          that bot, up once, or none
    restored, the row names no bot                  none                          the one bot of (platform, runtime),
                                                                                  or none

Not for: sending. Trying the default bot when the right one is down was rejected: somebody else answers then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hermes_state.routing.identity import Inbound, Transport

if TYPE_CHECKING:
    from hermes_state.routing.records import Route


class Because(StrEnum):
    """Why a connection was chosen, or none."""

    RECEIVER = "it received the event"
    RECONNECTED = "it is the bot that received the event, connected anew"
    STORED_BOT = "it is the bot that the row names"
    ONLY_OWNER = "it is the only bot of the platform and the profile that the conversation runs in"
    NOT_RECEIVED = "nothing was received: this was restored from a row"
    BOT_DOWN = "the bot that received it is not connected"
    BOT_TWICE = "the bot that received it is connected more than once"
    NO_OWNER = "the profile that the conversation runs in has no bot of the platform that is connected"
    OWNERS = "the profile that the conversation runs in has more than one bot of the platform"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The connection, or None, and why."""

    transport: Transport | None
    because: Because


def intake(event: Inbound, live: Iterable[Transport]) -> Choice:
    """The connection whose rules decide whether an event is taken in. `live`: what is connected now."""
    identity = event.identity
    if identity.transport is None:
        return _none(Because.NOT_RECEIVED)
    return _received(event, list(live))


def delivery(of: Inbound | Route, live: Iterable[Transport]) -> Choice:
    """The connection that answers an event, or a conversation as its row has it. `live`: what is connected now."""
    up = list(live)
    if isinstance(of, Inbound):
        if of.identity.transport is not None:
            return _received(of, up)
        return _stored(of.source.platform, of.identity.transport_profile, up)
    if of.transport_profile is not None:
        return _stored(of.platform, of.transport_profile, up)
    return _only(
        of.platform, of.runtime_profile, up, found=Because.ONLY_OWNER, gone=Because.NO_OWNER, many=Because.OWNERS
    )


def _received(event: Inbound, up: list[Transport]) -> Choice:
    reference = event.identity.transport
    receiver = None if reference is None else reference()
    if any(one is receiver for one in up):
        return Choice(transport=receiver, because=Because.RECEIVER)
    return _only(
        event.source.platform, event.identity.transport_profile, up,
        found=Because.RECONNECTED, gone=Because.BOT_DOWN, many=Because.BOT_TWICE,
    )


def _stored(platform: str, profile: str, up: list[Transport]) -> Choice:
    return _only(platform, profile, up, found=Because.STORED_BOT, gone=Because.BOT_DOWN, many=Because.BOT_TWICE)


def _only(
    platform: str, profile: str, up: list[Transport], *, found: Because, gone: Because, many: Because
) -> Choice:
    them = [one for one in up if (one.platform, one.profile) == (platform, profile)]
    if len(them) == 1:
        return Choice(transport=them[0], because=found)
    return _none(many if them else gone)


def _none(because: Because) -> Choice:
    return Choice(transport=None, because=because)
