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
from hermes_state.outbox import State
from hermes_state.outbox.records import read_by_dedupe_id
from hermes_state.turns import history, owing, settling
from hermes_state.turns.interactions import end_of_turn
from hermes_state.turns.owing import suppress
from hermes_state.turns.records import (
    STOP_COLUMNS,
    Stop,
    Thread,
    active_turn,
    find_stop,
    find_thread,
    need_thread,
    stop_of,
    told,
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
from hermes_state.turns.threads import is_out, move, open_thread

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

KIND = owing.STOP
# Above everything else of its thread; the outbox takes -1000 to 1000.
PRIORITY = 1000
# Outcome of a stop whose thread went to another gateway and was stopped there as well, in a session of the same id:
# of those one is pending in the table. What is owed to the first gateway stays owed.
GONE_ON = "its thread was bound to another instance and stopped there"


def ask(tx: Transaction, thread_id: str, *, cause: StopCause, at: float) -> Stop | None:
    """Ask for the session of a thread to end. The stop that is owed already is found again.

    None when none is sent: for a shutdown, for a session that has ended, and where the instance was removed: nobody
    can be told. Raises `ThreadNotFound`.
    """
    if not STOPS_ARE_SENT[cause]:
        need_thread(tx, thread_id)
        return None
    thread = open_thread(tx, thread_id)
    owed = tx.row(
        f"SELECT {STOP_COLUMNS} FROM stops WHERE thread_id = ? AND session_id = ? AND state = 'pending'",
        (thread_id, thread.session_id),
    )
    if owed is not None and (before := stop_of(owed)).instance_id == thread.instance_id:
        return before
    if thread.status is ThreadStatus.STOPPED:
        return None
    if is_out(tx, thread.instance_id) == "removed":
        move(tx, thread, ThreadEvent.EXIT, at=at)
        return None
    if owed is not None:
        _write(tx, stop_of(owed), StopState.CANCELLED, GONE_ON, at=at)
    turn = active_turn(tx, thread_id)
    stop_id = secrets.token_hex(16)
    owing.take_back(tx, thread.instance_id, thread_id, "its session is being stopped", at=at)
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
    owing.owe(
        tx, dedupe_id=dedupe_id, kind=KIND, instance_id=stop.instance_id, thread_id=stop.thread_id, priority=PRIORITY,
        at=at,
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
    _write(tx, stop, state, told(outcome), at=at)
    suppress(tx, stop.obligation, outcome or str(event), at=at)
    history.trim(tx, stop.thread_id)
    thread = find_thread(tx, stop.thread_id)
    if thread is None or (thread.instance_id, thread.session_id) != (stop.instance_id, stop.session_id):
        return state  # the thread is gone, or has another gateway or session: the stop was the old one's
    settling.end(tx, stop.thread_id, TurnEvent.STOP_DONE, at=at)
    followed = event is StopEvent.ENSURED_LATER
    move(
        tx, need_thread(tx, stop.thread_id), ThreadEvent.STOP_CANCELLED if followed else ThreadEvent.STOP_ACKED, at=at
    )
    return state


def is_wanted(stop: Stop | None) -> bool:
    """Whether its gateway is still to be told of a stop."""
    return stop is not None and (stop.state is StopState.PENDING or stop.outcome == GONE_ON)


def cancel_earlier(tx: Transaction, thread: Thread, session_id: str, *, at: float) -> list[str]:
    """An ensure of `session_id` is being asked for now: cancel the thread's stops of other sessions; gives their ids.

    What is on its way already arrives, for the old session only. What another gateway is owed, which served the thread
    before, stays owed.
    """
    done = []
    for row in tx.rows(
        f"SELECT {STOP_COLUMNS} FROM stops WHERE thread_id = ? AND instance_id = ? AND session_id <> ?"
        " AND state = 'pending' ORDER BY no",
        (thread.thread_id, thread.instance_id, session_id),
    ):
        stop = stop_of(row)
        settle(tx, stop.stop_id, StopEvent.ENSURED_LATER, at=at, outcome=f"session {session_id} was asked for later")
        done.append(stop.stop_id)
    return done


def overtaken(reader: Reader, thread: Thread, obligation: int) -> bool:
    """Whether a stop of the session that a thread has now was asked for after the outbox row of that number.

    When a stop was asked for says its first obligation; a later one only repeats it.
    """
    return reader.row(
        "SELECT 1 FROM stops s WHERE s.thread_id = ? AND s.instance_id = ? AND s.session_id = ?"
        " AND s.state <> 'cancelled' AND coalesce((SELECT id FROM outbox WHERE dedupe_id = 'stop/' || s.stop_id),"
        " (SELECT id FROM outbox WHERE dedupe_id = s.obligation)) > ? LIMIT 1",
        (thread.thread_id, thread.instance_id, thread.session_id, obligation),
    ) is not None


# Pending stops that nobody is owed: their obligation has ended, or is gone.
_UNOWED = (
    "state = 'pending' AND NOT EXISTS (SELECT 1 FROM outbox WHERE dedupe_id = stops.obligation"
    " AND outbox.state IN ('pending', 'claimed'))"
)


def any_unowed(reader: Reader) -> bool:
    """Whether `owe_again` has anything to do."""
    return reader.row(f"SELECT 1 FROM stops WHERE {_UNOWED} LIMIT 1") is not None


def owe_again(tx: Transaction, *, at: float, limit: int = 100) -> list[str]:
    """Owe anew what is pending and whose obligation ended unanswered: out of attempts, or taken back by a person.

    Gives the ids of those stops.
    """
    done = []
    for row in tx.rows(f"SELECT {STOP_COLUMNS} FROM stops WHERE {_UNOWED} ORDER BY no LIMIT ?", (limit,)):
        stop = stop_of(row)
        owed = read_by_dedupe_id(tx, stop.obligation)
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


def _write(tx: Transaction, stop: Stop, state: StopState, outcome: str, *, at: float) -> None:
    tx.execute(
        "UPDATE stops SET state = ?, settled_at = ?, outcome = ? WHERE stop_id = ?",
        (str(state), at, outcome, stop.stop_id),
    )
    record(tx, "stops", stop.stop_id, "update", at)
