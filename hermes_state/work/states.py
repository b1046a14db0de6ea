"""The state machines of background work: processes and delegations.

Invariant: every pair of a state and an event that means something has its outcome in the tables here, and nothing else
decides; a pair that is not in them changes nothing. States that have ended have no events: what ended first counts, and
who says so later is given what stands.

Not for: who hears of it (the outbox knows), and reading or writing rows (see `background_rows`). A state "delivered"
was rejected: it would say a second time what the outbox says, and be wrong when a person sends a notice again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, overload


class Sort(StrEnum):
    """What background work is."""

    PROCESS = "process"
    DELEGATION = "delegation"


class ProcessState(StrEnum):
    """Where a background process stands. The last two are the end."""

    REGISTERED = "registered"  # about to be started, or started and not yet said so
    RUNNING = "running"
    EXITED = "exited"  # it ended; its exit code may be unknown
    LOST = "lost"  # nobody can tell any more what became of it


class ProcessEvent(StrEnum):
    """What can happen to a process."""

    START = "start"
    EXIT = "exit"
    LOSE = "lose"  # whoever watched over it is gone, and it cannot be asked for


class Reason(StrEnum):
    """Why a process has ended."""

    EXITED = "exited"
    KILLED = "killed"
    LOST = "lost"
    FAILED_START = "failed_start"
    ALREADY_EXITED = "already_exited"  # it was gone when somebody looked for it after a restart


class DelegationState(StrEnum):
    """Where a delegation stands. The last four are the end."""

    RUNNING = "running"
    STALLING = "stalling"  # nothing was heard of it for a while
    FINALIZING = "finalizing"  # its work is done, its result is being made
    COMPLETED = "completed"
    ERROR = "error"
    STALLED = "stalled"  # given up, since nothing was heard of it
    UNKNOWN = "unknown"  # whoever ran it is gone


class DelegationEvent(StrEnum):
    """What can happen to a delegation."""

    STALL = "stall"
    GO_ON = "go on"
    FINALIZE = "finalize"
    COMPLETE = "complete"
    FAIL = "fail"
    GIVE_UP = "give up"
    LOSE = "lose"


PROCESS: Mapping[tuple[ProcessState, ProcessEvent], ProcessState] = {
    (ProcessState.REGISTERED, ProcessEvent.START): ProcessState.RUNNING,
    # It may end before anybody has said that it runs.
    (ProcessState.REGISTERED, ProcessEvent.EXIT): ProcessState.EXITED,
    (ProcessState.REGISTERED, ProcessEvent.LOSE): ProcessState.LOST,
    (ProcessState.RUNNING, ProcessEvent.EXIT): ProcessState.EXITED,
    (ProcessState.RUNNING, ProcessEvent.LOSE): ProcessState.LOST,
}

DELEGATION: Mapping[tuple[DelegationState, DelegationEvent], DelegationState] = {
    (DelegationState.RUNNING, DelegationEvent.STALL): DelegationState.STALLING,
    (DelegationState.RUNNING, DelegationEvent.FINALIZE): DelegationState.FINALIZING,
    (DelegationState.RUNNING, DelegationEvent.COMPLETE): DelegationState.COMPLETED,
    (DelegationState.RUNNING, DelegationEvent.FAIL): DelegationState.ERROR,
    (DelegationState.RUNNING, DelegationEvent.LOSE): DelegationState.UNKNOWN,
    (DelegationState.STALLING, DelegationEvent.GO_ON): DelegationState.RUNNING,
    (DelegationState.STALLING, DelegationEvent.FINALIZE): DelegationState.FINALIZING,
    (DelegationState.STALLING, DelegationEvent.COMPLETE): DelegationState.COMPLETED,
    (DelegationState.STALLING, DelegationEvent.FAIL): DelegationState.ERROR,
    (DelegationState.STALLING, DelegationEvent.GIVE_UP): DelegationState.STALLED,
    (DelegationState.STALLING, DelegationEvent.LOSE): DelegationState.UNKNOWN,
    (DelegationState.FINALIZING, DelegationEvent.COMPLETE): DelegationState.COMPLETED,
    (DelegationState.FINALIZING, DelegationEvent.FAIL): DelegationState.ERROR,
    (DelegationState.FINALIZING, DelegationEvent.LOSE): DelegationState.UNKNOWN,
}

ENDED: frozenset[StrEnum] = frozenset({
    ProcessState.EXITED, ProcessState.LOST, DelegationState.COMPLETED, DelegationState.ERROR, DelegationState.STALLED,
    DelegationState.UNKNOWN,
})

_TABLES: Mapping[type, Mapping[Any, Any]] = {ProcessState: PROCESS, DelegationState: DELEGATION}
_EVENTS: Mapping[type, type] = {ProcessState: ProcessEvent, DelegationState: DelegationEvent}


@overload
def to_event(state: ProcessState, event: ProcessEvent) -> ProcessState | None: ...
@overload
def to_event(state: DelegationState, event: DelegationEvent) -> DelegationState | None: ...
def to_event(state: StrEnum, event: StrEnum) -> StrEnum | None:
    """The state after an event, None when the event changes nothing in this state. Pure; the tables here decide."""
    # By type: "running" is a state of both machines.
    found: StrEnum | None = _TABLES[type(state)].get((state, event)) if type(event) is _EVENTS[type(state)] else None
    return found


class Mode(StrEnum):
    """How the end of background work is told."""

    TURN = "turn"  # it begins a turn of the conversation that it was begun in
    RECEIPT = "receipt"  # a person reads it; no turn
    DISPLAY = "display"  # a client of the API server shows it when it asks; never a turn
    NOBODY = "nobody"


# The kind of the obligation in the outbox that tells of the end, by mode.
KIND_OF_END: Mapping[Mode, str] = {
    Mode.TURN: "completion", Mode.RECEIPT: "receipt", Mode.DISPLAY: "display",
}
# And of what happens before it: these have ids of their own and never stand for the end.
WATCH, PROGRESS = "watch", "progress"
