"""Requests to a gateway whose effect must be known after a crash: their durable record.

Invariant: a turn start, an answer to an approval and a stop are recorded before they are sent, under an id that the
receiver knows them by; each ends `completed` with what the receiver said, or is `indeterminate`: nobody knows. A later
answer still completes what was indeterminate; nothing changes what is completed. One table gives every operation, also
those without a record, its own deadline; none is shorter than the time in which a dead connection is found.

Not for: who waits for the answer (see `correlation`), what was asked (only its digest is here). Sending an
indeterminate operation again by itself was rejected: only its receiver can tell whether that is a second effect.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hermes_state.errors import IdempotencyConflict, InvalidInput, NotFound
from hermes_state.turns.records import told

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Seconds for the answer to each operation. A dead connection is found within 28 s (instances/liveness.py), so nothing
# here is below 30; nothing reaches the 90 s after which a request is taken for abandoned.
DEADLINES: Mapping[str, float] = {
    "turn.start": 30.0,  # the receiver answers once it has reserved the turn, not once it ends
    "turn.interrupt": 30.0,
    "turn.steer": 75.0,  # answered between two steps of the agent, which may be inside a tool
    "session.ensure": 45.0,  # may start the agent
    "session.stop": 30.0,
    "approval.respond": 30.0,
    "user_input.respond": 30.0,
    "home.deliver": 30.0,
}
DURABLE = frozenset({"turn.start", "approval.respond", "session.stop"})
# Settled records are kept as long as the outbox keeps its ids.
KEEP_SECONDS = 7 * 86_400.0
MOST_OUTCOME_BYTES = 65_536
_COLUMNS = "id, kind, instance_id, thread_id, state, epoch, admitted_at, deadline_at, settled_at, outcome, why"


def deadline_seconds(method: str) -> float:
    """How long an operation may take. Raises `InvalidInput` for one that is not in the table."""
    found = DEADLINES.get(method)
    if found is None:
        raise InvalidInput(
            f"{method!r} is no operation of a gateway.", hint=f"Known are {', '.join(sorted(DEADLINES))}.",
            argument="method",
        )
    return found


class State(StrEnum):
    """Where a recorded operation stands."""

    ADMITTED = "admitted"  # recorded; it may have been sent
    COMPLETED = "completed"  # terminal: the receiver said what became of it
    INDETERMINATE = "indeterminate"  # nobody knows, and nobody waits any more


class Event(StrEnum):
    """What can happen to it."""

    ANSWER = "answer"
    DEADLINE = "deadline"  # it passed
    LOSE = "lose"  # the connection, or the server that asked, is gone


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.ADMITTED, Event.ANSWER): State.COMPLETED,
    (State.ADMITTED, Event.DEADLINE): State.INDETERMINATE,
    (State.ADMITTED, Event.LOSE): State.INDETERMINATE,
    (State.INDETERMINATE, Event.ANSWER): State.COMPLETED,
    (State.INDETERMINATE, Event.DEADLINE): State.INDETERMINATE,
    (State.INDETERMINATE, Event.LOSE): State.INDETERMINATE,
}


def to_event(state: State, event: Event) -> State | None:
    """The state that follows, or None: what is completed has no events."""
    return TRANSITIONS.get((state, event))


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One recorded operation."""

    id: str  # idempotency key, the receiver's too
    kind: str  # turn.start, approval.respond, session.stop
    instance_id: str  # whom it was sent to
    thread_id: str  # what it is about
    state: State
    epoch: int  # of the server that admitted it
    admitted_at: float  # epoch seconds UTC
    deadline_at: float  # epoch seconds UTC
    settled_at: float | None  # epoch seconds UTC, when it was completed or given up last; None while admitted
    outcome: Any  # what the receiver answered; None unless completed
    why: str | None  # why nobody knew, at one time; None otherwise


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """What `admit` found."""

    operation: Operation
    # False: it was there before, and nothing was changed. Do not send it again by yourself
    new: bool


def admit(
    tx: Transaction, operation_id: str, kind: str, *, instance_id: str, thread_id: str, request: Any, epoch: int,
    at: float,
) -> Admitted:
    """Record an operation before it is sent, in the transaction of what it goes with, or find it recorded.

    `request` is what JSON can say; only its digest is kept. Raises `InvalidInput` (also for a kind that has no durable
    record), `IdempotencyConflict` (the id was used for something else).
    """
    if kind not in DURABLE:
        raise InvalidInput(
            f"{kind!r} has no durable record.", hint=f"Only {', '.join(sorted(DURABLE))} have one.", argument="kind"
        )
    ids = (operation_id, instance_id, thread_id)
    if not all(isinstance(one, str) and len(one) <= 512 for one in ids) or not (operation_id and instance_id):
        raise InvalidInput(
            "An operation has an id, an instance and a thread of at most 512 characters.", argument="operation_id"
        )
    check = hashlib.sha256(_json([kind, instance_id, thread_id, request], "request").encode()).hexdigest()
    before = read(tx, operation_id)
    if before is not None:
        if tx.row("SELECT request_check FROM gateway_operations WHERE id = ?", (operation_id,)) != (check,):
            raise IdempotencyConflict(
                f"Operation {operation_id!r} in {tx.path} was admitted before, for something else.",
                hint="Give every operation an id of its own, and a repeated one the same content.",
                path=tx.path, key=operation_id,
            )
        return Admitted(operation=before, new=False)
    tx.execute(
        "INSERT INTO gateway_operations (id, kind, instance_id, thread_id, epoch, request_check, admitted_at,"
        " deadline_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (operation_id, kind, instance_id, thread_id, epoch, check, at, at + deadline_seconds(kind)),
    )
    return Admitted(operation=_found(tx, operation_id), new=True)


