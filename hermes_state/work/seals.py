"""The seal of a turn's reply, in the caller's transaction: begun, declared final, shown.

Invariant: a turn has one reply and one seal. The seal, what is owed to the platform (one obligation of the outbox for
each final that is another text) and whatever the caller writes beside commit together. A final that says what counts
already owes nothing, unless that was given up; another one owes an edit, behind the first in the reply's lane, and what
nobody began to send of an earlier one is taken back. What goes with a final goes out once a turn, however often it is
named. That the platform has a final, or will not get it, is written in the transaction that settles its obligation.

Not for: texts and attempts, which the outbox has. A second row for a corrected final was rejected: two rows can both
believe that they are the reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.changes.records import record
from hermes_state.errors import InvalidInput, ReplyEnded, ReplyNotFound
from hermes_state.outbox import Claim, Obligation, Policy, State, append
from hermes_state.outbox.inputs import text
from hermes_state.outbox.records import read, read_by_dedupe_id
from hermes_state.outbox.verdicts import Accepted, Verdict
from hermes_state.routing.homes import Home, guard
from hermes_state.work.reply_media import lane_of, left_out, owe_media, take_back, taken_back
from hermes_state.work.reply_states import TABLE, Refusal, ReplyEvent, ReplyState

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Kind of the obligation that has the text of a reply; what goes with it is of kind MEDIA.
FINAL = "final"
# Leaves room for what is put before and behind it in the ids of the outbox, which have 512 characters.
MOST_TURN_ID = 400
# Of a final as JSON: three quarters of what an obligation holds; the rest is for details.
MOST_BYTES = 786_432
COLUMNS = (
    "turn_id, home, transport, target, state, streamed, message_id, finals, sealed_digest, final_digest, shown_digest,"
    " opened_at, sealed_at, changed_at"
)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One row: the reply of one turn."""

    turn_id: str
    home: str  # store_id of the home that the turn runs in
    transport: str  # as in the outbox
    target: str  # whom it is for, in the transport's words
    state: ReplyState
    streamed: bool  # it was begun before its final: something of it may be shown
    message_id: str | None  # the platform's message that has it and can be edited; None: none is known
    finals: int  # how many were declared: the first is the seal, later ones correct it
    sealed_digest: bytes | None  # SHA-256 of the text that sealed it
    final_digest: bytes | None  # of the text that counts now
    shown_digest: bytes | None  # of the text that the platform is known to have
    opened_at: float  # epoch seconds UTC
    sealed_at: float | None  # epoch seconds UTC; None: not sealed
    changed_at: float  # epoch seconds UTC


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What declaring a final came to."""

    reply: Reply
    # what is owed to the platform for the text now; None: it says what counts already
    owed: Obligation | None
    # what is owed now of what goes with it: each thing once a turn
    media: tuple[Obligation, ...]
    # whether an earlier final is corrected by it: the platform's message is edited, and none is sent beside it
    reconciles: bool


def digest_of(final: str) -> bytes:
    """What a final is known by: SHA-256 of its UTF-8, as it is owed."""
    return hashlib.sha256(final.encode("utf-8", "backslashreplace")).digest()


def obligation_id(turn_id: str, number: int) -> str:
    """The dedupe id of the obligation of a turn's final of that number; the id of a turn has no #."""
    return f"{FINAL}/{turn_id}" if number == 1 else f"{FINAL}/{turn_id}#{number}"


def find(reader: Reader, turn_id: str) -> Reply | None:
    """The reply of a turn."""
    row = reader.row(f"SELECT {COLUMNS} FROM reply_seals WHERE turn_id = ?", (turn_id,))
    return None if row is None else reply_of(row)


def need(reader: Reader, turn_id: str) -> Reply:
    """As `find`. Raises `ReplyNotFound`."""
    found = find(reader, turn_id)
    if found is None:
        raise ReplyNotFound(
            f"No reply of turn {turn_id!r} was begun in {reader.path}.",
            hint="Begin it, or say its transport and target with its final.", path=reader.path, turn_id=turn_id,
        )
    return found


def reply_of(row: Sequence[Any]) -> Reply:
    """A row of `COLUMNS`."""
    (
        turn_id, home, transport, target, state, streamed, message_id, finals, sealed, final, shown, opened_at,
        sealed_at, changed_at,
    ) = row
    return Reply(
        turn_id=turn_id, home=home, transport=transport, target=target, state=ReplyState(state),
        streamed=bool(streamed), message_id=message_id, finals=finals, sealed_digest=sealed, final_digest=final,
        shown_digest=shown, opened_at=opened_at, sealed_at=sealed_at, changed_at=changed_at,
    )


