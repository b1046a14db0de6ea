"""What the registry of gateway instances, enrollment and credentials refuse by name.

Invariant: see the package; no error here carries a token or a credential. Not for: connections and turns.
"""

from __future__ import annotations

from hermes_state.errors.base import InvalidInput, NotFound, Refused
from hermes_state.errors.conversation import Entombed


class InstanceNotFound(NotFound):
    """No instance of that id is registered. Facts: `path`, `instance_id`."""

    code = "instance_not_found"


class InstanceExists(Refused):
    """An instance of that id is registered already. Facts: `path`, `instance_id`, `state`."""

    code = "instance_exists"


class InstanceNotEnrolled(Refused):
    """The instance was never enrolled, so it has nothing yet that this needs. Facts: `path`, `instance_id`."""

    code = "instance_not_enrolled"


class InstanceRevoked(Refused):
    """The instance is revoked: it may not connect until it is enrolled again. Facts: `path`, `instance_id`, `since`."""

    code = "instance_revoked"


class InstanceNotRevoked(Refused):
    """Only what is revoked, or was never enrolled, can be removed. Facts: `path`, `instance_id`, `state`."""

    code = "instance_not_revoked"


class InstanceRemoved(Entombed):
    """The instance was removed; its id may not come back yet. Facts: those of `Entombed`, `instance_id`."""

    code = "instance_removed"


class NicknameConflict(Refused):
    """Another living instance has the nickname.

    Facts: `path`, `nickname`, `instance_id` (of the other one), `since` (when that one was added).
    """

    code = "nickname_conflict"


class InvalidConnectorUrl(InvalidInput):
    """The URL of a connector cannot be one. Facts: `argument`."""

    code = "invalid_connector_url"


class EnrollmentExpired(Refused):
    """The token opens nothing: unknown, used, superseded, or too old; which of them is not told. Facts: `path`."""

    code = "enrollment_expired"


class InvalidAuthentication(Refused):
    """The credential is not that of the instance now. Facts: `path`, `instance_id`."""

    code = "invalid_authentication"


class ThreadBound(Refused):
    """The thread is bound to another instance or session. Facts: `path`, `thread_id`, `instance_id`, `since`."""

    code = "thread_bound"
