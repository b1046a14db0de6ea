"""What gateways are owed: one lane for each gateway and thread, and taking back what nobody wants any more.

Invariant: what is owed to one gateway for one thread goes out in order, and never waits for another gateway. Whatever
id a thread has, what is owed for it can be recorded. An id is minted for each obligation, so a thread that is bound
again never meets the obligations of its earlier binding.

Release 0.6.0 had one lane for each thread, whichever gateway served it. What is still owed in such a lane is moved into
the present one when something is recorded beside it, and when a server starts.

Not for: what an obligation means (see `stops`, `recovery`, `interactions`). Lanes of threads alone were rejected: what
is owed to a gateway that never comes back held up the one that serves the thread now.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from hermes_state.errors import IdempotencyConflict, InvalidInput, TooOld
from hermes_state.outbox import Policy, State, append
from hermes_state.outbox.inputs import MOST_CHARACTERS
from hermes_state.outbox.lanes import move
from hermes_state.outbox.records import read_by_dedupe_id
from hermes_state.outbox.settling import end_pending
from hermes_state.outbox.states import Event
from hermes_state.turns.records import instance_of, transport_of

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

STOP, ENSURE, APPROVAL = "stop", "ensure", "approval"
KINDS = (STOP, ENSURE, APPROVAL)
# What recording an obligation may refuse for what it is: nothing was written, and the others are no worse for it.
REFUSALS = (InvalidInput, TooOld, IdempotencyConflict)
_OLD = "thread/"  # lanes of release 0.6.0: thread/<thread>


def lane_of(instance_id: str, thread_id: str) -> str:
    """The outbox lane of what must reach a gateway in order for one thread."""
    # The length first: no two pairs make the same text.
    lane = f"turns/{len(instance_id)}/{instance_id}/{thread_id}"
    return lane if len(lane) <= MOST_CHARACTERS else f"turns/#{hashlib.sha256(lane.encode()).hexdigest()}"


def owe(
    tx: Transaction, *, dedupe_id: str, kind: str, instance_id: str, thread_id: str, priority: int,
    payload: dict[str, Any], at: float,
) -> None:
    """Owe something to a gateway, at least once, behind what it is owed for that thread. Raises as `append`."""
    lane = lane_of(instance_id, thread_id)
    for (number,) in tx.rows(
        "SELECT id FROM outbox WHERE settled_at IS NULL AND lane = ? AND transport = ?",
        (f"{_OLD}{thread_id}", transport_of(instance_id)),
    ):
        move(tx, number, lane, at=at)
    append(
        tx, dedupe_id=dedupe_id, kind=kind, transport=transport_of(instance_id), target=thread_id, lane=lane,
        priority=priority, policy=Policy.AT_LEAST_ONCE, at=at, payload=payload,
    )


def owed(reader: Reader, instance_id: str, thread_id: str, kind: str) -> list[tuple[int, str, str, str]]:
    """Number, dedupe id, state and payload (JSON) of what of a kind a gateway is owed for a thread, newest first."""
    return reader.rows(
        "SELECT id, dedupe_id, state, payload FROM outbox WHERE settled_at IS NULL AND lane IN (?, ?)"
        " AND transport = ? AND kind = ? ORDER BY id DESC",
        (lane_of(instance_id, thread_id), f"{_OLD}{thread_id}", transport_of(instance_id), kind),
    )


def suppress(tx: Transaction, dedupe_id: str, why: str, *, at: float) -> bool:
    """Take an obligation back that nobody is sending; False when there is none such."""
    found = read_by_dedupe_id(tx, dedupe_id)
    if found is None or found.state is not State.PENDING:
        return False
    end_pending(tx, found, Event.SUPPRESS, why, at=at)
    return True


def take_back(tx: Transaction, instance_id: str, thread_id: str, why: str, *, at: float) -> None:
    """Take back what a gateway is owed for a thread, but for its stops; what is on its way is looked at later."""
    for kind in (ENSURE, APPROVAL):
        for _number, dedupe_id, _state, _payload in owed(tx, instance_id, thread_id, kind):
            suppress(tx, dedupe_id, why, at=at)


def move_old(tx: Transaction, *, at: float) -> int:
    """Move everything that is owed in a lane of release 0.6.0; gives how much. Part of starting a server."""
    rows = tx.rows(
        "SELECT id, transport, lane FROM outbox WHERE settled_at IS NULL AND lane >= ?1 AND lane < ?2"
        " AND transport >= 'gateway/' AND transport < 'gateway0' AND kind IN (?3, ?4, ?5)",
        (_OLD, "thread0", *KINDS),
    )
    for number, transport, lane in rows:
        move(tx, number, lane_of(instance_of(transport), lane.removeprefix(_OLD)), at=at)
    return len(rows)
