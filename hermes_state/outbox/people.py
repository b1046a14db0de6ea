"""What a person decides about an obligation: send it now, owe it again, take it back.

Invariant: what is settled stays as it is; owing it again makes a new obligation that names it. While one that was made
so is not settled, asking again gives that one: two people who press the button at the same time send it once.

Not for: verdicts (see `settling`). Making a settled row pending again was rejected: its receiver drops an id that it
has seen, and nobody could tell what had become of the first sending.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import IdempotencyConflict, InvalidInput, NotFound, Refused
from hermes_state.outbox.append import append
from hermes_state.outbox.inputs import MOST_CHARACTERS, MOST_ID, storable
from hermes_state.outbox.records import COLUMNS, Obligation, obligation, read, read_by_dedupe_id
from hermes_state.outbox.settling import end_pending
from hermes_state.outbox.states import TERMINAL, Event, State

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_state.engine import Reader, Transaction


def find(reader: Reader, key: Any) -> Obligation:
    """One obligation by its number or its dedupe id. Raises `NotFound`, `InvalidInput` (neither of the two)."""
    if isinstance(key, bool) or not isinstance(key, (int, str)) or (isinstance(key, str) and not storable(key)):
        raise InvalidInput(
            f"An obligation is named by its number or its dedupe id, not by {key!r:.80}.", argument="key"
        )
    if isinstance(key, int):
        found = read(reader, key) if 0 < key <= MOST_ID else None
    else:
        found = read_by_dedupe_id(reader, key)
    if found is None:
        raise not_found(reader.path, key)
    return found


def not_found(path: Path, key: int | str) -> NotFound:
    """The error of a number or dedupe id that nothing has."""
    return NotFound(
        f"There is no obligation {key!r} in {path}.", hint="`hermes outbox list` shows them.", path=path, key=key
    )


def refuse_retry(path: Path, one: Obligation) -> None:
    """Raise `Refused` when it cannot be sent now or owed again."""
    if one.state is State.CLAIMED:
        raise Refused(
            f"Obligation {one.dedupe_id!r} in {path} is being sent.", hint="Wait for its verdict.", path=path,
            dedupe_id=one.dedupe_id,
        )
    if not one.sendable:
        what = " and ".join(name for name in one.unreadable if name != "verdict")
        raise Refused(
            f"The {what} of obligation {one.dedupe_id!r} in {path} cannot be read, so nobody can send it.",
            hint="Take it back with `hermes outbox drop`, and record it anew from its source.", path=path,
            dedupe_id=one.dedupe_id,
        )
    if one.blanked:
        raise Refused(
            f"The payload of obligation {one.dedupe_id!r} in {path} was blanked after it was settled.",
            hint="Record it anew from its source.", path=path, dedupe_id=one.dedupe_id,
        )


def refuse_end(path: Path, one: Obligation) -> None:
    """Raise `Refused` when it cannot be taken back."""
    if one.state is not State.PENDING:
        raise Refused(
            f"Obligation {one.dedupe_id!r} in {path} is {one.state}: only a pending one can be taken back.",
            hint="What is claimed is being sent; what is settled stays as it is.", path=path, dedupe_id=one.dedupe_id,
        )


def retry(tx: Transaction, number: int, *, dedupe_id: str | None, at: float) -> Obligation:
    """See `Outbox.retry`."""
    now = read(tx, number)
    if now is None:
        raise not_found(tx.path, number)
    if now.state not in TERMINAL:
        return _now(tx, now, at=at)
    if dedupe_id is None:
        owed = tx.row(f"SELECT {COLUMNS} FROM outbox WHERE retry_of = ? AND settled_at IS NULL", (now.id,))
        if owed is not None:
            return _now(tx, obligation(owed), at=at)
    elif dedupe_id != now.dedupe_id:
        made = read_by_dedupe_id(tx, dedupe_id)
        if made is not None and made.retry_of == now.id:
            return made  # asked for before; what it repeats may have been blanked since
        if made is not None:
            raise IdempotencyConflict(
                f"Obligation {dedupe_id!r} in {tx.path} is there and repeats another one than {now.dedupe_id!r}.",
                hint="Give another dedupe_id, or none: one is made then.", path=tx.path, key=dedupe_id,
                existing_id=made.id,
            )
    else:
        raise InvalidInput(
            f"Obligation {now.dedupe_id!r} in {tx.path} is {now.state}; owed again it needs another id.",
            hint="Give another dedupe_id, or none: one is made then.", argument="dedupe_id",
        )
    refuse_retry(tx.path, now)
    return append(
        tx, dedupe_id=_another(tx, now) if dedupe_id is None else dedupe_id, kind=now.kind, transport=now.transport,
        payload=now.payload, policy=now.policy, target=now.target, lane=now.lane, batch=now.batch,
        priority=now.priority, schedule=now.schedule, at=at, retry_of=now.id,
    ).obligation


def end(tx: Transaction, number: int, event: Event, reason: str, *, at: float) -> Obligation:
    """See `Outbox.drop` and `Outbox.suppress`."""
    now = read(tx, number)
    if now is None:
        raise not_found(tx.path, number)
    refuse_end(tx.path, now)
    end_pending(tx, now, event, reason, at=at)
    return _again(tx, now)


def _now(tx: Transaction, one: Obligation, *, at: float) -> Obligation:
    """Make a pending one due."""
    refuse_retry(tx.path, one)
    if one.due_at <= at:
        return one
    tx.execute(
        "UPDATE outbox SET due_at = ?, due_within = ? WHERE id = ?", (at, one.schedule.within(), one.id)
    )
    record(tx, "outbox", one.dedupe_id, "update", at)
    return _again(tx, one)


def _another(tx: Transaction, one: Obligation) -> str:
    """An id for its repetition that no row has: its own with a number, which a very long one is shortened for."""
    base = one.dedupe_id
    if len(base) > MOST_CHARACTERS - 32:
        base = f"{base[:MOST_CHARACTERS - 80]}#{hashlib.sha256(base.encode()).hexdigest()[:32]}"
    (before,) = tx.rows("SELECT count(*) FROM outbox WHERE retry_of = ?", (one.id,))[0]
    number = before + 1
    while read_by_dedupe_id(tx, f"{base}#retry-{number}") is not None:
        number += 1
    return f"{base}#retry-{number}"


def _again(tx: Transaction, one: Obligation) -> Obligation:
    found = read(tx, one.id)
    assert found is not None
    return found
