"""What connections of gateway instances refuse by name, and why requests on them got no answer.

Invariant: see the package. Not for: the registry of instances and their credentials.
"""

from __future__ import annotations

from hermes_state.errors.base import Refused, StateError


class VersionIncompatible(Refused):
    """The plugin and the server have no protocol version in common.

    Facts: `instance_id`, `ours` and `theirs` (lowest, highest), `displaced` (generation of the instance's connection
    that ended for it, as text, or None).
    """

    code = "version_incompatible"


class FrameRefused(Refused):
    """A frame is of another protocol version than its place. Facts: `type`, `version`, `wanted`."""

    code = "frame_refused"


class CursorVersionRefused(Refused):
    """A kept cursor is of a version that this server does not speak. Facts: `path`, `instance_id`, `name`, `version`,
    `ours` (lowest, highest)."""

    code = "cursor_version_refused"


class StaleGeneration(StateError):
    """Something names a connection that is not the instance's any more.

    Facts: `path`, `instance_id`, `generation`, `current` (both as text; None when it is not connected).
    """

    code = "stale_generation"


class ServerReplaced(StateError):
    """Another gateway server was started on the store; this one accepts nothing. Facts: `path`, `epoch`, `current`."""

    code = "server_replaced"


class GatewayRunning(StateError):
    """A gateway server runs on the store, and this start was not to take it over.

    Facts: `path`, `epoch`, `pid`, `host`, `since` (epoch seconds UTC, or None).
    """

    code = "gateway_running"
    exit_code = 75


class NotConnected(StateError):
    """The gateway that serves a thread is not connected to this server. Facts: `path`, `instance_id`, `thread_id`."""

    code = "not_connected"


class Unanswered(StateError):
    """A request got no answer. Its effect is not known. Facts: `request_id`, `owner`, `method`."""

    code = "unanswered"


class RequestTimedOut(Unanswered):
    """Its deadline passed. Facts: those of `Unanswered`, `deadline_seconds`."""

    code = "request_timed_out"


class RequestAbandoned(Unanswered):
    """Nobody waited for it any more. Facts: those of `Unanswered`, `age_seconds`."""

    code = "request_abandoned"


class ConnectionLost(Unanswered):
    """Its connection ended first. Facts: those of `Unanswered`, `close_code`, `reason`."""

    code = "connection_lost"
