"""What gateways are told, and what follows from their answers.

Invariant: the verdict of an obligation and its effect on turns, stops and questions are one transaction, at `power`:
no crash lies between "acknowledged" and "stopped". An obligation that ended without an answer (out of attempts, taken
back by a person) leaves a stop pending, to be owed again; an ensure that did so has failed its turn.

Not for: the wire. Effects in a second transaction were rejected: a kill in between left a stop pending for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.outbox import Accepted, Claim, State, Verdict
from hermes_state.outbox import settling as outbox_settling
from hermes_state.turns import interactions, recovery, stops
from hermes_state.turns.states import StopEvent

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.outbox import Obligation

KINDS = (stops.KIND, recovery.KIND, interactions.KIND)


def settle(tx: Transaction, claimed: Claim, verdict: Verdict, *, at: float) -> dict[int, State]:
    """Write the verdict of a claim and what follows; gives the state of each obligation. Raises `StaleFence`."""
    states = outbox_settling.settle(tx, claimed, verdict, at=at)
    for one in claimed:
        if one.payload is None:
            continue
        if one.kind == stops.KIND:
            _stop(tx, one, states[one.id], verdict, at=at)
        elif one.kind == recovery.KIND:
            _ensure(tx, one, states[one.id], verdict, at=at)
        elif one.kind == interactions.KIND and states[one.id] is State.ACCEPTED:
            interactions.sent(tx, int(one.payload["interaction"]), at=at)
    return states


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
