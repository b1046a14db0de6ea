"""What can be wrong with what a caller or a gateway asks of threads, turns, interactions and deliveries.

Invariant: see the package. Not for: instances, their credentials and connections.
"""

from __future__ import annotations

from hermes_state.errors.base import NotFound, Refused, StateError


class ThreadNotFound(NotFound):
    """No gateway serves the thread. The caller's fault. Facts: `path`, `thread_id`."""

    code = "thread_not_found"


class Unsupported(Refused):
    """The provider of the thread cannot do that, ever. Facts: `path`, `thread_id`, `operation`."""

    code = "unsupported_operation"


class TurnActive(Refused):
    """The thread has an active turn already. Facts: `path`, `thread_id`, `turn_id`, `state`."""

    code = "turn_active"


class TurnNotActive(Refused):
    """The turn is not the active one of its thread. Facts: `path`, `thread_id`, `turn_id`."""

    code = "turn_not_active"


class ThreadStopped(Refused):
    """The session of the thread is stopped or is being stopped. Facts: `path`, `thread_id`, `status`."""

    code = "thread_stopped"


class RequestNotFound(NotFound):
    """No open interaction has that id: never asked, or settled before. Facts: `path`, `id`, `state`, `settled_at`."""

    code = "request_not_found"


class UnsupportedMessage(Refused):
    """A gateway sent a message of a type that is none. Its fault, or that of a version. Facts: `message_type`."""

    code = "unsupported_message"


class QueueUnreadable(StateError):
    """A queue of home deliveries is there and cannot be read whole; it was left as it is. Facts: `path`, `line`."""

    code = "queue_unreadable"
