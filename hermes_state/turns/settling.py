"""Starting a turn, and everything that can happen to it: one place that writes its row.

Invariant: at most one turn of a thread has not ended (an index says so too). A turn ends once, for the id that is
active now; any other end is counted on its thread and changes nothing. With its end, in the same transaction, its
thread stops running, its open questions are cancelled, and what is beyond the bound is forgotten.

Not for: telling the gateway (see `turns`). A reservation in memory was rejected: two processes serve one store.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from hermes_state.errors import IdempotencyConflict, TurnActive
from hermes_state.turns import history, interactions
from hermes_state.turns.records import Thread, Turn, active_turn, find_turn, need_thread, refuse_no_id, told
from hermes_state.turns.states import (
    ACTIVE_TURN,
    InteractionEvent,
    ThreadEvent,
    TurnEvent,
    TurnState,
    to_event,
)
from hermes_state.turns.threads import move, open_thread, refuse_out, refuse_stopped

if TYPE_CHECKING:
    from hermes_state.engine import Transaction


def reserve(
    tx: Transaction, thread_id: str, *, at: float, turn_id: str | None = None, turn_ids: bool = True,
    generation: str | None = None, boot_id: str | None = None,
) -> Turn:
    """Reserve the one active turn of a thread.

    Raises `TurnActive`, `ThreadStopped`, `ThreadNotFound`, `InstanceRevoked`, and `IdempotencyConflict`: a turn has
    that id.
    """
    if turn_id is not None:
        refuse_no_id("turn_id", turn_id)
        if find_turn(tx, turn_id) is not None:
            raise IdempotencyConflict(
                f"Turn {turn_id!r} in {tx.path} was started before.",
                hint="Look at that one; give another turn another id.", path=tx.path, key=turn_id,
            )
    thread = open_thread(tx, thread_id, turn_ids=turn_ids)
    before = active_turn(tx, thread_id)
    if before is not None:
        raise TurnActive(
            f"Thread {thread_id!r} in {tx.path} has turn {before.turn_id!r} since {at - before.started_at:.0f} s;"
            f" it is {before.state}.",
            hint="Wait for its end, steer it, or stop it.", path=tx.path, thread_id=thread_id,
            turn_id=before.turn_id, state=str(before.state),
        )
    refuse_out(tx, thread)
    refuse_stopped(tx, thread)
    new = turn_id or secrets.token_hex(16)
    tx.execute(
        "INSERT INTO turns (turn_id, thread_id, session_id, generation, state, started_at)"
        " VALUES (?, ?, ?, ?, 'starting', ?)",
        (new, thread_id, thread.session_id, generation, at),
    )
    if boot_id is not None and boot_id != thread.boot_id:
        tx.execute("UPDATE thread_states SET boot_id = ? WHERE thread_id = ?", (boot_id, thread_id))
    record(tx, "turns", new, "insert", at)
    made = find_turn(tx, new)
    assert made is not None
    return made


def step(
    tx: Transaction, thread: Thread, turn: Turn, event: TurnEvent, *, at: float, error: str | None = None
) -> TurnState | None:
    """What becomes of a turn and of its thread; None when the event is rejected, and nothing changes.

    `thread` and `turn` are as read in this transaction.
    """
    state = to_event(turn.state, event)
    if state is None:
        return None
    ended = state not in ACTIVE_TURN
    if state is not turn.state:
        tx.execute(
            "UPDATE turns SET state = ?, settled_at = ?, error = ? WHERE no = ?",
            (str(state), at if ended else None, None if error is None else told(error), turn.no),
        )
        record(tx, "turns", turn.turn_id, "update", at)
    if state is TurnState.RUNNING:
        move(tx, thread, ThreadEvent.TURN_RUNS, at=at, turn_id=turn.turn_id)
    elif ended:
        move(tx, thread, ThreadEvent.TURN_ENDS, at=at)
        if state is not TurnState.WITHDRAWN:
            tx.execute(
                "UPDATE thread_states SET history_rows = history_rows + 1 WHERE thread_id = ?", (thread.thread_id,)
            )
        interactions.end_of_turn(
            tx, turn.thread_id, turn.turn_id, InteractionEvent.TURN_ENDED, f"its turn ended: {state}", at=at
        )
        history.trim(tx, turn.thread_id)
    return state


def end(
    tx: Transaction, thread_id: str, event: TurnEvent, *, at: float, error: str | None = None
) -> TurnState | None:
    """`step` for whatever turn of the thread is active; None when none is, or the event is rejected."""
    turn = active_turn(tx, thread_id)
    return None if turn is None else step(tx, need_thread(tx, thread_id), turn, event, at=at, error=error)
