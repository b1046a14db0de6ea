"""What a gateway that connected again has to be asked, and what is settled without asking: a plan, and its application.

Invariant: a plan is data, made from rows alone; applying it twice, or a plan that was overtaken, changes nothing. Its
ensures are obligations of the outbox, owed until the gateway answers, so a reconnect within a reconnect asks once. The
answer decides about the turn: named, it goes on silently under the session id that the gateway gave; not named, it has
failed. A thread whose stop is owed is not ensured: the stop goes out first and alone.

Asked for is the session of every thread that has an active turn or an open question; and, when the plugin's process is
another one, of every thread that stands ready, because that process never heard of it.

Not for: waiting. Awaiting the answers where the connection is accepted was rejected: the answers come on it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.json_values import read as read_json
from hermes_state.turns import interactions, owing, settling, stops
from hermes_state.turns.records import (
    THREAD_COLUMNS,
    THREADS,
    Thread,
    Turn,
    active_turn,
    find_thread,
    find_turn,
    instance_of,
    is_id,
    need_thread,
    refuse_no_id,
    thread_of,
)
from hermes_state.turns.states import InteractionEvent, ThreadEvent, ThreadStatus, TurnEvent, TurnState
from hermes_state.turns.threads import adopt, move, open_thread, refuse_out

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.outbox import Obligation

KIND = owing.ENSURE
# Below a stop, above everything else of its thread.
PRIORITY = 500


@dataclass(frozen=True, kw_only=True)
class Ensure:
    """A session that the gateway is asked for."""

    thread_id: str
    session_id: str  # the one that is known; the gateway may answer with another
    turn_id: str | None  # the turn that is active here; the gateway's answer names it or not
    history_rows: int  # settled turns of the session; it is resumed only if the gateway has as many
    number: int  # how many there were for this thread, with this one
    outstanding: bool  # whether it is owed already, and nothing is to be done


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """A turn whose end is known without asking."""

    thread_id: str
    turn_id: str
    event: TurnEvent
    why: str


@dataclass(frozen=True, kw_only=True)
class Cancellation:
    """A question that nobody waits for any more, or a decision that nobody will take."""

    interaction_id: int
    thread_id: str
    decided: bool  # False: the question is cancelled; True: it stays resolved, and its decision is not sent
    why: str


@dataclass(frozen=True, kw_only=True)
class RecoveryPlan:
    """Everything that a connection of an instance has to recover."""

    instance_id: str
    boot_id: str | None  # of the plugin process that connected
    ensures: tuple[Ensure, ...]
    settlements: tuple[Settlement, ...]
    cancellations: tuple[Cancellation, ...]
    stops: tuple[str, ...]  # ids of stops that are owed: sent before any of the above, by the outbox

    @property
    def changes_nothing(self) -> bool:
        """Whether applying it would write nothing: what it asks for is owed already."""
        return not self.settlements and not self.cancellations and all(one.outstanding for one in self.ensures)


def plan_recovery(reader: Reader, instance_id: str, *, boot_id: str | None, boot_id_changed: bool) -> RecoveryPlan:
    """What there is to recover now. Reads only.

    `boot_id_changed`: whether the connection's process is known to be another than the last one; a thread or question
    of another boot id than `boot_id` is treated so in any case.
    """
    threads = [
        thread_of(row)
        for row in reader.rows(
            f"SELECT {THREAD_COLUMNS} FROM {THREADS} WHERE b.instance_id = ? AND s.status <> 'stopped'"
            " ORDER BY s.thread_id",
            (instance_id,),
        )
    ]
    ensures, settlements = [], []
    for thread in threads:
        if thread.status is ThreadStatus.STOP_PENDING:
            continue
        turn = active_turn(reader, thread.thread_id)
        another = thread.boot_id != boot_id and (boot_id_changed or thread.boot_id is not None)
        if turn is not None and another and not thread.turn_ids:
            why = "its gateway restarted, and its provider cannot say what became of it"
            settlements.append(
                Settlement(thread_id=thread.thread_id, turn_id=turn.turn_id, event=TurnEvent.ABSENT, why=why)
            )
            turn = None
        outstanding = _outstanding(reader, thread, turn)
        asked = outstanding or turn is not None or _has_question(reader, thread.thread_id)
        if asked or (another and thread.status is ThreadStatus.READY):
            ensures.append(
                Ensure(
                    thread_id=thread.thread_id, session_id=thread.session_id,
                    turn_id=None if turn is None else turn.turn_id, history_rows=thread.history_rows,
                    number=thread.ensures + (0 if outstanding else 1), outstanding=outstanding,
                )
            )
    stopped = reader.rows(
        "SELECT stop_id FROM stops WHERE instance_id = ? AND state = 'pending' ORDER BY no", (instance_id,)
    )
    return RecoveryPlan(
        instance_id=instance_id, boot_id=boot_id, ensures=tuple(ensures), settlements=tuple(settlements),
        cancellations=_cancellations(reader, instance_id, boot_id), stops=tuple(stop_id for (stop_id,) in stopped),
    )


def apply_recovery(tx: Transaction, plan: RecoveryPlan, *, at: float) -> None:
    """Carry a plan out. A second time, or when something else decided meanwhile, nothing changes.

    A thread that cannot be asked for keeps no other from it: its turn has failed, and it is in error, with the reason.
    """
    for cancelled in plan.cancellations:
        if cancelled.decided:
            owing.suppress(tx, interactions.obligation_of(cancelled.interaction_id), cancelled.why, at=at)
        else:
            interactions.cancel(
                tx, cancelled.interaction_id, InteractionEvent.PLUGIN_RESTARTED, cancelled.why, at=at
            )
    for settled in plan.settlements:
        thread, turn = find_thread(tx, settled.thread_id), find_turn(tx, settled.turn_id)
        if thread is not None and turn is not None:
            settling.step(tx, thread, turn, settled.event, at=at, error=settled.why)
    for ensure in plan.ensures:
        thread = find_thread(tx, ensure.thread_id)
        if ensure.outstanding or thread is None:
            continue
        if thread.status in (ThreadStatus.STOP_PENDING, ThreadStatus.STOPPED):
            continue  # since the plan was made: it would undo the stop
        try:
            _owe(tx, plan.instance_id, ensure, at=at)
        except owing.REFUSALS as error:
            why = f"its gateway cannot be asked for it: {error.message}"
            settling.end(tx, ensure.thread_id, TurnEvent.ABSENT, at=at, error=why)
            move(tx, need_thread(tx, ensure.thread_id), ThreadEvent.CRASH, at=at, error=why)


def ask(tx: Transaction, thread_id: str, *, session_id: str | None = None, at: float) -> Ensure:
    """Ask for a session of a thread, by default its own; what is owed already is found again.

    Stops of other sessions of the thread that were asked for before are cancelled. Raises `ThreadNotFound`,
    `InstanceRevoked`.
    """
    if session_id is not None:
        refuse_no_id("session_id", session_id)
    thread = open_thread(tx, thread_id)
    refuse_out(tx, thread)
    wanted = session_id or thread.session_id
    stops.cancel_earlier(tx, thread, wanted, at=at)
    thread = need_thread(tx, thread_id)
    outstanding = wanted == thread.session_id and _outstanding(tx, thread, active_turn(tx, thread_id))
    if wanted != thread.session_id:
        settling.end(tx, thread_id, TurnEvent.ABSENT, at=at, error=f"session {wanted} was asked for instead")
        adopt(tx, need_thread(tx, thread_id), wanted, at=at)
        thread = need_thread(tx, thread_id)
    turn = active_turn(tx, thread_id)
    ensure = Ensure(
        thread_id=thread_id, session_id=wanted, history_rows=thread.history_rows, outstanding=outstanding,
        turn_id=None if turn is None or turn.state is TurnState.STOPPING else turn.turn_id,
        number=thread.ensures + (0 if outstanding else 1),
    )
    if not outstanding:
        _owe(tx, thread.instance_id, ensure, at=at)
    return ensure


def odd_answer(result: Mapping[str, Any]) -> str | None:
    """The field of an answer to an ensure that no gateway can mean, or None."""
    for name in ("session_id", "active_turn_id", "boot_id"):
        if result.get(name) is not None and not is_id(result[name]):
            return name
    rows = result.get("history_rows", 0)
    return None if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0 else "history_rows"


def answered(
    tx: Transaction, owed: Obligation, result: Mapping[str, Any], *, at: float
) -> TurnState | None:
    """Take a gateway's answer to an ensure; gives what became of the active turn.

    `result` has session_id (adopted), active_turn_id (None when no turn is), boot_id and history_rows. An answer for a
    thread that is gone, has another gateway or session by now, or was stopped after the question changes nothing.
    """
    asked = owed.payload
    thread = _asked_of(tx, owed)
    if thread is None or stops.overtaken(tx, thread, owed.id):
        return None
    turn = active_turn(tx, thread.thread_id)
    became = None
    if turn is not None and turn.turn_id == asked["turn_id"]:
        present = result.get("active_turn_id") == turn.turn_id if thread.turn_ids else True
        became = settling.step(
            tx, thread, turn, TurnEvent.PRESENT if present else TurnEvent.ABSENT, at=at,
            error=None if present else "its gateway does not know it any more",
        )
    if turn is None:  # a question of no turn: nobody waits for it in a session that has no turn
        interactions.end_of_turn(
            tx, thread.thread_id, None, InteractionEvent.TURN_ENDED, "its session has no turn", at=at
        )
    resumed = thread.history_rows > 0 and result.get("history_rows") == thread.history_rows
    tx.execute(
        "UPDATE thread_states SET boot_id = ?, resumed = ? WHERE thread_id = ?",
        (result.get("boot_id", thread.boot_id), int(resumed), thread.thread_id),
    )
    adopt(tx, need_thread(tx, thread.thread_id), str(result.get("session_id") or thread.session_id), at=at)
    move(tx, need_thread(tx, thread.thread_id), ThreadEvent.ENSURED, at=at)
    record(tx, "thread_states", thread.thread_id, "update", at)
    return became


def failed(tx: Transaction, owed: Obligation, why: str, *, at: float) -> TurnState | None:
    """The gateway will not have the session, or could not be asked: the turn that the ensure was for has failed."""
    asked = owed.payload
    thread = _asked_of(tx, owed)
    if thread is None:
        return None
    turn = active_turn(tx, thread.thread_id)
    if turn is not None and turn.turn_id == asked["turn_id"]:
        return settling.step(tx, thread, turn, TurnEvent.ABSENT, at=at, error=why)
    if turn is None:  # as in `answered`: of a later turn it says nothing
        interactions.end_of_turn(tx, thread.thread_id, None, InteractionEvent.TURN_ENDED, why, at=at)
    return None


def _owe(tx: Transaction, instance_id: str, ensure: Ensure, *, at: float) -> None:
    counted = tx.execute(
        "UPDATE thread_states SET ensures = ?1 WHERE thread_id = ?2 AND ensures = ?3 AND EXISTS (SELECT 1 FROM"
        " thread_bindings WHERE thread_id = ?2 AND instance_id = ?4 AND session_id = ?5)",
        (ensure.number, ensure.thread_id, ensure.number - 1, instance_id, ensure.session_id),
    )
    if not counted:
        return  # asked for since, or the thread is gone, or bound otherwise
    owing.owe(
        # An id of its own: the count begins anew with each binding of the thread.
        tx, dedupe_id=f"{KIND}/{secrets.token_hex(16)}", kind=KIND, instance_id=instance_id,
        thread_id=ensure.thread_id, priority=PRIORITY, at=at,
        payload={
            "thread_id": ensure.thread_id, "session_id": ensure.session_id, "turn_id": ensure.turn_id,
            "history_rows": ensure.history_rows,
        },
    )


def _outstanding(reader: Reader, thread: Thread, turn: Turn | None) -> bool:
    """Whether what is owed already asks all that is to be asked.

    An ensure from before the turn began says nothing about it: its answer would leave the turn as it is, for ever. One
    from before a stop says nothing either.
    """
    found = owing.owed(reader, thread.instance_id, thread.thread_id, KIND)
    if not found:
        return False
    number, _dedupe_id, _state, payload = found[0]
    asked = read_json(payload)
    if asked["session_id"] != thread.session_id or stops.overtaken(reader, thread, number):
        return False
    return bool(turn is None or turn.state is TurnState.STOPPING or asked["turn_id"] == turn.turn_id)


def _asked_of(reader: Reader, owed: Obligation) -> Thread | None:
    """The thread of an ensure; None when that is gone, or has another gateway or session by now."""
    thread = find_thread(reader, owed.payload["thread_id"])
    if thread is None or thread.session_id != owed.payload["session_id"]:
        return None
    return thread if thread.instance_id == instance_of(owed.transport) else None


def _has_question(reader: Reader, thread_id: str) -> bool:
    row = reader.row("SELECT 1 FROM interactions WHERE thread_id = ? AND state = 'open' LIMIT 1", (thread_id,))
    return row is not None


def _cancellations(reader: Reader, instance_id: str, boot_id: str | None) -> tuple[Cancellation, ...]:
    why = "the plugin process that asked is gone"
    undone = reader.rows(
        "SELECT id, thread_id, state FROM interactions WHERE instance_id = ?1 AND boot_id IS NOT ?2"
        " AND (state = 'open' OR (state = 'resolved' AND sent_at IS NULL)) ORDER BY id",
        (instance_id, boot_id),
    )
    return tuple(
        Cancellation(interaction_id=number, thread_id=thread_id, decided=state == "resolved", why=why)
        for number, thread_id, state in undone
    )
