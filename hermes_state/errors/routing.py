"""What routing refuses by name: homes, routes, keys and pairing.

Invariant: see the package; no error here carries a credential or a pairing code. Not for: leases of turns and tokens,
whose errors are those of every lease.
"""

from __future__ import annotations

from hermes_state.errors.base import NotFound, Refused, StateError


class WrongHome(Refused):
    """The caller's fault: a write for one home reached the store of another. Facts: `path`, `home`, `here`."""

    code = "wrong_home"


class HomeRemoved(Refused):
    """A late write for a home that was removed; the home is not made again. Facts: `path`, `home`, `since` or None."""

    code = "home_removed"


class RouteNotFound(NotFound):
    """No routing entry of that key. Facts: `path`, `session_key`."""

    code = "route_not_found"


class RouteMoved(StateError):
    """A routing entry changed since the caller read it: nothing was written. Facts: `path`, `session_key`, `route`."""

    code = "route_moved"


class RouteStopped(Refused):
    """The routing entry is suspended or expired: its chat goes on only in a new session.

    Facts: `path`, `session_key`, `state`, `act`.
    """

    code = "route_stopped"


class KeyCollision(Refused):
    """Two different chats would have one session key. Facts: `path`, `session_key`."""

    code = "key_collision"


class PairingRefused(Refused):
    """No code is given out, or none is looked at, for now. Facts: `path`, `platform`, `reason`, `retry_at`."""

    code = "pairing_refused"