def begin(
    tx: Transaction, turn_id: str, home: Home, *, transport: str, target: str, at: float,
    message_id: str | None = None, streamed: bool = True,
) -> Reply:
    """Begin the reply of a turn, or find it begun. What the platform calls its message may come later (`message`).

    Raises `WrongHome`, `HomeRemoved`, `InvalidInput`, `ReplyEnded` for one that is sealed or abandoned.
    """
    guard(tx, home)
    _turn_id(turn_id)
    text("transport", transport, of=" of a reply")
    text("target", target, empty=True, of=" of a reply")
    there = find(tx, turn_id)
    if there is not None:
        _refuse_other_place(tx, there, transport, target)
        if there.state is not ReplyState.STREAMING:
            raise _ended(tx, there, "cannot be begun")
        return there if message_id is None else message(tx, turn_id, home, message_id, at=at)
    tx.execute(
        "INSERT INTO reply_seals (turn_id, home, transport, target, streamed, message_id, opened_at, changed_at)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
        (turn_id, home.store_id, transport, target, int(streamed), _message_id(message_id), at),
    )
    record(tx, "reply_seals", turn_id, "insert", at)
    return need(tx, turn_id)


def message(tx: Transaction, turn_id: str, home: Home, message_id: str | None, *, at: float) -> Reply:
    """Keep which message of the platform has the reply; None: that one cannot be edited any more, whoever tries.

    Once a message is known to have a final, the name of the stream's own comes too late and changes nothing.
    """
    guard(tx, home)
    now = need(tx, turn_id)
    wanted = _message_id(message_id)
    late = wanted is not None and now.message_id is not None and now.shown_digest is not None
    return now if late or now.message_id == wanted else _write(tx, now, at=at, message_id=wanted)


def finish(
    tx: Transaction, turn_id: str, final: str, home: Home, *, at: float, transport: str | None = None,
    target: str | None = None, media: Sequence[Any] = (), details: Any = None,
) -> Finished:
    """Declare the final of a turn, whole: everything that is added after the stream is in it. At `power`.

    The first one seals the reply. The same text again owes nothing, unless its sending was given up; another one is
    owed as an edit of the same message. A text of more than 768 KiB is cut and says so: no platform takes it whole, and
    it is in the session. `transport` and `target` are needed where the reply was not begun, and are those of its
    beginning where it was. `media`: what goes with it, JSON, each an obligation of kind "media" behind the text, once a
    turn; `details`: JSON for the sender. Raises `ReplyNotFound`, `ReplyEnded` (abandoned), `WrongHome`, `HomeRemoved`,
    `InvalidInput`.
    """
    guard(tx, home)
    if not isinstance(final, str) or not final:
        raise InvalidInput("A final is a text, not empty.", argument="final")
    final = _fitting(final)
    digest = digest_of(final)
    _turn_id(turn_id)
    now = find(tx, turn_id)
    if now is None:
        if transport is None or target is None:
            need(tx, turn_id)
        now = begin(tx, turn_id, home, transport=transport or "", target=target or "", at=at, streamed=False)
    else:
        _refuse_other_place(tx, now, transport, target)
    event = (
        ReplyEvent.FINAL if now.finals == 0
        else ReplyEvent.SAME_FINAL if now.final_digest == digest else ReplyEvent.OTHER_FINAL
    )
    state = TABLE[now.state, event]
    if isinstance(state, Refusal):
        raise _ended(tx, now, "takes no final")
    again = event is ReplyEvent.SAME_FINAL and now.state is ReplyState.GIVEN_UP
    waiting = next(iter(_unsettled(tx, turn_id, now.finals)), None) if again else None
    if event is ReplyEvent.SAME_FINAL and (not again or waiting is not None):  # a person owes it again already
        return Finished(
            reply=now, owed=waiting, media=owe_media(tx, now, media, details, at=at), reconciles=False
        )
    number = now.finals + 1
    changes: dict[str, Any] = {"state": str(state), "finals": number, "final_digest": digest}
    if number == 1:
        changes |= {"sealed_digest": digest, "sealed_at": at}
    reply = _write(tx, now, at=at, **changes)
    for earlier in _unsettled(tx, turn_id, None):
        take_back(tx, earlier, at=at)
    moved = taken_back(tx, reply, at=at)
    owed = append(
        tx, dedupe_id=obligation_id(turn_id, number), kind=FINAL, transport=reply.transport, target=reply.target,
        lane=lane_of(turn_id), policy=Policy.AT_LEAST_ONCE, at=at,
        payload={"turn_id": turn_id, "final": number, "text": final, "details": details},
    ).obligation
    return Finished(
        reply=reply, owed=owed, media=owe_media(tx, reply, [*left_out(moved, media), *media], details, at=at),
        reconciles=number > 1 and (now.state is not ReplyState.GIVEN_UP or now.shown_digest is not None),
    )


