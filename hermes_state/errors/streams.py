"""What streamed replies and logins refuse by name.

Invariant: see the package; no error here carries a code, a link or a token. Not for: leases, whose errors are those of
every lease, and obligations, whose errors are the outbox's.
"""

from __future__ import annotations

from hermes_state.errors.base import NotFound, Refused


class NotAnExtension(Refused):
    """The caller's fault: a frame of a streamed reply does not begin with the one before it. Facts: `at`, `length`."""

    code = "not_an_extension"


class ReplyNotFound(NotFound):
    """No reply of that turn was begun. Facts: `path`, `turn_id`."""

    code = "reply_not_found"


class ReplyEnded(Refused):
    """A reply is sealed, or was abandoned: it is not streamed or begun any more. Facts: `path`, `turn_id`, `state`."""

    code = "reply_ended"


class LoginRefused(Refused):
    """No login is begun here and now. Facts: `path`, `reason` (see `hermes_state.work.login_states.Refusal`)."""

    code = "login_refused"


class LoginNotFound(NotFound):
    """No login attempt of that id. Facts: `path`, `attempt_id`."""

    code = "login_not_found"


class LoginEnded(Refused):
    """A login attempt is not at a place where that can happen. Facts: `path`, `attempt_id`, `state`, `event`."""

    code = "login_ended"
