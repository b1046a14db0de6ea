"""What gateways are told, and what follows from their answers.

Invariant: the verdict of an obligation and its effect on turns, stops and questions are one transaction, at `power`:
no crash lies between "acknowledged" and "stopped". An obligation that ended without an answer (out of attempts, taken
back by a person) leaves a stop pending, to be owed again; an ensure that did so has failed its turn. Of what a gateway
said is kept what something reads, bounded (`answer_of`, `refusal_of`), whatever it sent.

Not for: the wire. Effects in a second transaction were rejected: a kill in between left a stop pending for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hermes_state.outbox import Accepted, Claim, Failed, NotAdmitted, Refused, State, Verdict
from hermes_state.outbox import settling as outbox_settling
from hermes_state.outbox.inputs import MOST_REASON
from hermes_state.turns import interactions, owing, recovery, stops
from hermes_state.turns.records import active_turn, find_stop, find_thread, instance_of, told
from hermes_state.turns.states import StopEvent, ThreadStatus
from hermes_state.turns.threads import is_out

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.outbox import Obligation

KINDS = owing.KINDS
_ANSWER = ("session_id", "active_turn_id", "boot_id", "history_rows")
# Of a text of a gateway that is kept; it is for people. The outbox keeps as much of a reason.
MOST_CHARACTERS = MOST_REASON


def answer_of(claim: Claim, said: object) -> Verdict:
    """The verdict of what a gateway answered to a claim, whatever it sent: the result of its response, as JSON had it.

    Kept is what something reads, bounded: of an ensure the four fields of its answer, of a stop the outcome. An answer
    to an ensure that no gateway can mean is a refusal. Passing the result on as it came was rejected: one that the
    outbox cannot keep would be raised after the message went out, and the same asked again, for ever.
    """
    return _answer(claim.primary, said)


def refusal_of(said: object) -> Refused:
    """The verdict of a gateway's refusal, whatever it gave as its reason."""
    return Refused(why=told(said, MOST_CHARACTERS))


def ends_the_round(verdict: Verdict) -> bool:
    """What could not be sent now is no reason to spend an attempt of the next."""
    return isinstance(verdict, (Failed, NotAdmitted))


def waiting(reader: Reader, *, at: float) -> frozenset[str]:
    """Transports of gateways that something is due for. One that waits for another of its thread counts as well."""
    return frozenset(
        transport
        for (transport,) in reader.rows(
            "SELECT DISTINCT transport FROM outbox WHERE state = 'pending' AND transport >= 'gateway/'"
            " AND transport < 'gateway0' AND due_at <= ?",
            (at,),
        )
    )


def settle(tx: Transaction, claimed: Claim, verdict: Verdict, *, at: float) -> dict[int, State]:
    """Write the verdict of a claim and what follows; gives the state of each obligation. Raises `StaleFence`."""
    if isinstance(verdict, Accepted):
        verdict = _answer(claimed.primary, verdict.result)
    states = outbox_settling.settle(tx, claimed, verdict, at=at)
    for one in claimed:
        if one.payload is None:
            continue
        if states[one.id] is State.PENDING and (why := unwanted(tx, one)) is not None:
            owing.suppress(tx, one.dedupe_id, why, at=at)
        elif one.kind == stops.KIND:
            _stop(tx, one, states[one.id], verdict, at=at)
        elif one.kind == recovery.KIND:
            _ensure(tx, one, states[one.id], verdict, at=at)
        elif one.kind == interactions.KIND and states[one.id] is State.ACCEPTED:
            interactions.sent(tx, int(one.payload["interaction"]), at=at)
    return states


def _answer(one: Obligation, said: object) -> Verdict:
    fields = said if isinstance(said, Mapping) else {}
    if one.kind == recovery.KIND:
        odd = "result" if fields is not said else recovery.odd_answer(fields)
        if odd is not None:
            return Refused(why=f"its gateway answered what no {odd} can be")
        return Accepted(result={name: fields[name] for name in _ANSWER if name in fields})
    if one.kind == stops.KIND:
        return Accepted(result={"outcome": told(fields.get("outcome", "stopped"), MOST_CHARACTERS)})
    return Accepted()


def unwanted(reader: Reader, one: Obligation) -> str | None:
    """Why something is not to be sent (again): what it was for ended while it was owed, or on its way. None: it is.

    What ends a session, a turn or an instance takes back what is pending; this is for what was claimed at that moment,
    by whoever is alive to settle it or by a process that died with it.
    """
    if one.kind == stops.KIND:
        return None if stops.is_wanted(find_stop(reader, str(one.payload["stop_id"]))) else "it was settled meanwhile"
    thread = find_thread(reader, str(one.payload["thread_id"]))
    if thread is None or thread.instance_id != instance_of(one.transport):
        return "its thread is not of that gateway any more"
    if (out := is_out(reader, thread.instance_id)) is not None:
        return f"its instance was {out}"
    if stops.overtaken(reader, thread, one.id):
        return "its session was stopped meanwhile"
    turn = active_turn(reader, thread.thread_id)
    if one.kind == recovery.KIND:
        if one.payload["session_id"] != thread.session_id:
            return "its thread has another session meanwhile"
        asked = one.payload["turn_id"]
        ended = asked is not None and (turn is None or turn.turn_id != asked)
        return "its session ended meanwhile" if ended and thread.status is ThreadStatus.STOPPED else None
    return interactions.unwanted(reader, int(one.payload["interaction"]), turn)


def _stop(tx: Transaction, one: Obligation, state: State, verdict: Verdict, *, at: float) -> None:
    stop_id = str(one.payload["stop_id"])
    if state is State.ACCEPTED:
        said = verdict.result.get("outcome", "stopped") if isinstance(verdict, Accepted) else "stopped"
        stops.settle(tx, stop_id, StopEvent.ACK, at=at, outcome=str(said))
    elif state is State.REFUSED:
        stops.settle(tx, stop_id, StopEvent.REFUSED, at=at, outcome=_why(verdict))


def _ensure(tx: Transaction, one: Obligation, state: State, verdict: Verdict, *, at: float) -> None:
    if state is State.ACCEPTED and isinstance(verdict, Accepted):
        recovery.answered(tx, one, verdict.result, at=at)
    elif state in (State.REFUSED, State.FAILED, State.DROPPED):
        recovery.failed(tx, one, _why(verdict), at=at)


def _why(verdict: Verdict) -> str:
    return str(getattr(verdict, "why", "") or "its gateway refused")
