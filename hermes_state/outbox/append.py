"""Recording an obligation, in the transaction of the change that makes it.

Invariant: the change and what it owes commit together. The same id is the same obligation for as long as its row is
here, whatever became of it; an id that may have been forgotten is refused as too old, never taken for a new one.

Not for: sending. An id made by the outbox was rejected: a sender that died after its commit would record it again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.changes.records import record
from hermes_state.errors import IdempotencyConflict, InvalidInput, TooOld
from hermes_state.outbox.inputs import LATEST, MOST_ID, levels, moment, seconds, text, whole
from hermes_state.outbox.records import Obligation, read, read_by_dedupe_id
from hermes_state.outbox.schedules import Schedule, schedule_for
from hermes_state.outbox.states import Policy

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# How long ids are remembered after they were made. It must exceed the age at which any sender still retries: the
# longest in the facts is the 48 h replay age of hermes-agent's delegations; a week leaves room for a machine that was
# off over a long weekend.
HORIZON_SECONDS = 7 * 86_400.0
# The largest payload: what is larger belongs into a message that the payload names.
MOST_BYTES = 1_048_576
MOST_PRIORITY = 1000
# How far after now the time at which something was made may be: a day, for senders whose clock has the wrong time zone.
MOST_AHEAD_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What `append` found."""

    obligation: Obligation
    # False: it was there before, and nothing was changed
    new: bool


def append(
    tx: Transaction, *, dedupe_id: str, kind: str, transport: str, payload: Any, at: float,
    policy: Policy | Literal["at_most_once", "at_least_once"], target: str = "", lane: str | None = None,
    batch: str | None = None, priority: int = 0, schedule: Schedule | None = None, made_at: float | None = None,
    due_at: float | None = None, horizon_seconds: float = HORIZON_SECONDS, retry_of: int | None = None,
) -> Recorded:
    """Record what is owed, or find it recorded before. Call it in the transaction that makes it owed.

    `payload` is anything JSON can say, at most 1 MiB and 100 levels deep; texts have at most 512 characters;
    `priority` is from -1000 to 1000, the higher goes first. `at` is now, `made_at` when its sender made it (default:
    now; at most a day ahead), `due_at` when it may go out (default: now), all epoch seconds UTC. Who records the same
    obligation again gives the `made_at` of the first time: without it an id that was forgotten is new. Raises
    `InvalidInput`, `TooOld` (made before what is still remembered), `IdempotencyConflict` (the id was recorded for
    something else).
    """
    for name, value in (("dedupe_id", dedupe_id), ("kind", kind), ("transport", transport)):
        text(name, value)
    text("target", target, empty=True)
    for name, given in (("lane", lane), ("batch", batch)):
        if given is not None:
            text(name, given, empty=True)
    whole("priority", priority, -MOST_PRIORITY, MOST_PRIORITY)
    chosen = _policy(policy)
    moment("at", at)
    made = at if made_at is None else moment("made_at", made_at)
    due = at if due_at is None else moment("due_at", due_at)
    seconds("horizon_seconds", horizon_seconds, most=LATEST, zero=False)
    if schedule is not None and not isinstance(schedule, Schedule):
        raise InvalidInput(f"schedule is a Schedule, not {schedule!r:.80}.", argument="schedule")
    if retry_of is not None:
        whole("retry_of", retry_of, 1, MOST_ID)
    content, size = _json(payload)
    if size > MOST_BYTES:
        raise InvalidInput(
            f"The payload of obligation {dedupe_id!r} has {size:,} bytes; {MOST_BYTES:,} is the most.",
            hint="Store the text as a message and name it in the payload.", argument="payload", size=size,
        )
    check = check_of(kind, transport, target, lane, batch, priority, chosen, content)
    before = read_by_dedupe_id(tx, dedupe_id)
    if before is not None:
        recorded = tx.row("SELECT payload_check FROM outbox WHERE id = ?", (before.id,))
        if recorded is None or recorded[0] != check:
            raise IdempotencyConflict(
                f"Obligation {dedupe_id!r} in {tx.path} was recorded before, for something else.",
                hint="Give every obligation an id of its own, and a repeated one the same content.",
                path=tx.path, key=dedupe_id,
            )
        return Recorded(obligation=before, new=False)
    if made > at + MOST_AHEAD_SECONDS:
        raise InvalidInput(
            f"Obligation {dedupe_id!r} says that it was made {made - at:.0f} s from now; {MOST_AHEAD_SECONDS:.0f} s is"
            " what a clock may be ahead.",
            hint="made_at is when its sender made it; when it may go out is due_at.", argument="made_at",
        )
    forgotten = forgotten_to(tx)
    # A clock that was ahead may have raised the horizon beyond now: what is made now is new all the same.
    if made <= at - horizon_seconds or (made <= forgotten and not made == at < forgotten):
        raise _too_old(tx, dedupe_id, at=at, made=made, remembered_from=max(forgotten, at - horizon_seconds))
    plan = schedule or schedule_for(kind)
    if plan.longest_age() >= horizon_seconds:
        raise InvalidInput(
            f"The schedule of obligation {dedupe_id!r} takes {plan.longest_age():.0f} s; {tx.path} remembers ids for"
            f" {horizon_seconds:.0f} s.",
            hint="An id must be remembered for longer than its sender retries.", argument="schedule",
        )
    if batch is not None:
        _one_policy(tx, batch, transport, chosen)
    tx.execute(
        "INSERT INTO outbox (dedupe_id, kind, transport, target, lane, batch, priority, policy, payload, payload_bytes,"
        " payload_check, schedule, made_at, due_at, due_within, retry_of)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            dedupe_id, kind, transport, target, lane, batch, priority, str(chosen), content, size, check,
            plan.to_json(), made, due, plan.within() if due_at is None else None, retry_of,
        ),
    )
    number = tx.last_insert_rowid()
    record(tx, "outbox", dedupe_id, "insert", at)
    found = read(tx, number)
    assert found is not None
    return Recorded(obligation=found, new=True)


