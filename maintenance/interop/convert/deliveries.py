"""Rows of `delivery_obligations`, hermes-agent's ledger of final replies, as replies and obligations.

Invariant: what is not settled there, is younger than a day and has attempts left is owed here, at least once, behind a
seal of its own, and marked: the file may be older than what hermes-agent sent from it. What was delivered or given up
is history and is sent to nobody. What the outbox would have forgotten by now stays in the kept row.

Not for: whose claim a row was under: the file was adopted while nobody had it open. Sending what was never attempted
without the mark was rejected: `sessions adopt --to` makes stores of files that hermes-agent goes on sending from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput
from hermes_state.outbox import Policy, append
from hermes_state.outbox.inputs import text
from hermes_state.outbox.records import read_by_dedupe_id
from hermes_state.outbox.schedules import schedule_for
from hermes_state.outbox.settling import end_pending
from hermes_state.outbox.states import Event, State
from hermes_state.routing.homes import DEFAULT
from hermes_state.work import seals
from maintenance.dialects.native import owed
from maintenance.interop.adopt.survey import sane_time
from maintenance.interop.convert.records import Ready
from maintenance.interop.typed import Cell

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from hermes_state.routing import Home

DELIVERIES = "delivery_obligations"
# hermes-agent sends nothing that is older (facts on gateways, 3.8).
STALE_SECONDS = 86_400.0
OPEN = ("pending", "attempting", "failed")
# States that end, and what they are here.
_ENDED: Mapping[str, tuple[Event, str]] = {
    "delivered": (Event.ACCEPT, "hermes-agent delivered it"),
    "abandoned": (Event.DROP, "hermes-agent gave it up"),
}
_MARKED = "hermes-agent may have sent it before the store was adopted, or from the file that it was adopted from"
_PREFIX = "hermes-agent/"
# What a settled obligation here is called there, for the way back.
BACK: Mapping[State, str] = {
    State.ACCEPTED: "delivered", State.REFUSED: "abandoned", State.FAILED: "abandoned", State.UNKNOWN: "abandoned",
    State.DROPPED: "abandoned", State.SUPPRESSED: "abandoned",
}


@dataclass(frozen=True, kw_only=True)
class _Old:
    """One row, read and checked."""

    turn_id: str
    transport: str
    target: str
    content: str
    details: Mapping[str, Any]
    attempts: int
    made_at: float
    changed_at: float
    # how it ended there; None: it did not
    ended: tuple[Event, str] | None


def dedupe_id(obligation_id: str) -> str:
    """The id here of an obligation of hermes-agent."""
    return seals.obligation_id(_PREFIX + obligation_id, 1)


def obligations(home: Home, rows: Sequence[Mapping[str, Cell]]) -> Iterator[Ready | InvalidInput]:
    """Rows of the ledger, the oldest first, as they are to be sent."""
    for cells in rows:
        try:
            yield _ready(home, _read(cells), str(cells.get("obligation_id")))
        except InvalidInput as error:
            yield error


def _read(cells: Mapping[str, Cell]) -> _Old:
    state = cells.get("state")
    if state not in OPEN and state not in _ENDED:
        raise InvalidInput(f"Its state is {state!r:.80}, which no release of hermes-agent writes.")
    made, changed = sane_time(cells.get("created_at")), sane_time(cells.get("updated_at"))
    attempts, content = cells.get("attempts") or 0, cells.get("content")
    if made is None:
        raise InvalidInput(f"It does not say when it was made, but {cells.get('created_at')!r:.80}.")
    if type(attempts) is not int or not 0 <= attempts <= 1_000_000:
        raise InvalidInput(f"Its attempts are {attempts!r:.80}.")
    if not isinstance(content, str):
        raise InvalidInput("It has no text.")
    if (size := len(json.dumps(content, ensure_ascii=False).encode())) > seals.MOST_BYTES:
        raise InvalidInput(f"Its text has {size:,} bytes, and a reply here at most {seals.MOST_BYTES:,}.")
    said = {name: _text(cells, name) for name in ("session_key", "chat_id", "thread_id", "adapter_profile")}
    profile = said["adapter_profile"]
    platform = text("platform", cells.get("platform"), of=" of a delivery")
    return _Old(
        turn_id=_PREFIX + text("obligation_id", cells.get("obligation_id"), most=300, of=" of a delivery"),
        # A bot of another profile is another transport: none answers for another.
        transport=platform if profile in ("", DEFAULT) else f"{platform}/{profile}",
        target=f"{said['chat_id']}:{said['thread_id']}" if said["thread_id"] else said["chat_id"],
        content=content, details={"hermes_agent": {name: value for name, value in said.items() if value}},
        attempts=attempts, made_at=made, changed_at=made if changed is None else max(made, changed),
        ended=_ENDED.get(str(state)),
    )


def _text(cells: Mapping[str, Cell], name: str) -> str:
    cell = cells.get(name)
    given = "" if cell is None else str(cell) if isinstance(cell, int) else cell
    return text(name, given, empty=True, of=" of a delivery")


def _ready(home: Home, old: _Old, key: str) -> Ready:
    own = seals.obligation_id(old.turn_id, 1)

    def differs(reader: Reader) -> tuple[str, ...]:
        found = read_by_dedupe_id(reader, own)
        if found is None or not isinstance(found.payload, dict):
            return ("obligation_id",)
        same = {
            "content": found.payload.get("text") == old.content, "chat_id": found.target == old.target,
            "platform": found.transport == old.transport, "details": found.payload.get("details") == old.details,
            "attempts": found.attempts == old.attempts,
            "state": (found.settled_at is None) if old.ended is None else found.settled_at is not None,
        }
        if old.ended is None and found.settled_at is not None:  # too old, or out of attempts: see `_end_of`
            same["state"] = found.state in (State.DROPPED, State.SUPPRESSED)
        return tuple(name for name, equal in same.items() if not equal)

    return Ready(
        table=DELIVERIES, key=key, into="outbox", there=lambda reader: read_by_dedupe_id(reader, own) is not None,
        refuse=lambda _reader: None, write=lambda tx, at: _write(tx, home, old, own, at), differs=differs,
    )


def _end_of(old: _Old, at: float) -> tuple[Event, str] | None:
    """How it has ended, as hermes-agent would say at its next start; None: it is owed."""
    if old.ended is not None:
        return old.ended
    if at - old.made_at > STALE_SECONDS:
        return Event.SUPPRESS, "it is older than a day: hermes-agent sends nothing that is"
    if old.attempts >= schedule_for(seals.FINAL).attempts:
        return Event.DROP, "hermes-agent had no attempts left"
    return None


def _write(tx: Transaction, home: Home, old: _Old, own: str, at: float) -> None:
    ended = _end_of(old, at)
    if ended is None:
        seals.finish(
            tx, old.turn_id, old.content, home, at=at, transport=old.transport, target=old.target, details=old.details
        )
    else:
        append(
            tx, dedupe_id=own, kind=seals.FINAL, transport=old.transport, target=old.target,
            policy=Policy.AT_LEAST_ONCE, at=at, made_at=min(old.made_at, at),
            payload={"turn_id": old.turn_id, "final": 1, "text": old.content, "details": old.details},
        )
    one = read_by_dedupe_id(tx, own)
    assert one is not None
    if one.settled_at is not None:
        return
    tx.execute("UPDATE outbox SET attempts = ? WHERE id = ?", (old.attempts, one.id))
    if ended is None:
        owed.judge(tx, one.id, str(Policy.AT_LEAST_ONCE), _MARKED, at=at)
        record(tx, "outbox", own, "update", at)
        return
    one = read_by_dedupe_id(tx, own)
    assert one is not None
    end_pending(tx, one, ended[0], ended[1], at=min(max(old.changed_at, 0.0), at))
