"""What can be wrong with the host of one OS user: whose it is, and who owns it.

Invariant: see the package. Not for: verdicts about a start, which are values (`hermes_state.host`).
"""

from __future__ import annotations

from hermes_state.errors.base import Refused, StateError


class HostNotOurs(Refused):
    """The host's folder or a file in it belongs to another user. Facts: `path`, `owner_uid`."""

    code = "host_not_ours"


class HostLost(StateError):
    """This process no longer owns the host, or its run is over: stop. Facts: `path`, `fence`, `current`."""

    code = "host_lost"