def complete(tx: Transaction, operation_id: str, outcome: Any, *, at: float) -> bool:
    """The receiver answered. False, and nothing changed, when it was completed before: the first answer stays.

    Raises `NotFound`, `InvalidInput` (an outcome that is None, no JSON, or above 64 KiB).
    """
    text = _json(outcome, "outcome")
    if outcome is None or len(text.encode()) > MOST_OUTCOME_BYTES:
        raise InvalidInput(
            f"The outcome of operation {operation_id!r} is JSON of at most {MOST_OUTCOME_BYTES:,} bytes, not null.",
            argument="outcome",
        )
    state = to_event(_found(tx, operation_id).state, Event.ANSWER)
    if state is None:
        return False
    tx.execute(
        "UPDATE gateway_operations SET state = ?, outcome = ?, settled_at = ? WHERE id = ?",
        (str(state), text, at, operation_id),
    )
    return True


def lose(tx: Transaction, operation_id: str, why: str, *, at: float) -> bool:
    """Its connection ended before an answer. False when it was settled before. Raises `NotFound`."""
    return _give_up(tx, "id = ?", (_found(tx, operation_id).id,), why, at=at) == 1


def give_up_overdue(tx: Transaction, *, at: float) -> int:
    """Every operation whose deadline passed is indeterminate from now on; gives how many that are."""
    return _give_up(tx, "deadline_at < ?", (at,), "no answer before its deadline", at=at)


def give_up_earlier(tx: Transaction, epoch: int, *, at: float) -> int:
    """At the start of a server: what earlier ones admitted, nobody waits for any more; gives how many that are."""
    return _give_up(tx, "epoch < ?", (epoch,), "the server that asked was restarted", at=at)


def give_up_instance(tx: Transaction, instance_id: str, why: str, *, at: float) -> int:
    """Its instance was revoked or removed: nobody will answer; gives how many operations that are."""
    return _give_up(tx, "instance_id = ?", (instance_id,), why, at=at)


def any_due(reader: Reader, *, at: float) -> bool:
    """Whether `give_up_overdue` or `forget_settled` has anything to do."""
    row = reader.row(
        "SELECT 1 FROM gateway_operations WHERE settled_at IS NULL AND deadline_at < ? UNION ALL"
        " SELECT 1 FROM gateway_operations WHERE settled_at < ? LIMIT 1",
        (at, at - KEEP_SECONDS),
    )
    return row is not None


def _give_up(tx: Transaction, which: str, values: tuple[Any, ...], why: str, *, at: float) -> int:
    return tx.execute(
        "UPDATE gateway_operations SET state = 'indeterminate', settled_at = ?, why = ?"
        f" WHERE settled_at IS NULL AND {which}",
        (at, told(why, 500), *values),
    )


def forget_settled(tx: Transaction, *, at: float, limit: int = 500) -> int:
    """Delete records settled longer ago than they are kept, at most `limit` in a transaction; gives how many went."""
    return tx.execute(
        "DELETE FROM gateway_operations WHERE id IN (SELECT id FROM gateway_operations WHERE settled_at IS NOT NULL"
        " AND settled_at < ? ORDER BY settled_at LIMIT ?)",
        (at - KEEP_SECONDS, limit),
    )


def read(reader: Reader, operation_id: str) -> Operation | None:
    """One operation by its id, or None."""
    row = reader.row(f"SELECT {_COLUMNS} FROM gateway_operations WHERE id = ?", (operation_id,))
    return None if row is None else _operation(row)


def unsettled(reader: Reader) -> list[Operation]:
    """What is admitted and not answered, the next deadline first."""
    rows = reader.rows(
        f"SELECT {_COLUMNS} FROM gateway_operations WHERE settled_at IS NULL ORDER BY deadline_at, id"
    )
    return [_operation(row) for row in rows]


def _found(reader: Reader, operation_id: str) -> Operation:
    found = read(reader, operation_id)
    if found is None:
        raise NotFound(
            f"There is no operation {operation_id!r} in {reader.path}.",
            hint="It was never admitted, or was settled longer ago than records are kept.",
            path=reader.path, id=operation_id,
        )
    return found


def _operation(row: tuple[Any, ...]) -> Operation:
    number, kind, instance_id, thread_id, state, epoch, admitted_at, deadline_at, settled_at, outcome, why = row
    return Operation(
        id=number, kind=kind, instance_id=instance_id, thread_id=thread_id, state=State(state), epoch=epoch,
        admitted_at=admitted_at, deadline_at=deadline_at, settled_at=settled_at,
        outcome=None if outcome is None else json.loads(outcome), why=why,
    )


def _json(value: Any, argument: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
        text.encode()  # a lone surrogate cannot be stored
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The {argument} of an operation is JSON: {error}.", argument=argument) from error
    return text
