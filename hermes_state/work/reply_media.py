"""What goes out with a turn's reply: pictures, files, sounds, each an obligation behind the text.

Invariant: a thing is known within its turn by its content, and goes out once: named again it owes nothing, unless it
was given up. What is not begun to be sent when another text is owed moves behind that.

Not for: the text (see `seals`). Ids by number of final and place were rejected: a correction sent every picture again.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.errors import InvalidInput
from hermes_state.outbox import Obligation, Policy, State, append
from hermes_state.outbox.records import read, read_by_dedupe_id
from hermes_state.outbox.settling import end_pending
from hermes_state.outbox.states import Event

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.work.seals import Reply

# Kind of the obligations.
MEDIA = "media"


def lane_of(turn_id: str) -> str:
    """The lane of the outbox that keeps what a turn says in order."""
    return f"reply/{turn_id}"


def owe_media(
    tx: Transaction, reply: Reply, media: Sequence[Any], details: Any, *, at: float
) -> tuple[Obligation, ...]:
    """Owe what was not sent and is not owed for this turn; gives what is new. Raises `InvalidInput`."""
    owed: list[Obligation] = []
    named: Counter[str] = Counter()
    for one in media:
        digest = _digest(one)
        named[digest] += 1  # the same thing twice in one list is meant twice
        known = f"{MEDIA}/{reply.turn_id}#{digest}.{named[digest]}"
        for dedupe_id in itertools.chain([known], (f"{known}.{number}" for number in itertools.count(2))):
            before = read_by_dedupe_id(tx, dedupe_id)
            if before is None:
                owed.append(append(
                    tx, dedupe_id=dedupe_id, kind=MEDIA, transport=reply.transport, target=reply.target,
                    lane=lane_of(reply.turn_id), policy=Policy.AT_LEAST_ONCE, at=at,
                    payload={"turn_id": reply.turn_id, "final": reply.finals, "media": one, "details": details},
                ).obligation)
            if before is None or before.settled_at is None or before.state is State.ACCEPTED:
                break
    return tuple(owed)


def taken_back(tx: Transaction, reply: Reply, *, at: float) -> list[Any]:
    """Take back what nobody began to send, so that it can be owed behind another text; gives it."""
    found = [
        read(tx, owed) for (owed,) in tx.rows(
            "SELECT id FROM outbox WHERE settled_at IS NULL AND lane = ? AND kind = ? ORDER BY id",
            (lane_of(reply.turn_id), MEDIA),
        )
    ]
    return [
        one.payload.get("media") for one in found
        if one is not None and isinstance(one.payload, dict) and take_back(tx, one, at=at)
    ]


def take_back(tx: Transaction, owed: Obligation, *, at: float) -> bool:
    """End what nobody began to send; what may be out keeps its place before what is newer."""
    if owed.state is not State.PENDING or owed.fence:
        return False
    end_pending(tx, owed, Event.SUPPRESS, "a newer final counts", at=at)
    return True


def left_out(moved: Sequence[Any], named: Sequence[Any]) -> list[Any]:
    """What of `moved` is not among `named`."""
    there = Counter(_digest(one) for one in named)
    left = []
    for one in moved:
        digest = _digest(one)
        if there[digest]:
            there[digest] -= 1
        else:
            left.append(one)
    return left


def _digest(media: Any) -> str:
    """What a thing is known by within its turn."""
    try:
        said = json_values.dump(media)
    except ValueError as error:
        raise InvalidInput(f"The media of a reply cannot be written as JSON: {error}.", argument="media") from error
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]