def _fitting(final: str) -> str:
    """A final as an obligation can hold it: a lone surrogate is its escape; what is too large is cut and says so."""
    plain = final.encode("utf-8", "backslashreplace").decode()
    size = len(json_values.ENCODER.encode(plain).encode())
    kept = plain
    while size > MOST_BYTES and kept:
        kept = kept[: max(0, len(kept) * MOST_BYTES // size - 64)]
        size = len(json_values.ENCODER.encode(kept).encode())
    return plain if kept == plain else f"{kept}... ({len(plain):,} characters)"


def abandon(tx: Transaction, turn_id: str, home: Home, *, at: float) -> Reply:
    """End a reply without a final. Raises `ReplyEnded` for one that is sealed: that is owed."""
    guard(tx, home)
    now = need(tx, turn_id)
    state = TABLE[now.state, ReplyEvent.ABANDON]
    if isinstance(state, Refusal):
        raise _ended(tx, now, "cannot be abandoned")
    return now if state is now.state else _write(tx, now, at=at, state=str(state))


def shown(tx: Transaction, claimed: Claim, verdict: Verdict, *, at: float) -> None:
    """What an accepted claim says of the replies it was of; in the transaction that settles it.

    `message_id` in the verdict's result is the platform's message that has the text now.
    """
    if not isinstance(verdict, Accepted):
        return
    for one in claimed:
        if one.kind != FINAL or not isinstance(one.payload, dict):
            continue
        now = find(tx, str(one.payload.get("turn_id")))
        if now is None or not 1 <= one.payload.get("final", 0) <= now.finals:
            continue  # its reply was forgotten
        newest = one.payload["final"] == now.finals
        state = TABLE[now.state, ReplyEvent.SHOWN if newest else ReplyEvent.SHOWN_EARLIER]
        changes: dict[str, Any] = {"state": str(state)}
        if newest:  # not computed from the payload: a scrub may have replaced words of it since
            changes["shown_digest"] = now.final_digest
        elif state is not ReplyState.SEALED:
            changes["shown_digest"] = digest_of(str(one.payload["text"]))
        given = verdict.result.get("message_id")
        if isinstance(given, (str, int)) and not isinstance(given, bool) and str(given):
            changes["message_id"] = str(given)
        _write(tx, now, at=at, **changes)


def known_message(reader: Reader, reply: Reply) -> str | None:
    """The platform's message that has the reply, also where its verdict was written by the outbox alone."""
    if reply.message_id is not None or reply.shown_digest is not None:
        return reply.message_id  # None here: it cannot be edited any more
    for owed in _owed(reader, reply):
        result = (owed.verdict or {}).get("result") if owed.state is State.ACCEPTED else None
        if isinstance(result, dict) and isinstance(result.get("message_id"), (str, int)):
            return str(result["message_id"])
    return None


def may_be_shown(reader: Reader, reply: Reply) -> bool:
    """Whether something of the reply may be with its receiver, whatever is known of a message."""
    return (
        reply.message_id is not None or reply.streamed or reply.shown_digest is not None
        or any(owed.recovered or owed.state is State.ACCEPTED for owed in _owed(reader, reply))
    )


# --- inside ------------------------------------------------------------------------------------------------------


def _turn_id(given: Any) -> None:
    text("turn_id", given, most=MOST_TURN_ID, of=" of a reply")
    if "#" in given:
        raise InvalidInput(
            f"turn_id of a reply is {given!r:.80}; no # may be in it.",
            hint="The ids of its finals are made of it, with that before their number.", argument="turn_id",
        )


def _unsettled(reader: Reader, turn_id: str, number: int | None) -> list[Obligation]:
    """What is owed of a turn's final of that number, or of every one, also what a person owes again."""
    found = [
        read(reader, owed) for (owed,) in reader.rows(
            "SELECT id FROM outbox WHERE settled_at IS NULL AND lane = ? AND kind = ? ORDER BY id",
            (lane_of(turn_id), FINAL),
        )
    ]
    return [
        one for one in found if one is not None and (
            number is None or (isinstance(one.payload, dict) and one.payload.get("final") == number)
        )
    ]


def _owed(reader: Reader, reply: Reply) -> Iterator[Obligation]:
    """The obligations of its finals that the outbox still knows."""
    for number in range(1, reply.finals + 1):
        owed = read_by_dedupe_id(reader, obligation_id(reply.turn_id, number))
        if owed is not None:
            yield owed


def _message_id(given: Any) -> str | None:
    return None if given is None else text("message_id", str(given), of=" of a reply")


def _refuse_other_place(tx: Transaction, now: Reply, transport: str | None, target: str | None) -> None:
    if transport not in (None, now.transport) or target not in (None, now.target):
        raise InvalidInput(
            f"The reply of turn {now.turn_id!r} in {tx.path} goes to {now.transport} {now.target!r}, not to"
            f" {transport} {target!r}.",
            hint="A turn has one reply; what goes elsewhere is another obligation.", argument="target",
        )


def _ended(tx: Transaction, now: Reply, what: str) -> ReplyEnded:
    return ReplyEnded(
        f"The reply of turn {now.turn_id!r} in {tx.path} is {now.state} and {what}.",
        hint="A sealed reply is corrected with another final; an abandoned one is over.",
        path=tx.path, turn_id=now.turn_id, state=now.state,
    )


def _write(tx: Transaction, now: Reply, *, at: float, **changes: Any) -> Reply:
    names = ", ".join(f"{name} = ?" for name in changes)
    tx.execute(
        f"UPDATE reply_seals SET {names}, changed_at = ? WHERE turn_id = ?", (*changes.values(), at, now.turn_id)
    )
    record(tx, "reply_seals", now.turn_id, "update", at)
    return need(tx, now.turn_id)
