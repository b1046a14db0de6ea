"""The state machines of a slot, a run and an incident: what may happen to each, and what follows.

Invariant: every pair of a state that is not terminal and an event stands in a table here or is refused, and nothing
else decides; terminal states have no events. What had begun when its owner died is never `due` again by itself: only
`REPEAT` does that, which is for jobs that declare their effect idempotent.

Not for: reading or writing rows. One machine for a slot and its runs was rejected: a slot has several runs, and a run
by hand has no slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SlotState(StrEnum):
    """What became of a slot. All but the first three are terminal."""

    DUE = "due"  # recorded, nobody has it
    CLAIMED = "claimed"  # one process is about to run it; nothing has happened outside
    RUNNING = "running"  # its effect may have begun
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    MISSED = "missed"  # never run: it was too late, or another one stands for it
    SKIPPED = "skipped"  # never run: paused, overlapping, or not wanted any more
    INTERRUPTED = "interrupted"  # its owner died after the start, or said so: it had its effect, or not, or half of it
    UNKNOWN = "unknown"  # imported


class SlotEvent(StrEnum):
    """What can happen to a slot."""

    CLAIM = "claim"
    START = "start"
    GIVE_BACK = "give back"  # the claim ends before the start
    REPEAT = "repeat"  # the owner died after the start, and its effect is idempotent
    SUCCEED = "succeed"
    FAIL = "fail"
    INTERRUPT = "interrupt"
    MISS = "miss"
    SKIP = "skip"


SLOT: Mapping[tuple[SlotState, SlotEvent], SlotState] = {
    (SlotState.DUE, SlotEvent.CLAIM): SlotState.CLAIMED,
    (SlotState.DUE, SlotEvent.MISS): SlotState.MISSED,
    (SlotState.DUE, SlotEvent.SKIP): SlotState.SKIPPED,
    (SlotState.DUE, SlotEvent.INTERRUPT): SlotState.INTERRUPTED,  # it had begun, and is not repeated after all
    (SlotState.CLAIMED, SlotEvent.START): SlotState.RUNNING,
    (SlotState.CLAIMED, SlotEvent.GIVE_BACK): SlotState.DUE,
    (SlotState.CLAIMED, SlotEvent.FAIL): SlotState.FAILED,  # what it needs is not there: it was not started
    (SlotState.CLAIMED, SlotEvent.SKIP): SlotState.SKIPPED,  # its job was removed
    (SlotState.CLAIMED, SlotEvent.INTERRUPT): SlotState.INTERRUPTED,  # the same, of one that had begun before
    (SlotState.RUNNING, SlotEvent.SUCCEED): SlotState.SUCCEEDED,
    (SlotState.RUNNING, SlotEvent.FAIL): SlotState.FAILED,
    (SlotState.RUNNING, SlotEvent.INTERRUPT): SlotState.INTERRUPTED,
    (SlotState.RUNNING, SlotEvent.REPEAT): SlotState.DUE,
}
OPEN_SLOTS = frozenset({SlotState.DUE, SlotState.CLAIMED, SlotState.RUNNING})


class RunState(StrEnum):
    """Where a run stands. All but the first two are terminal."""

    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    RELEASED = "released"  # it ended before its start
    UNKNOWN = "unknown"  # imported


class RunEvent(StrEnum):
    """What can happen to a run."""

    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    INTERRUPT = "interrupt"
    RELEASE = "release"


RUN: Mapping[tuple[RunState, RunEvent], RunState] = {
    (RunState.CLAIMED, RunEvent.START): RunState.RUNNING,
    (RunState.CLAIMED, RunEvent.FAIL): RunState.FAILED,
    (RunState.CLAIMED, RunEvent.RELEASE): RunState.RELEASED,
    (RunState.RUNNING, RunEvent.SUCCEED): RunState.SUCCEEDED,
    (RunState.RUNNING, RunEvent.FAIL): RunState.FAILED,
    (RunState.RUNNING, RunEvent.INTERRUPT): RunState.INTERRUPTED,
}
OPEN_RUNS = frozenset({RunState.CLAIMED, RunState.RUNNING})
# What an event of a run is for its slot; RELEASE and INTERRUPT may be another one, see `runs/ending.py`.
SLOT_EVENT: Mapping[RunEvent, SlotEvent] = {
    RunEvent.START: SlotEvent.START,
    RunEvent.SUCCEED: SlotEvent.SUCCEED,
    RunEvent.FAIL: SlotEvent.FAIL,
    RunEvent.INTERRUPT: SlotEvent.INTERRUPT,
    RunEvent.RELEASE: SlotEvent.GIVE_BACK,
}


class IncidentState(StrEnum):
    """What people know of a failure."""

    DETECTED = "detected"  # nobody was told yet
    ALERTED = "alerted"
    RESOLVED = "resolved"  # its job succeeded since
    CLOSED = "closed"  # a person wants to hear no more of it, ever


class IncidentEvent(StrEnum):
    """What can happen to an incident."""

    REPEAT = "repeat"  # the same error again
    ALERT = "alert"
    SUCCEED = "succeed"  # its job succeeded
    CLOSE = "close"


INCIDENT: Mapping[tuple[IncidentState, IncidentEvent], IncidentState] = {
    (IncidentState.DETECTED, IncidentEvent.REPEAT): IncidentState.DETECTED,
    (IncidentState.DETECTED, IncidentEvent.ALERT): IncidentState.ALERTED,
    (IncidentState.DETECTED, IncidentEvent.SUCCEED): IncidentState.RESOLVED,
    (IncidentState.DETECTED, IncidentEvent.CLOSE): IncidentState.CLOSED,
    (IncidentState.ALERTED, IncidentEvent.REPEAT): IncidentState.ALERTED,
    (IncidentState.ALERTED, IncidentEvent.ALERT): IncidentState.ALERTED,  # again, after a while
    (IncidentState.ALERTED, IncidentEvent.SUCCEED): IncidentState.RESOLVED,
    (IncidentState.ALERTED, IncidentEvent.CLOSE): IncidentState.CLOSED,
    (IncidentState.RESOLVED, IncidentEvent.REPEAT): IncidentState.DETECTED,  # the next generation
    (IncidentState.RESOLVED, IncidentEvent.CLOSE): IncidentState.CLOSED,
}


class JobState(StrEnum):
    """How a job stands."""

    SCHEDULED = "scheduled"
    PAUSED = "paused"
    COMPLETED = "completed"  # no slot is left, or its repeats are used up
    ERROR = "error"  # its next slot cannot be told: it is tried again, never switched off