def _one_policy(tx: Transaction, batch: str, transport: str, policy: Policy) -> None:
    """Raise `InvalidInput` for a batch of two policies: one verdict, also one that comes late, is for all of it."""
    other = tx.row(
        "SELECT policy, dedupe_id FROM outbox INDEXED BY outbox_batch WHERE settled_at IS NULL AND batch = ?"
        " AND transport = ? LIMIT 1", (batch, transport),
    )
    if other is not None and other[0] != policy:
        raise InvalidInput(
            f"Batch {batch!r} for {transport} in {tx.path} has obligations that are sent {other[0]}, such as"
            f" {other[1]!r}; one that is sent {policy} is not of it.",
            hint="Siblings get one verdict, so they have one policy: give the others a batch of their own.",
            argument="batch",
        )


def forgotten_to(reader: Reader) -> float:
    """Ids made at or before this (epoch seconds UTC) may have been forgotten."""
    row = reader.row("SELECT forgotten_to FROM outbox_horizon")
    return 0.0 if row is None else float(row[0])


def _too_old(reader: Reader, dedupe_id: str, *, at: float, made: float, remembered_from: float) -> TooOld:
    if remembered_from < at:
        message = (
            f"Obligation {dedupe_id!r} was made {at - made:.0f} s ago; {reader.path} remembers ids for"
            f" {at - remembered_from:.0f} s, so it cannot tell whether it was sent."
        )
        hint = "Decide by what the receiver shows; record it under a new id if it is still owed."
    else:
        message = (
            f"Obligation {dedupe_id!r} was made {abs(at - made):.0f} s {'ago' if made <= at else 'from now'};"
            f" {reader.path} forgot ids up to {remembered_from - at:.0f} s from now, when a clock was ahead, so it"
            " cannot tell whether it was sent."
        )
        hint = (
            "Decide by what the receiver shows; if it is still owed, record it under a new id as made now: without"
            " made_at."
        )
    return TooOld(
        message, hint=hint, path=reader.path, dedupe_id=dedupe_id, made_at=made, remembered_from=remembered_from
    )


def _policy(value: Any) -> Policy:
    try:
        return Policy(value)
    except ValueError:
        raise InvalidInput(
            f"policy is 'at_most_once' or 'at_least_once', not {value!r}.",
            hint="There is no default: say what a crash while sending may lead to.", argument="policy",
        ) from None


def _json(payload: Any) -> tuple[str, int]:
    """The payload as stored, and its bytes."""
    levels("payload", payload, of="an obligation")
    try:
        content = json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The payload of an obligation is JSON: {error}.", argument="payload") from error
    try:
        return content, len(content.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"The payload of an obligation has a lone surrogate, {content[error.start]!a}, which no file can hold.",
            hint="Decode texts with errors='replace', or send them as bytes in base64.", argument="payload",
        ) from error


def check_of(*parts: object) -> str:
    """SHA-256 (hex) of what an obligation is: kind, transport, target, lane, batch, priority, policy, JSON payload."""
    return hashlib.sha256(json.dumps([str(part) if part is not None else None for part in parts]).encode()).hexdigest()
