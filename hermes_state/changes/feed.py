"""Reading the feed: where it stands, and what came after a position.

Invariant: a batch is read in one snapshot, so its position and its changes agree: nothing is given twice and nothing is
passed over. What cannot be told any more (the feed was trimmed past the position, or the store's content was replaced)
is a gap: no changes, the present position, and the reader looks at everything anew and goes on from there.

Not for: the content of what changed. One order over both kinds of id was rejected: an append would write a second row.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hermes_state.changes.records import Operation
from hermes_state.errors import InvalidInput, NotAStore
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_state.engine import Reader, ReadStore


# What a deletion has left of a session (see conversation/removal.py): its messages are those of a branch that shares
# them, or are about to be removed and those of nobody.
_LEFT_OVER = (
    "({0}.hidden = 1 AND {0}.active_at = 0 AND coalesce({0}.end_reason, '') IN ('being_deleted', 'kept_for_branches'))"
)
_SHOWN_UNDER = f"""
(WITH RECURSIVE below (no, at, step) AS (
    SELECT b.no, m.seq - b.branched_at_seq, 1 FROM sessions b
        WHERE b.parent_no = s.no AND b.relation = 'branch' AND b.branched_at_seq >= m.seq
    UNION SELECT c.no, below.at - c.branched_at_seq, below.step + 1 FROM below
        JOIN sessions b ON b.no = below.no
        JOIN sessions c ON c.parent_no = b.no AND c.relation = 'branch' AND c.branched_at_seq >= below.at
        WHERE {_LEFT_OVER.format('b')} AND below.step < 1000
)
SELECT b.id FROM below JOIN sessions b ON b.no = below.no
WHERE NOT {_LEFT_OVER.format('b')} ORDER BY below.step, b.no LIMIT 1)
"""


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a reader has come. Valid for one store and one content of it."""

    store_id: str  # whose feed
    incarnation: str  # of which content; another one after every adopt, restore, install and repair
    message_id: int  # highest message id seen
    change_id: int  # highest id of a change seen

    def to_json(self) -> str:
        """A text that `from_json` reads in any process."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Position:
        """Raises `InvalidInput` for anything that `to_json` did not write."""
        try:
            record = json.loads(text)
            found = cls(
                store_id=record["store_id"], incarnation=record["incarnation"], message_id=record["message_id"],
                change_id=record["change_id"],
            )
        except (ValueError, TypeError, KeyError) as error:
            raise _no_position(text) from error
        if type(found.message_id) is not int or type(found.change_id) is not int:
            raise _no_position(text)
        return found


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change."""

    id: int  # message id for an appended message, else the id within the feed of changes; two orders of their own
    table_name: str  # "messages" for an appended message, else the table that changed
    key: str  # public id of the row: for a message its id
    operation: Operation  # appended messages are inserts
    at: float  # epoch seconds UTC; for people, not for order
    session_id: str | None  # of a message, and of a change of "sessions"; a branch for what is kept of its parent


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What came after a position."""

    changes: tuple[Change, ...]  # first the changes by id, then the appended messages by id
    position: Position  # from where to go on
    gap: bool  # True: what happened cannot be told; look at everything anew
    more: bool  # True: the limit cut the batch; ask again from `position`


def position_of(reader: Reader) -> Position:
    """Where the feed of a native store stands."""
    row = reader.row(
        "SELECT store_id, incarnation, max(message_floor, coalesce((SELECT max(id) FROM messages), 0)),"
        " max(change_floor, coalesce((SELECT max(id) FROM changes), 0)) FROM store"
    )
    if row is None:
        raise NotAStore(
            f"{reader.path} has no identity row.", hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}`.",
            path=reader.path,
        )
    store_id, incarnation, message_id, change_id = row
    return Position(store_id=store_id, incarnation=incarnation, message_id=message_id, change_id=change_id)


def since(reader: ReadStore, position: Position, *, limit: int = 500) -> Batch:
    """Up to `limit` changes after `position`, read in a snapshot of its own."""
    with reader.snapshot():
        return read_batch(reader, position, limit=limit)


def read_batch(reader: Reader, position: Position, *, limit: int = 500) -> Batch:
    """The same inside a snapshot or a transaction of the caller's."""
    if limit < 1:
        raise InvalidInput(f"A batch of {limit} changes was asked for.", hint="Give 1 or more.", limit=limit)
    now = position_of(reader)
    floor = reader.rows("SELECT change_floor FROM store")[0][0]
    if (
        (position.store_id, position.incarnation) != (now.store_id, now.incarnation)
        or position.change_id < floor
        or position.change_id > now.change_id
        or position.message_id > now.message_id
    ):
        return Batch(changes=(), position=now, gap=True, more=False)
    changes = reader.rows(
        "SELECT id, table_name, key, operation, at FROM changes WHERE id > ? ORDER BY id LIMIT ?",
        (position.change_id, limit),
    )
    left = limit - len(changes)
    messages = reader.rows(
        f"SELECT m.id, CASE WHEN {_LEFT_OVER.format('s')} THEN {_SHOWN_UNDER} ELSE s.id END, m.created_at"
        " FROM messages AS m JOIN sessions AS s ON s.no = m.session_no WHERE m.id > ? ORDER BY m.id LIMIT ?",
        (position.message_id, left),
    )
    change_id, message_id = now.change_id, now.message_id
    if not left:
        # The other feed was not looked at, or not to its end.
        change_id, message_id = changes[-1][0], position.message_id
    elif len(messages) == left:
        message_id = messages[-1][0]
    reached = Position(
        store_id=now.store_id, incarnation=now.incarnation, message_id=message_id, change_id=change_id
    )
    return Batch(
        changes=(
            *(
                Change(
                    id=number, table_name=table, key=key, operation=operation, at=at,
                    session_id=key if table == "sessions" else None,
                )
                for number, table, key, operation, at in changes
            ),
            *(
                Change(
                    id=number, table_name="messages", key=str(number), operation="insert", at=at, session_id=session
                )
                for number, session, at in messages
                if session is not None
            ),
        ),
        position=reached, gap=False, more=reached != now,
    )


def keys_since(
    reader: ReadStore, position: Position, table_name: str, *, most: int = 1000
) -> tuple[frozenset[str] | None, Position]:
    """The keys of one table that changed after `position`, and the position to go on from; messages are not read.

    None instead of keys when they cannot be told (a gap), or are more than `most`: look at everything anew.
    """
    with reader.snapshot():
        now = position_of(reader)
        floor = reader.rows("SELECT change_floor FROM store")[0][0]
        same = (position.store_id, position.incarnation) == (now.store_id, now.incarnation)
        if not same or not floor <= position.change_id <= now.change_id:
            return None, now
        rows = reader.rows(
            "SELECT key FROM changes WHERE id > ? AND table_name = ? LIMIT ?",
            (position.change_id, table_name, most + 1),
        )
    return (None if len(rows) > most else frozenset(key for (key,) in rows)), now


def moved(reader: Reader, position: Position) -> bool:
    """Whether `since` has anything to say: a change, or a gap."""
    return position_of(reader) != position


def _no_position(text: str) -> InvalidInput:
    return InvalidInput(
        f"{text[:80]!r} is no position of a change feed.", hint="Keep what Position.to_json() gave.", text=text
    )
