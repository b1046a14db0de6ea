"""Rows of hermes-agent's `async_delegations`, as delegations here.

Invariant: a row that is taken in has ended: who ran it was another program's process. What was delivered or dropped
there stays so and is owed to nobody; what is pending is owed once, unless it is older than what is told at all, and is
readable in any case. The old row is kept whole beside it, so that it can be given back as it was. A key that is here
already stays as it is.

Not for: reading that table (see `maintenance`). Owing everything that is not marked as delivered was rejected: a chat
would hear of last month's work.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput
from hermes_state.json_values import MOST_LEVELS, check, load
from hermes_state.outbox.inputs import moment
from hermes_state.outbox.states import State as Delivery
from hermes_state.work.background import Delegation, Tell, delegation_key
from hermes_state.work.background_rows import TABLE, need, owe_end, readable
from hermes_state.work.states import DelegationState

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.routing import Home

# Older ones are not told any more (facts on gateways, 5).
REPLAY_SECONDS = 48 * 3600.0
_STATES: Mapping[str, DelegationState] = {
    str(state): state
    for state in (
        DelegationState.COMPLETED, DelegationState.ERROR, DelegationState.STALLED, DelegationState.UNKNOWN,
    )
}
_OPEN = ("running", "stalling", "finalizing")
_DELIVERIES: Mapping[str, Delivery | None] = {
    "pending": None, "delivered": Delivery.ACCEPTED, "dropped": Delivery.DROPPED,
}


@dataclass(frozen=True, kw_only=True)
class OldDelegation:
    """One row, read and checked."""

    key: str
    state: DelegationState
    error: str | None  # why it counts as unknown; None: its state is its own
    session_key: str | None
    session_id: str | None
    described: str  # JSON, the old row included
    result: str | None  # JSON
    registered_at: float
    ended_at: float
    delivery: Delivery | None  # None: it is owed
    delivery_at: float | None


def old_delegation(row: Mapping[str, Any]) -> OldDelegation:
    """A row of that table as a mapping of its columns. Raises `InvalidInput` when it is not one."""
    state, delivery = row.get("state"), row.get("delivery_state", "pending")
    if state not in (*_STATES, *_OPEN) or delivery not in _DELIVERIES:
        raise InvalidInput(
            f"Delegation {row.get('delegation_id')!r:.80} of hermes-agent is {state!r:.40} and {delivery!r:.40}, which"
            " no release of it writes.",
            hint="Leave it out, or mend its state and delivery_state.", argument="row",
        )
    registered = moment("dispatched_at", row.get("dispatched_at"))
    ended = moment("completed_at", row.get("completed_at") or row.get("updated_at") or registered)
    found = _DELIVERIES[delivery]
    told_at = row.get("delivered_at")
    plain = {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items() if not isinstance(value, (bytes, memoryview))
    }
    described = {
        "task": _read(row.get("task_json")), "parent_session_id": row.get("parent_session_id"),
        "child_session_id": None, "was": plain,
    }
    result = _read(row.get("result_json"))
    return OldDelegation(
        key=delegation_key(row.get("delegation_id", "")), state=_STATES.get(str(state), DelegationState.UNKNOWN),
        error=f"it was {state} when hermes-agent ran last" if state in _OPEN else None,
        session_key=row.get("origin_session") or None,
        session_id=row.get("origin_session_id") or row.get("parent_session_id") or None,
        described=_dumped(described), result=None if result is None else _dumped(result), registered_at=registered,
        ended_at=ended, delivery=found,
        delivery_at=None if found is None else ended if told_at is None else moment("delivered_at", told_at),
    )


def take_in(tx: Transaction, home: Home, old: OldDelegation, tell: Tell, *, at: float) -> Delegation:
    """Write it, unless its key is here already, and owe its notice where it is pending and young enough."""
    if tx.row(f"SELECT 1 FROM {TABLE} WHERE key = ?", (old.key,)) is None:
        delivery, delivery_at = old.delivery, old.delivery_at
        if delivery is None and at - old.ended_at > REPLAY_SECONDS:
            delivery, delivery_at = Delivery.SUPPRESSED, at
        generation = None
        if old.session_key is not None:
            entry = tx.row("SELECT generation FROM routing_entries WHERE session_key = ?", (old.session_key,))
            generation = None if entry is None else entry[0]
        tx.execute(
            f"INSERT INTO {TABLE} (key, sort, home, state, session_id, session_key, generation, described, mode,"
            " verbosity, transport, target, registered_at, started_at, state_at, ended_at, error, delivery,"
            " delivery_at, result_chars, result)"
            " VALUES (?1, 'delegation', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13, ?13, ?14, ?15, ?16,"
            " ?17, ?18)",
            (
                old.key, home.store_id, str(old.state), old.session_id, old.session_key, generation, old.described,
                str(tell.mode), str(tell.verbosity), tell.transport, tell.target, old.registered_at, old.ended_at,
                old.error, None if delivery is None else str(delivery), delivery_at, len(old.result or ""),
                old.result,
            ),
        )
        record(tx, TABLE, old.key, "insert", at)
        if delivery is None:
            owe_end(tx, need(tx, old.key), at=at)
    found = need(tx, old.key)
    assert isinstance(found, Delegation)  # its key says so
    return found


def _read(text: Any) -> Any:
    """JSON where it is JSON, else the text as it is."""
    if not isinstance(text, str):
        return None
    try:
        value = load(text)
        check(value, MOST_LEVELS - 2)  # it gets two around it
    except ValueError:
        return text
    return value


def _dumped(value: Any) -> str:
    return readable(json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False, default=str
    ))
