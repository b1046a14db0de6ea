"""The newest messages and changes of a store, and what comes after them.

Invariant: what was printed is not printed again and nothing between is passed over: each step starts at the id that the
last one ended at, and reads in one snapshot. A store is only ever read, between two steps not even that.

Not for: what a session looks like now (see `session_page`). Following times, not ids, was rejected: clocks go back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hermes_state.changes import Change, Position, position_of, read_batch
from maintenance.dialects.readable import preview_of

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore
    from maintenance.dialects.base import Dialect, MessageRow

BATCH = 200  # events read and printed at a time
PREVIEW_WIDTH = 100  # characters of a message


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the tail."""

    kind: Literal["message", "change", "gap"]  # gap: the feed no longer says what happened in between
    id: int  # message id, or id within the feed of changes
    at: float | None  # epoch seconds UTC; None when the row has no readable time
    session_id: str | None  # of a message, and of a change of a session
    role: str | None = None  # of a message: user, assistant, tool, system
    tool_name: str | None = None  # of a message of a tool
    preview: str | None = None  # of a message: its first words, on one line
    table: str | None = None  # of a change: which table
    key: str | None = None  # of a change: which row
    operation: str | None = None  # of a change: insert, update, delete


class Tail:
    """Reads a store from its end. Made for one open `ReadStore`, and used by one thread."""

    def __init__(self, store: ReadStore, dialect: Dialect) -> None:
        self._store = store
        self._dialect = dialect
        self._native = dialect.name == "native"
        self._message_id = 0
        self._position: Position | None = None

    def recent(self, count: int) -> list[Event]:
        """The newest `count` events, oldest first. `news` goes on from here."""
        with self._store.snapshot():
            self._message_id = self._dialect.newest_message(self._store)
            changes: Sequence[Change] = ()
            if self._native:
                self._position = position_of(self._store)
                changes = self._newest_changes(self._position, count)
            messages = list(self._messages(self._newest_ids(count)))
        # The ids of both kinds are orders of their own, so times are all there is to put them side by side.
        both = heapq.merge(map(_change_event, changes), messages, key=lambda event: event.at or 0.0)
        return list(both)[-count:] if count else []

    def moved(self) -> bool:
        """Whether `news` may have something to say."""
        if self._position is not None:
            return position_of(self._store) != self._position
        return self._dialect.newest_message(self._store) != self._message_id

    def news(self) -> Iterator[Event]:
        """What came since the last call, as it is read: changes by id, then messages by id, a batch at a time."""
        more = True
        while more:
            with self._store.snapshot():
                events, more = self._step()
            yield from events

    def _step(self) -> tuple[list[Event], bool]:
        if self._position is None:
            ids = [number for number, _ in self._dialect.messages_after(self._store, self._message_id)]
            part = ids[:BATCH]
            self._message_id = part[-1] if part else self._dialect.newest_message(self._store)
            return list(self._messages(part)), len(ids) > len(part)
        batch = read_batch(self._store, self._position, limit=BATCH)
        self._position = batch.position
        if batch.gap:
            return [Event(kind="gap", id=batch.position.change_id, at=None, session_id=None)], False
        ids = [change.id for change in batch.changes if change.table_name == "messages"]
        changes = [_change_event(change) for change in batch.changes if change.table_name != "messages"]
        return [*changes, *self._messages(ids)], batch.more

    def _newest_ids(self, count: int) -> list[int]:
        """The highest `count` ids; ids have holes, so the window grows until it holds enough."""
        window, ids = count, []
        while count:
            start = max(0, self._message_id - window)
            ids = [number for number, _ in self._dialect.messages_after(self._store, start)]
            if len(ids) >= count or not start:
                break
            window *= 4
        return ids[-count:] if count else []

    def _newest_changes(self, now: Position, count: int) -> Sequence[Change]:
        floor = self._store.rows("SELECT change_floor FROM store")[0][0]
        start = replace(now, change_id=max(floor, now.change_id - count))
        return read_batch(self._store, start, limit=max(count, 1)).changes if count else ()

    def _messages(self, ids: Sequence[int]) -> Iterator[Event]:
        for row in self._dialect.messages(self._store, ids):
            yield Event(
                kind="message", id=row.id, at=row.timestamp, session_id=row.session_id, role=row.role,
                tool_name=row.tool_name, preview=_preview(row),
            )


def _preview(row: MessageRow) -> str:
    if row.content in (None, "", []) and row.tool_calls:
        return "[tool calls]"
    return preview_of(row.content, PREVIEW_WIDTH)


def _change_event(change: Change) -> Event:
    return Event(
        kind="change", id=change.id, at=change.at, session_id=change.session_id, table=change.table_name,
        key=change.key, operation=change.operation,
    )
