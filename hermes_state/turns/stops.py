"""Stopping a session for good, whether its gateway is there or not.

Invariant: the stop, the status of its thread and what is owed to the gateway are one transaction. A stop has one id;
it is sent until it is acknowledged, before anything else of its thread, and a gateway answers a repeat with what it
said first: one effect. Until then nothing its session says is shown. It ends `stopped`, whatever happened to the
session meanwhile. A shutdown of this server owes nothing.

A later ensure of another session for the same thread cancels a stop that it comes after, and only then: what was asked
for later counts. One that came before is itself taken back by the stop.

Not for: interrupting a turn and going on. Deleting the session here and sending if possible was rejected: an offline
gateway went on, and its text arrived for a thread that nobody knew.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.outbox import Policy, State, append
from hermes_state.outbox.records import read_by_dedupe_id
from hermes_state.turns import history, settling
from hermes_state.turns.interactions import end_of_turn, suppress
from hermes_state.turns.records import (
    STOP_COLUMNS,
    Stop,
    active_turn,
    find_stop,
    find_thread,
    lane_of,
    need_thread,
    stop_of,
    told,
    transport_of,
)
from hermes_state.turns.states import (
    STOPS_ARE_SENT,
    InteractionEvent,
    StopCause,
    StopEvent,
    StopState,
    ThreadEvent,
    ThreadStatus,
    TurnEvent,
    to_event,
)
from hermes_state.turns.threads import move, open_thread

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

KIND = "stop"
# Above everything else of its thread; the outbox takes -1000 to 1000.
PRIORITY = 1000


def ask(tx: Transaction, thread_id: str, *, cause: StopCause, at: float) -> Stop | None:
    """Ask for the session of a thread to end. The stop that is owed already is found again.

    None when none is sent: for a shutdown, and for a session that has ended. Raises `ThreadNotFound`.
    """
    if not STOPS_ARE_SENT[cause]:
        need_thread(tx, thread_id)
        return None
    thread = open_thread(tx, thread_id)
    owed = tx.row(
        f"SELECT {STOP_COLUMNS} FROM stops WHERE thread_id = ? AND session_id = ? AND state = 'pending'",
        (thread_id, thread.session_id),
    )
    if owed is not None:
        return stop_of(owed)
    if thread.status is ThreadStatus.STOPPED:
        return None
    turn = active_turn(tx, thread_id)
    stop_id = secrets.token_hex(16)
    for (dedupe_id,) in tx.rows(
        "SELECT dedupe_id FROM outbox WHERE lane = ? AND settled_at IS NULL AND state = 'pending' AND kind <> ?",
        (lane_of(thread_id), KIND),
    ):
        suppress(tx, dedupe_id, "its session is being stopped", at=at)
    tx.execute(
        "INSERT INTO stops (stop_id, instance_id, thread_id, session_id, turn_id, obligation, asked_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            stop_id, thread.instance_id, thread_id, thread.session_id, None if turn is None else turn.turn_id,
            f"{KIND}/{stop_id}", at,
        ),
    )
    record(tx, "stops", stop_id, "insert", at)
    made = find_stop(tx, stop_id)
    assert made is not None
    owe(tx, made, made.obligation, at=at)
    move(tx, thread, ThreadEvent.STOP, at=at)
    if turn is not None:
        settling.step(tx, need_thread(tx, thread_id), turn, TurnEvent.STOP, at=at)
    end_of_turn(tx, thread_id, None, InteractionEvent.TURN_ENDED, "its session is being stopped", at=at)
    return made


def owe(tx: Transaction, stop: Stop, dedupe_id: str, *, at: float) -> None:
    """Owe a stop to its gateway. What the gateway knows a repeat by is `stop_id`, also of a second obligation."""
    append(
        tx, dedupe_id=dedupe_id, kind=KIND, transport=transport_of(stop.instance_id), target=stop.thread_id,
        lane=lane_of(stop.thread_id), priority=PRIORITY, policy=Policy.AT_LEAST_ONCE, at=at,
        payload={
            "stop_id": stop.stop_id, "thread_id": stop.thread_id, "session_id": stop.session_id,
            "turn_id": stop.turn_id,
        },
    )


def settle(tx: Transaction, stop_id: str, event: StopEvent, *, at: float, outcome: str) -> StopState | None:
    """What becomes of a stop, of its thread and of its turn; None when it was settled before."""
    stop = find_stop(tx, stop_id)
    state = None if stop is None else to_event(stop.state, event)
    if stop is None or state is None:
        return None
    if state is StopState.PENDING:
        return state
    tx.execute(
        "UPDATE stops SET state = ?, settled_at = ?, outcome = ? WHERE stop_id = ?",
        (str(state), at, told(outcome), stop_id),
    )
    record(tx, "stops", stop_id, "update", at)
    suppress(tx, stop.obligation, outcome or str(event), at=at)
    history.trim(tx, stop.thread_id)
    thread = find_thread(tx, stop.thread_id)
    if thread is None or thread.session_id != stop.session_id:
        return state  # the thread is gone, or has another session: the stop was the old one's
    settling.end(tx, stop.thread_id, TurnEvent.STOP_DONE, at=at)
    followed = event is StopEvent.ENSURED_LATER
    move(
        tx, need_thread(tx, stop.thread_id), ThreadEvent.STOP_CANCELLED if followed else ThreadEvent.STOP_ACKED, at=at
    )
    return state


def cancel_earlier(tx: Transaction, thread_id: str, session_id: str, *, at: float) -> list[str]:
    """An ensure of `session_id` is being asked for now: cancel the thread's stops of other sessions; gives their ids.

    What is on its way already arrives, for the old session only.
    """
    done = []
    for row in tx.rows(
        f"SELECT {STOP_COLUMNS} FROM stops WHERE thread_id = ? AND session_id <> ? AND state = 'pending' ORDER BY no",
        (thread_id, session_id),
    ):
        stop = stop_of(row)
        settle(tx, stop.stop_id, StopEvent.ENSURED_LATER, at=at, outcome=f"session {session_id} was asked for later")
        done.append(stop.stop_id)
    return done


def overtaken(reader: Reader, thread_id: str, session_id: str, obligation: int) -> bool:
    """Whether a stop of that session was asked for after the outbox row of that number."""
    return reader.row(
        "SELECT 1 FROM stops s JOIN outbox o ON o.dedupe_id = s.obligation WHERE s.thread_id = ? AND s.session_id = ?"
        " AND s.state <> 'cancelled' AND o.id > ? LIMIT 1",
        (thread_id, session_id, obligation),
    ) is not None


def owe_again(tx: Transaction, *, at: float, limit: int = 100) -> list[str]:
    """Owe anew what is pending and whose obligation ended unanswered: out of attempts, or taken back by a person.

    Gives the ids of those stops.
    """
    done = []
    for row in tx.rows(f"SELECT {STOP_COLUMNS} FROM stops WHERE state = 'pending' ORDER BY no LIMIT ?", (limit,)):
        stop = stop_of(row)
        owed = read_by_dedupe_id(tx, stop.obligation)
        if owed is not None and owed.state in (State.PENDING, State.CLAIMED):
            continue
        if owed is not None and owed.state in (State.ACCEPTED, State.REFUSED):  # settled without us
            event = StopEvent.ACK if owed.state is State.ACCEPTED else StopEvent.REFUSED
            settle(tx, stop.stop_id, event, at=at, outcome=str(owed.state))
            continue
        first = f"{KIND}/{stop.stop_id}"
        count = int(stop.obligation.removeprefix(first).removeprefix("#") or "1") + 1
        tx.execute("UPDATE stops SET obligation = ? WHERE stop_id = ?", (f"{first}#{count}", stop.stop_id))
        owe(tx, stop, f"{first}#{count}", at=at)
        done.append(stop.stop_id)
    return done
