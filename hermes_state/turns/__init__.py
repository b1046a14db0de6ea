"""What a reconnect must find again: turns, questions to people, stops, and what was delivered home."""

from __future__ import annotations

from hermes_state.turns.frames import Admission, Frame, FrameKind
from hermes_state.turns.records import HomeDelivery, Interaction, Item, Stop, Thread, Turn, transport_of
from hermes_state.turns.recovery import Cancellation, Ensure, RecoveryPlan, Settlement, apply_recovery, plan_recovery
from hermes_state.turns.states import (
    Decision,
    InteractionEvent,
    InteractionState,
    StopCause,
    StopEvent,
    StopState,
    ThreadEvent,
    ThreadStatus,
    TurnEvent,
    TurnState,
    to_event,
)

__all__ = [
    "Admission", "Cancellation", "Decision", "Ensure", "Frame", "FrameKind", "HomeDelivery", "Interaction",
    "InteractionEvent", "InteractionState", "Item", "RecoveryPlan", "Settlement", "Stop", "StopCause", "StopEvent",
    "StopState", "Thread", "ThreadEvent", "ThreadStatus", "Turn", "TurnEvent", "TurnState", "apply_recovery",
    "plan_recovery", "to_event", "transport_of",
]
