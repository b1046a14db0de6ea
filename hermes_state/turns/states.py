"""What may happen to a turn, a thread, an interaction and a stop, and what follows: four tables.

Invariant: every state machine is one table here, and `to_event` alone reads it: an event that a state has no row for is
rejected (None), never guessed. Terminal states have no rows, so a second end of a turn changes nothing. A turn that is
being stopped ends `stopped` whatever the gateway says of it; a thread with a stop pending never ends in `error`.

Not for: rows (see `turns`, `interactions`, `stops`) or what a gateway's frames mean (see `frames`). One branch for
"turn started" and "turn ended" with a condition inside was rejected: it stored `running` without a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, overload


class TurnState(StrEnum):
    """Where a turn stands. All but the first three are terminal."""

    STARTING = "starting"  # reserved here, not known to be announced
    RUNNING = "running"  # the gateway works on it
    STOPPING = "stopping"  # a stop is owed to the gateway
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"  # the gateway gave it up, with a reason
    STOPPED = "stopped"  # on request
    WITHDRAWN = "withdrawn"  # its announcement failed: the reservation was rolled back


class TurnEvent(StrEnum):
    """What can happen to a turn."""

    ANNOUNCE = "announce"  # the gateway was told, or says that it began
    WITHDRAW = "withdraw"  # the announcement failed for certain
    COMPLETE = "complete"
    FAIL = "fail"
    ABORT = "abort"
    STOP = "stop"  # asked for here
    STOP_DONE = "stop done"  # acknowledged, or not needed any more
    EXIT = "exit"  # its session ended in order, unasked
    CRASH = "crash"  # its session ended otherwise
    PRESENT = "present"  # the gateway's answer to an ensure names it
    ABSENT = "absent"  # the gateway's answer to an ensure does not name it


class ThreadStatus(StrEnum):
    """How a thread stands with its gateway."""

    READY = "ready"
    RUNNING = "running"  # exactly when it has the id of an active turn
    ERROR = "error"  # its session crashed
    STOP_PENDING = "stop_pending"  # a stop is owed
    STOPPED = "stopped"  # its session ended in order


class ThreadEvent(StrEnum):
    """What can happen to a thread."""

    TURN_RUNS = "turn runs"
    TURN_ENDS = "turn ends"
    STOP = "stop"
    STOP_ACKED = "stop acknowledged"
    STOP_CANCELLED = "stop cancelled"
    EXIT = "exit"
    CRASH = "crash"
    ENSURED = "ensured"  # the gateway has its session


class InteractionState(StrEnum):
    """Where a question of a gateway stands. All but the first are terminal."""

    OPEN = "open"
    RESOLVED = "resolved"  # with a decision or answers
    CANCELLED = "cancelled"  # without one: nobody waits for it any more
    EXPIRED = "expired"  # without one: its time ran out


class InteractionEvent(StrEnum):
    """What can happen to a question."""

    ANSWER = "answer"
    SOCKET_DROPPED = "socket dropped"
    PLUGIN_RESTARTED = "plugin restarted"
    TURN_ENDED = "turn ended"
    WITHDRAWN = "withdrawn"  # by the gateway
    DEADLINE = "deadline"


class StopState(StrEnum):
    """Where a stop stands. All but the first are terminal."""

    PENDING = "pending"  # owed
    ACKED = "acked"  # the session is ended
    CANCELLED = "cancelled"  # a later ensure took the thread over, or its instance was removed


class StopEvent(StrEnum):
    """What can happen to a stop."""

    REPEAT = "repeat"  # asked for again
    ACK = "ack"
    REFUSED = "refused"  # the gateway does not know the session: there is nothing to stop
    EXITED = "exited"  # the session ended before the stop came
    ENSURED_LATER = "ensured later"
    REMOVED = "removed"  # its instance was: nobody can be told any more


TURN: Mapping[tuple[TurnState, TurnEvent], TurnState] = {
    (TurnState.STARTING, TurnEvent.ANNOUNCE): TurnState.RUNNING,
    (TurnState.STARTING, TurnEvent.WITHDRAW): TurnState.WITHDRAWN,
    (TurnState.STARTING, TurnEvent.COMPLETE): TurnState.COMPLETED,  # it may overtake what we know of the announcement
    (TurnState.STARTING, TurnEvent.FAIL): TurnState.FAILED,
    (TurnState.STARTING, TurnEvent.ABORT): TurnState.ABORTED,
    (TurnState.STARTING, TurnEvent.STOP): TurnState.STOPPING,
    (TurnState.STARTING, TurnEvent.EXIT): TurnState.STOPPED,
    (TurnState.STARTING, TurnEvent.CRASH): TurnState.FAILED,
    (TurnState.STARTING, TurnEvent.PRESENT): TurnState.RUNNING,
    (TurnState.STARTING, TurnEvent.ABSENT): TurnState.FAILED,
    (TurnState.RUNNING, TurnEvent.ANNOUNCE): TurnState.RUNNING,
    (TurnState.RUNNING, TurnEvent.COMPLETE): TurnState.COMPLETED,
    (TurnState.RUNNING, TurnEvent.FAIL): TurnState.FAILED,
    (TurnState.RUNNING, TurnEvent.ABORT): TurnState.ABORTED,
    (TurnState.RUNNING, TurnEvent.STOP): TurnState.STOPPING,
    (TurnState.RUNNING, TurnEvent.EXIT): TurnState.STOPPED,
    (TurnState.RUNNING, TurnEvent.CRASH): TurnState.FAILED,
    (TurnState.RUNNING, TurnEvent.PRESENT): TurnState.RUNNING,
    (TurnState.RUNNING, TurnEvent.ABSENT): TurnState.FAILED,
    (TurnState.STOPPING, TurnEvent.ANNOUNCE): TurnState.STOPPING,
    (TurnState.STOPPING, TurnEvent.WITHDRAW): TurnState.STOPPED,
    (TurnState.STOPPING, TurnEvent.COMPLETE): TurnState.STOPPED,
    (TurnState.STOPPING, TurnEvent.FAIL): TurnState.STOPPED,
    (TurnState.STOPPING, TurnEvent.ABORT): TurnState.STOPPED,
    (TurnState.STOPPING, TurnEvent.STOP): TurnState.STOPPING,
    (TurnState.STOPPING, TurnEvent.STOP_DONE): TurnState.STOPPED,
    (TurnState.STOPPING, TurnEvent.EXIT): TurnState.STOPPED,
    (TurnState.STOPPING, TurnEvent.CRASH): TurnState.STOPPED,
    (TurnState.STOPPING, TurnEvent.PRESENT): TurnState.STOPPING,
    (TurnState.STOPPING, TurnEvent.ABSENT): TurnState.STOPPED,
}

THREAD: Mapping[tuple[ThreadStatus, ThreadEvent], ThreadStatus] = {
    (ThreadStatus.READY, ThreadEvent.TURN_RUNS): ThreadStatus.RUNNING,
    (ThreadStatus.READY, ThreadEvent.TURN_ENDS): ThreadStatus.READY,
    (ThreadStatus.READY, ThreadEvent.STOP): ThreadStatus.STOP_PENDING,
    (ThreadStatus.READY, ThreadEvent.EXIT): ThreadStatus.STOPPED,
    (ThreadStatus.READY, ThreadEvent.CRASH): ThreadStatus.ERROR,
    (ThreadStatus.READY, ThreadEvent.ENSURED): ThreadStatus.READY,
    (ThreadStatus.RUNNING, ThreadEvent.TURN_RUNS): ThreadStatus.RUNNING,
    (ThreadStatus.RUNNING, ThreadEvent.TURN_ENDS): ThreadStatus.READY,
    (ThreadStatus.RUNNING, ThreadEvent.STOP): ThreadStatus.STOP_PENDING,
    (ThreadStatus.RUNNING, ThreadEvent.EXIT): ThreadStatus.STOPPED,
    (ThreadStatus.RUNNING, ThreadEvent.CRASH): ThreadStatus.ERROR,
    (ThreadStatus.RUNNING, ThreadEvent.ENSURED): ThreadStatus.RUNNING,
    (ThreadStatus.ERROR, ThreadEvent.TURN_RUNS): ThreadStatus.RUNNING,
    (ThreadStatus.ERROR, ThreadEvent.TURN_ENDS): ThreadStatus.ERROR,
    (ThreadStatus.ERROR, ThreadEvent.STOP): ThreadStatus.STOP_PENDING,
    (ThreadStatus.ERROR, ThreadEvent.EXIT): ThreadStatus.STOPPED,
    (ThreadStatus.ERROR, ThreadEvent.CRASH): ThreadStatus.ERROR,
    (ThreadStatus.ERROR, ThreadEvent.ENSURED): ThreadStatus.READY,
    (ThreadStatus.STOP_PENDING, ThreadEvent.TURN_ENDS): ThreadStatus.STOP_PENDING,
    (ThreadStatus.STOP_PENDING, ThreadEvent.STOP): ThreadStatus.STOP_PENDING,
    (ThreadStatus.STOP_PENDING, ThreadEvent.STOP_ACKED): ThreadStatus.STOPPED,
    (ThreadStatus.STOP_PENDING, ThreadEvent.STOP_CANCELLED): ThreadStatus.READY,
    (ThreadStatus.STOP_PENDING, ThreadEvent.EXIT): ThreadStatus.STOPPED,
    (ThreadStatus.STOP_PENDING, ThreadEvent.CRASH): ThreadStatus.STOPPED,
    (ThreadStatus.STOPPED, ThreadEvent.TURN_ENDS): ThreadStatus.STOPPED,
    (ThreadStatus.STOPPED, ThreadEvent.STOP): ThreadStatus.STOPPED,
    (ThreadStatus.STOPPED, ThreadEvent.EXIT): ThreadStatus.STOPPED,
    (ThreadStatus.STOPPED, ThreadEvent.CRASH): ThreadStatus.STOPPED,
    (ThreadStatus.STOPPED, ThreadEvent.ENSURED): ThreadStatus.READY,
}

INTERACTION: Mapping[tuple[InteractionState, InteractionEvent], InteractionState] = {
    (InteractionState.OPEN, InteractionEvent.ANSWER): InteractionState.RESOLVED,
    (InteractionState.OPEN, InteractionEvent.SOCKET_DROPPED): InteractionState.OPEN,
    (InteractionState.OPEN, InteractionEvent.PLUGIN_RESTARTED): InteractionState.CANCELLED,
    (InteractionState.OPEN, InteractionEvent.TURN_ENDED): InteractionState.CANCELLED,
    (InteractionState.OPEN, InteractionEvent.WITHDRAWN): InteractionState.CANCELLED,
    (InteractionState.OPEN, InteractionEvent.DEADLINE): InteractionState.EXPIRED,
}

STOP: Mapping[tuple[StopState, StopEvent], StopState] = {
    (StopState.PENDING, StopEvent.REPEAT): StopState.PENDING,
    (StopState.PENDING, StopEvent.ACK): StopState.ACKED,
    (StopState.PENDING, StopEvent.REFUSED): StopState.ACKED,
    (StopState.PENDING, StopEvent.EXITED): StopState.ACKED,
    (StopState.PENDING, StopEvent.ENSURED_LATER): StopState.CANCELLED,
    (StopState.PENDING, StopEvent.REMOVED): StopState.CANCELLED,
}

ACTIVE_TURN = frozenset({TurnState.STARTING, TurnState.RUNNING, TurnState.STOPPING})


class StopCause(StrEnum):
    """Why somebody asks for a session to stop."""

    USER = "user"  # a person wants it to end
    SHUTDOWN = "shutdown"  # this server ends; the gateway goes on


# Whether a stop is owed to the gateway. A shutdown owes none: the plugin would drop the thread, and refuse its next
# turn.
STOPS_ARE_SENT: Mapping[StopCause, bool] = {StopCause.USER: True, StopCause.SHUTDOWN: False}


class Decision(StrEnum):
    """What a gateway is told about an approval."""

    ONCE = "once"
    SESSION = "session"
    DENY = "deny"


DECISIONS: Mapping[str, Decision] = {
    "accept": Decision.ONCE, "acceptForSession": Decision.SESSION, "decline": Decision.DENY, "cancel": Decision.DENY,
    "once": Decision.ONCE, "session": Decision.SESSION, "deny": Decision.DENY,
}


def decision_of(said: object) -> Decision:
    """The decision of what a client said; whatever is not known denies."""
    return DECISIONS.get(said, Decision.DENY) if isinstance(said, str) else Decision.DENY


_TABLES: Mapping[type, Mapping[Any, Any]] = {
    TurnState: TURN, ThreadStatus: THREAD, InteractionState: INTERACTION, StopState: STOP,
}
_EVENTS: Mapping[type, type] = {
    TurnState: TurnEvent, ThreadStatus: ThreadEvent, InteractionState: InteractionEvent, StopState: StopEvent,
}


@overload
def to_event(state: TurnState, event: TurnEvent) -> TurnState | None: ...
@overload
def to_event(state: ThreadStatus, event: ThreadEvent) -> ThreadStatus | None: ...
@overload
def to_event(state: InteractionState, event: InteractionEvent) -> InteractionState | None: ...
@overload
def to_event(state: StopState, event: StopEvent) -> StopState | None: ...
def to_event(state: StrEnum, event: StrEnum) -> StrEnum | None:
    """The state after an event, None when the event is rejected in this state. Pure; the tables here decide."""
    # By type: the words of two machines are equal texts, and `stopped` means something else in each.
    found: StrEnum | None = _TABLES[type(state)].get((state, event)) if type(event) is _EVENTS[type(state)] else None
    return found
