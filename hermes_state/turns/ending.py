"""What of turns, questions and stops ends with the instance that served them.

Invariant: it is one transaction with the end of the instance, so no turn runs and no question is open on an instance
that may not connect. A stop of a revoked instance stays owed: if it is enrolled again, the session that nobody wants
is still there, and ends first. Of a removed one nothing is left to be told, and its threads are stopped.

Not for: sockets, and bindings, which outlive their instance. Leaving it to the next reconnect was rejected: there is
none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.errors import TurnActive
from hermes_state.turns import interactions, operations, owing, settling, stops
from hermes_state.turns.records import ACTIVE, active_turn, need_thread, transport_of
from hermes_state.turns.states import InteractionEvent, StopEvent, ThreadEvent, ThreadStatus, TurnEvent, TurnState
from hermes_state.turns.threads import is_out, move

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction


@dataclass(frozen=True, kw_only=True)
class Ends:
    """How much ends with an instance."""

    turns: int  # that are active: they fail, or are stopped where a stop is owed
    questions: int  # that are open: they are cancelled
    stops: int  # that are owed and will not be sent any more; none of an instance that is only revoked


def what_ends(reader: Reader, instance_id: str, *, for_good: bool) -> Ends:
    """What `end_of_instance` would end now. Reads only."""
    count = {
        name: reader.rows(f"SELECT count(*) FROM {source} WHERE {where}", (instance_id,))[0][0]
        for name, source, where in (
            ("turns", "turns JOIN thread_bindings USING (thread_id)", f"thread_bindings.instance_id = ? AND {ACTIVE}"),
            (
                "questions", "interactions AS i JOIN thread_bindings AS b USING (thread_id)",
                "b.instance_id = ? AND i.state = 'open'",
            ),
            ("stops", "stops", "instance_id = ? AND state = 'pending'"),
        )
    }
    return Ends(turns=count["turns"], questions=count["questions"], stops=count["stops"] if for_good else 0)


def end_of_instance(tx: Transaction, instance_id: str, why: str, *, for_good: bool, at: float) -> None:
    """Settle what only this instance could have ended. `for_good`: it was removed. A second time nothing changes."""
    transport = transport_of(instance_id)
    if for_good:
        for (stop_id,) in tx.rows(
            "SELECT stop_id FROM stops WHERE instance_id = ? AND state = 'pending'", (instance_id,)
        ):
            stops.settle(tx, stop_id, StopEvent.REMOVED, at=at, outcome=why)
    for (dedupe_id,) in tx.rows(
        "SELECT dedupe_id FROM outbox WHERE transport = ? AND state = 'pending' AND (? OR kind <> ?)",
        (transport, int(for_good), stops.KIND),
    ):
        owing.suppress(tx, dedupe_id, why, at=at)
    for (thread_id,) in tx.rows(
        "SELECT s.thread_id FROM thread_states s JOIN thread_bindings b ON b.thread_id = s.thread_id"
        " WHERE b.instance_id = ?",
        (instance_id,),
    ):
        settling.end(tx, thread_id, TurnEvent.ABSENT, at=at, error=why)
        interactions.end_of_turn(tx, thread_id, None, InteractionEvent.TURN_ENDED, why, at=at)
        thread = need_thread(tx, thread_id)
        if for_good and thread.status is not ThreadStatus.STOPPED:
            move(tx, thread, ThreadEvent.EXIT, at=at)
    operations.give_up_instance(tx, instance_id, why, at=at)


def refuse_unbinding(reader: Reader, thread_id: str) -> None:
    """Raise `TurnActive` for a thread whose turn would go with its binding, and run on unseen."""
    turn = active_turn(reader, thread_id)
    if turn is not None and turn.state is not TurnState.STOPPING:
        raise TurnActive(
            f"Thread {thread_id!r} in {reader.path} has turn {turn.turn_id!r}; it is {turn.state}.",
            hint="Stop it first: the stop stays owed when the thread is unbound. Or revoke its instance.",
            path=reader.path, thread_id=thread_id, turn_id=turn.turn_id, state=str(turn.state),
        )


def end_of_binding(tx: Transaction, thread_id: str, *, at: float) -> None:
    """Before the binding of a thread goes: take back what its gateway is owed for it, but for stops.

    Those go out all the same, unless nobody can be told: of a removed instance they are settled. Raises `TurnActive`.
    """
    refuse_unbinding(tx, thread_id)
    row = tx.row("SELECT instance_id FROM thread_bindings WHERE thread_id = ?", (thread_id,))
    if row is None:
        return
    owing.take_back(tx, row[0], thread_id, "its thread was unbound", at=at)
    if is_out(tx, row[0]) == "removed":
        for (stop_id,) in tx.rows(
            "SELECT stop_id FROM stops WHERE thread_id = ? AND instance_id = ? AND state = 'pending'",
            (thread_id, row[0]),
        ):
            stops.settle(tx, stop_id, StopEvent.REMOVED, at=at, outcome="its instance was removed")
