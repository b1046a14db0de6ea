"""The closed words of the host's rows, and what a run of a gateway may go through.

Invariant: every pair of a state and an event that is allowed is in the table here; what ended never changes. The
same words stand in the CHECKs of the schema.

Not for: verdicts about a start (see `decision`). A free text for the state was rejected: two writers spell it twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Kind(StrEnum):
    """What a process is. Only a gateway may own the host."""

    GATEWAY = "gateway"
    SERVE = "serve"  # a control plane, such as the Desktop app's child


class RunState(StrEnum):
    """How far a run is."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"  # finishes what it has, takes nothing new
    STOPPING = "stopping"
    STOPPED = "stopped"  # terminal
    STARTUP_FAILED = "startup_failed"  # terminal


TERMINAL = frozenset({RunState.STOPPED, RunState.STARTUP_FAILED})
LEAVING = frozenset({RunState.DRAINING, RunState.STOPPING, *TERMINAL})

# From each state the ones that may follow; staying is always allowed but in a terminal one.
TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.STARTING: frozenset(set(RunState) - {RunState.STARTING}),
    RunState.RUNNING: frozenset({RunState.DRAINING, RunState.STOPPING, RunState.STOPPED}),
    RunState.DRAINING: frozenset({RunState.RUNNING, RunState.STOPPING, RunState.STOPPED}),
    RunState.STOPPING: frozenset({RunState.STOPPED}),
    RunState.STOPPED: frozenset(),
    RunState.STARTUP_FAILED: frozenset(),
}


class PlatformState(StrEnum):
    """How one platform of one home is connected."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RETRYING = "retrying"
    DISCONNECTED = "disconnected"
    FAILED = "failed"  # not tried again by itself
    UNSERVED = "unserved"  # this run never connects it; `needs_attention` says why


class SessionStore(StrEnum):
    """What a run says of the store of a home that it serves."""

    UNKNOWN = "unknown"  # it has not said
    OK = "ok"
    RETRYING = "retrying"  # it did not open, and is tried again
    UNAVAILABLE = "unavailable"  # it does not open, and is not tried again by itself


class MarkerKind(StrEnum):
    """What one process tells another."""

    TAKEOVER = "takeover"  # the target ends because another one takes its place
    PLANNED_STOP = "planned_stop"  # the target ends because a person wants it
    DRAIN = "drain"  # the target finishes what it has and takes nothing new
    RESUME = "resume"  # the target takes new work again


class MarkerEnd(StrEnum):
    """How a marker ended."""

    CONSUMED = "consumed"  # its target acted on it
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    STALE = "stale"  # the machine started anew since
