"""Items of lanes, in the caller's transaction: added, taken, dropped.

Invariant: the order of a lane is the order of the commits that added to it. An item ends once: taken, with the message
that has it, or dropped, with the reason. The same key is the same item; its content, as long as it is here, is not
another. What came for a conversation that was reset since is dropped by name, never shown to the next one. What no
message could hold is refused when it comes, so that no item ever blocks its lane.

Not for: when they are taken (see `lanes`). One slot a chat, as hermes-agent has it in memory, was rejected: the second
message replaces the first, and a restart loses both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.changes.records import record
from hermes_state.errors import IdempotencyConflict, InvalidInput
from hermes_state.outbox.inputs import levels, text
from hermes_state.routing.homes import Home
from hermes_state.routing.records import read as read_route

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# The largest item, in bytes of JSON: as an obligation.
MOST_BYTES = 1_048_576
# Longest key; leaves room for what is put before it. A lane is a session key, which may be longer.
MOST_KEY, MOST_LANE = 480, 4_000
# Levels of a message around the details of an item: its extra fields, their list, the item's own.
_AROUND_DETAILS = 3
COLUMNS = (
    "no, home, lane, item_key, kind, label, content, details, generation, state, came_at, settled_at, session_id,"
    " message_id, reason"
)


class ItemKind(StrEnum):
    """What an item is."""

    FOLLOW_UP = "follow_up"  # somebody wrote it: it asks for a turn
    MIRROR = "mirror"  # cron delivered it there: it waits for a turn


class ItemState(StrEnum):
    """Where an item stands. All but the first are terminal."""

    WAITING = "waiting"
    TAKEN = "taken"  # a message of a session has it
    DROPPED = "dropped"  # it will be in none


class ItemEvent(StrEnum):
    """What can happen to it."""

    TAKE = "take"
    DROP = "drop"


TABLE: Mapping[tuple[ItemState, ItemEvent], ItemState] = {
    (ItemState.WAITING, ItemEvent.TAKE): ItemState.TAKEN,
    (ItemState.WAITING, ItemEvent.DROP): ItemState.DROPPED,
}


@dataclass(frozen=True, kw_only=True)
class Item:
    """One row."""

    no: int  # the order in which they came
    home: str  # store_id
    lane: str  # session key of the chat
    key: str  # the sender's
    kind: ItemKind
    label: str | None  # what a mirror begins with
    content: Any  # a text, or a list of parts as a message has them; None once it is taken
    details: Any  # the sender's, such as who wrote it; it is kept in `extra` of the message
    generation: int | None  # of the chat's conversation when it came; None: it is for any
    state: ItemState
    came_at: float  # epoch seconds UTC
    settled_at: float | None  # epoch seconds UTC; None while it waits
    session_id: str | None  # where it was taken to
    message_id: int | None  # the message that has it
    reason: str | None  # why it was dropped


def add(
    tx: Transaction, lane: str, key: str, content: Any, home: Home, *, kind: ItemKind, label: str | None, details: Any,
    at: float,
) -> tuple[Item, bool]:
    """Add one; gives it, and whether it is new. A guarded transaction only. Raises `IdempotencyConflict`."""
    text("lane", lane, most=MOST_LANE, of="")
    text("key", key, most=MOST_KEY, of=" of an item")
    if not isinstance(content, (str, list)) or not content:
        raise InvalidInput(
            f"content of an item is a text or a list of parts, not empty, not {content!r:.80}.", argument="content"
        )
    stored, kept = _json("content", content), None if details is None else _json("details", details, _AROUND_DETAILS)
    row = tx.row(f"SELECT {COLUMNS} FROM lane_items WHERE lane = ? AND item_key = ?", (lane, key))
    if row is not None:
        there = item_of(row)
        # Of a taken one the content is with its message; a digest of it here would tell what was scrubbed there.
        if there.state is not ItemState.TAKEN and _json("content", there.content) != stored:
            raise IdempotencyConflict(
                f"Item {key!r} of lane {lane!r} is in {tx.path} with other content.",
                hint="Give every item a key of its own, and a repeated one the same content.", path=tx.path, key=key,
            )
        return there, False
    tx.execute(
        "INSERT INTO lane_items (home, lane, item_key, kind, label, content, details, generation, came_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            home.store_id, lane, key, str(kind), label, stored, kept,
            _generation(tx, lane) if kind is ItemKind.FOLLOW_UP else None, at,
        ),
    )
    number = tx.last_insert_rowid()
    record(tx, "lane_items", str(number), "insert", at)
    found = read(tx, number)
    assert found is not None
    return found, True


def waiting(reader: Reader, lane: str, *, limit: int, generation: int = 0) -> list[Item]:
    """The first `limit` that wait in a lane and are for that generation or a later one, or for any; in order."""
    return [
        item_of(row) for row in reader.rows(
            f"SELECT {COLUMNS} FROM lane_items WHERE lane = ? AND state = 'waiting'"
            " AND (generation IS NULL OR generation >= ?) ORDER BY no LIMIT ?", (lane, generation, limit),
        )
    ]


def late(reader: Reader, lane: str, generation: int, *, limit: int) -> list[Item]:
    """The first `limit` that wait in a lane for a conversation that was reset since."""
    return [
        item_of(row) for row in reader.rows(
            f"SELECT {COLUMNS} FROM lane_items WHERE lane = ? AND state = 'waiting' AND generation < ?"
            " ORDER BY no LIMIT ?", (lane, generation, limit),
        )
    ]


def first_follow_up(reader: Reader, lane: str, generation: int) -> int | None:
    """Which place the first follow-up has among what waits for that generation, from 1; None: there is none."""
    row = reader.row(
        "SELECT place FROM (SELECT kind, row_number() OVER (ORDER BY no) AS place FROM lane_items WHERE lane = ?"
        " AND state = 'waiting' AND (generation IS NULL OR generation >= ?)) WHERE kind = 'follow_up'"
        " ORDER BY place LIMIT 1",
        (lane, generation),
    )
    return None if row is None else int(row[0])


def taken(tx: Transaction, items: Sequence[Item], session_id: str, message_id: int, *, at: float) -> None:
    """A message of the session has them: their content is there, and not kept here a second time."""
    for one in items:
        _end(tx, one, ItemEvent.TAKE, at=at, session_id=session_id, message_id=message_id, content=None, details=None)


def dropped(tx: Transaction, items: Sequence[Item], reason: str, *, at: float) -> None:
    """They will be in no message; what they say stays readable."""
    for one in items:
        _end(tx, one, ItemEvent.DROP, at=at, reason=reason)


def read(reader: Reader, number: int) -> Item | None:
    """One item."""
    row = reader.row(f"SELECT {COLUMNS} FROM lane_items WHERE no = ?", (number,))
    return None if row is None else item_of(row)


def item_of(row: Sequence[Any]) -> Item:
    """A row of `COLUMNS`."""
    (
        no, home, lane, key, kind, label, content, details, generation, state, came_at, settled_at, session_id,
        message_id, reason,
    ) = row
    return Item(
        no=no, home=home, lane=lane, key=key, kind=ItemKind(kind), label=label,
        content=None if content is None else json.loads(content),
        details=None if details is None else json.loads(details), generation=generation, state=ItemState(state),
        came_at=came_at, settled_at=settled_at, session_id=session_id, message_id=message_id, reason=reason,
    )


# --- inside ------------------------------------------------------------------------------------------------------


def _end(tx: Transaction, item: Item, event: ItemEvent, *, at: float, **changes: Any) -> None:
    changes |= {"state": str(TABLE[item.state, event]), "settled_at": at}
    tx.execute(
        f"UPDATE lane_items SET {', '.join(f'{name} = ?' for name in changes)} WHERE no = ?",
        (*changes.values(), item.no),
    )
    record(tx, "lane_items", str(item.no), "update", at)


def _generation(tx: Transaction, lane: str) -> int | None:
    """Of the conversation that answers what comes now: the chat's, or its next one when that does not go on."""
    route = read_route(tx, lane)
    return None if route is None else route.generation + (0 if route.goes_on else 1)


def size_of(item: Item) -> int:
    """Characters that an item adds to a message, with what is kept beside its text."""
    beside = 0 if item.details is None else len(json.dumps(item.details, ensure_ascii=False))
    return beside + (len(item.content) if isinstance(item.content, str) else len(str(item.content)))


def _json(name: str, value: Any, around: int = 0) -> str:
    """`around`: levels of the message that are put around it when it is taken."""
    levels(name, value, of="an item")
    try:
        json_values.check(value, json_values.MOST_LEVELS - around)
    except ValueError as error:
        raise InvalidInput(
            f"The {name} of an item cannot be written as JSON: it is more than {json_values.MOST_LEVELS - around}"
            " levels deep.", hint="Store what is deeper as text within it.", argument=name,
        ) from error
    try:
        stored = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
        size = len(stored.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{name} of an item is JSON without lone surrogates: {error}.",
            hint="Decode texts with errors='replace'.", argument=name,
        ) from error
    if size > MOST_BYTES:
        raise InvalidInput(
            f"{name} of an item has {size:,} bytes; {MOST_BYTES:,} is the most.",
            hint="Store what is large as a file, and name it.", argument=name, size=size,
        )
    return stored
