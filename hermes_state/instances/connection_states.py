"""How an instance is connected, what may happen to that, and the one word that people see.

Invariant: the tables here decide alone. What concerns one connection (its end, its counts) happens only to that one:
an event of an earlier connection is `None` for the present one, which is decided where its generation is compared.

Not for: rows; all of this is in memory and gone with the server. A stored status was rejected: after a crash it would
say `connected` of nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class LinkState(StrEnum):
    """Where an instance stands with this server."""

    OFFLINE = "offline"
    CONNECTED = "connected"
    UPGRADE_REQUIRED = "upgrade-required"  # it came, authenticated, with no version in common


class LinkEvent(StrEnum):
    """What can happen."""

    ACCEPT = "accept"  # a connection, in the place of an earlier one
    UPGRADE = "upgrade"  # a plugin with no version in common was refused
    COUNT = "count"  # the connection says how many sessions it has
    END = "end"  # the connection ended
    CLEAR = "clear"  # revoked, enrolled again, removed


TRANSITIONS: Mapping[tuple[LinkState, LinkEvent], LinkState] = {
    (LinkState.OFFLINE, LinkEvent.ACCEPT): LinkState.CONNECTED,
    (LinkState.OFFLINE, LinkEvent.UPGRADE): LinkState.UPGRADE_REQUIRED,
    (LinkState.OFFLINE, LinkEvent.CLEAR): LinkState.OFFLINE,
    (LinkState.CONNECTED, LinkEvent.ACCEPT): LinkState.CONNECTED,
    (LinkState.CONNECTED, LinkEvent.UPGRADE): LinkState.UPGRADE_REQUIRED,
    (LinkState.CONNECTED, LinkEvent.COUNT): LinkState.CONNECTED,
    (LinkState.CONNECTED, LinkEvent.END): LinkState.OFFLINE,
    (LinkState.CONNECTED, LinkEvent.CLEAR): LinkState.OFFLINE,
    (LinkState.UPGRADE_REQUIRED, LinkEvent.ACCEPT): LinkState.CONNECTED,
    (LinkState.UPGRADE_REQUIRED, LinkEvent.UPGRADE): LinkState.UPGRADE_REQUIRED,
    (LinkState.UPGRADE_REQUIRED, LinkEvent.CLEAR): LinkState.OFFLINE,
}


def to_event(state: LinkState, event: LinkEvent) -> LinkState | None:
    """The state that follows, or None where the event comes too late to mean anything."""
    return TRANSITIONS.get((state, event))


class PublicStatus(StrEnum):
    """What `hermes instances` and the picker show, the strongest first."""

    REVOKED = "revoked"
    UPGRADE_REQUIRED = "upgrade-required"
    CONNECTED = "connected"
    CONNECTING = "connecting"
    OFFLINE = "offline"


def public_status(state: LinkState, *, revoked: bool, connecting: bool) -> PublicStatus:
    """The one word: revoked > upgrade-required > connected > connecting > offline."""
    if revoked:
        return PublicStatus.REVOKED
    if state is LinkState.OFFLINE:
        return PublicStatus.CONNECTING if connecting else PublicStatus.OFFLINE
    return PublicStatus(state.value)
