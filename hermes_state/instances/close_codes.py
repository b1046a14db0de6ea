"""With which code a socket is closed, and what its plugin does then: a table.

Invariant: every reason for which the server closes a socket has one code here, and every code says whether the plugin
may connect again by itself. What a plugin of another release does not know it treats as a dropped socket.

Not for: closing sockets. One code for everything was rejected: a replaced plugin would connect again and replace the
one that replaced it, for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class CloseCode(IntEnum):
    """Codes of the range that RFC 6455 leaves to applications."""

    REPLACED = 4001  # another connection of the same instance took over, or it was enrolled again
    NO_HELLO = 4002  # the first frame was not a hello
    REFUSED = 4003  # revoked, removed, or not authenticated
    UPGRADE = 4004  # no protocol version in common
    NOT_ANSWERING = 4008  # three probes in a row had no answer


@dataclass(frozen=True, kw_only=True)
class Closing:
    """What one code means."""

    code: CloseCode
    reason: str  # sent with the code; at most 123 bytes, says nothing secret
    reconnects: bool  # whether the plugin connects again without a person


CLOSINGS: Mapping[CloseCode, Closing] = {
    one.code: one
    for one in (
        Closing(code=CloseCode.REPLACED, reason="replaced by another connection", reconnects=False),
        Closing(code=CloseCode.NO_HELLO, reason="the first frame has to be a hello", reconnects=True),
        Closing(code=CloseCode.REFUSED, reason="this instance is not admitted", reconnects=False),
        Closing(code=CloseCode.UPGRADE, reason="no protocol version in common", reconnects=False),
        Closing(code=CloseCode.NOT_ANSWERING, reason="probes were not answered", reconnects=True),
    )
}


def closing(code: int) -> Closing | None:
    """What a code means, or None for one that no server of this library sends (a transport's own, or a newer one's)."""
    try:
        return CLOSINGS[CloseCode(code)]
    except ValueError:
        return None
