"""The dialect of hermes-agent files: one object that puts the parts together.

Invariant: holds what the file's schema said when it was made, no connection and no rows. Not for: SQL; that is in the
modules beside it. What a listing does not need is imported when it is first used: a list should start at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import (
    LARGE,
    ChannelSize,
    Condition,
    ContentSizes,
    Deed,
    DeleteCounts,
    LineageRow,
    MessageRow,
    SearchIndex,
    SessionFacts,
    SessionRow,
    StoreCounts,
    StoreShape,
    UsageRow,
)
from maintenance.dialects.cells import chunks, key_bytes, key_list
from maintenance.dialects.foreign.content import content_sizes
from maintenance.dialects.foreign.fields import session_fields
from maintenance.dialects.foreign.messages import MessageReading
from maintenance.dialects.foreign.sessions import SessionReading
from maintenance.dialects.foreign.shape import has_index_on, read_shape
from maintenance.lineage import Forest, with_delegate_markers

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from maintenance.dialects.foreign.records import RecordReading

EVERYTHING = Condition()
# Older files carry no marker on delegates. Opening one with a newer release marks every child that is neither a branch
# nor a continuation; until then they are read as if that had been done.
FIRST_WITH_DELEGATE_MARKERS = 16


class ForeignDialect:
    """See `maintenance.dialects.base.Dialect` for what each method promises."""

    name = "foreign"

    def __init__(self, shape: StoreShape, *, message_times_indexed: bool) -> None:
        self.shape = shape
        self._fields = session_fields(frozenset(shape.session_columns), message_times_indexed=message_times_indexed)
        self._sessions = SessionReading(shape, self._fields, message_times_indexed=message_times_indexed)
        self._messages = MessageReading(shape)

    @classmethod
    def of(cls, reader: Reader) -> ForeignDialect:
        """The dialect of the file behind `reader`."""
        indexed = has_index_on(reader, "messages", ("session_id", "timestamp"))
        return cls(read_shape(reader), message_times_indexed=indexed)

    @cached_property
    def _records(self) -> RecordReading:
        from maintenance.dialects.foreign.records import RecordReading

        return RecordReading(self.shape)

    @property
    def is_native(self) -> bool:
        return False

    @property
    def fields(self) -> Mapping[str, str]:
        return self._fields

    @property
    def has_archived(self) -> bool:
        return "archived" in self.shape.session_columns

    @property
    def has_pinned(self) -> bool:
        return "pinned" in self.shape.session_columns

    def facts(self, reader: Reader, condition: Condition = EVERYTHING) -> Iterator[SessionFacts]:
        return self._sessions.facts(reader, condition)

    def sessions(self, reader: Reader, ids: Sequence[str]) -> dict[str, SessionRow]:
        return self._sessions.rows(reader, ids)

    def lineage(self, reader: Reader) -> list[LineageRow]:
        return self._marked(self._sessions.lineage(reader))

    def _ancestry(self, reader: Reader, ids: Sequence[str]) -> list[LineageRow]:
        """What tells the first segment of these sessions; guards are asked inside short transactions."""
        return self._marked(self._sessions.ancestry(reader, ids))

    def _marked(self, rows: list[LineageRow]) -> list[LineageRow]:
        version = self.shape.schema_version
        return rows if version is None or version >= FIRST_WITH_DELEGATE_MARKERS else with_delegate_markers(rows)

    def children(self, reader: Reader, ids: Sequence[str]) -> dict[str, frozenset[str]]:
        return self._sessions.children(reader, ids)

    def unnamed_sessions(self, reader: Reader) -> int:
        return self._sessions.unnamed(reader)

    def ids_with_prefix(self, reader: Reader, prefix: str, limit: int = -1) -> list[str]:
        return self._sessions.ids_with_prefix(reader, prefix, limit)

    def ids_with_title(self, reader: Reader, title: str, limit: int) -> list[str]:
        return self._sessions.ids_with_title(reader, title, limit)

    def previews(self, reader: Reader, ids: Sequence[str], width: int = 60) -> dict[str, str]:
        return self._messages.previews(reader, ids, width)

    def message_ids(self, reader: Reader, session_id: str, *, first: int = 0, last: int = 0) -> list[int]:
        return self._messages.ids(reader, session_id, first, last)

    def messages(self, reader: Reader, message_ids: Sequence[int]) -> Iterator[MessageRow]:
        return self._messages.rows(reader, message_ids)

    def newest_message(self, reader: Reader) -> int:
        return self._messages.newest(reader)

    def messages_after(self, reader: Reader, message_id: int) -> list[tuple[int, str]]:
        return self._messages.after(reader, message_id)

    def message_counts(self, reader: Reader, ids: Sequence[str]) -> dict[str, int]:
        return self._messages.counts(reader, ids)

    def message_bytes(self, reader: Reader, ids: Sequence[str]) -> dict[str, int]:
        return self._messages.sizes(reader, ids)

    def compaction_count(self, reader: Reader, ids: Sequence[str]) -> int:
        return 0  # a flag on each message

    def chat_count(self, reader: Reader, ids: Sequence[str]) -> int:
        return 0  # its own index is hermes-agent's, which finds out by itself

    def job_count(self, reader: Reader, ids: Sequence[str]) -> int:
        return 0  # hermes-agent keeps its jobs elsewhere

    def stored_bytes(self, reader: Reader) -> dict[str, int]:
        return self._messages.stored(reader)

    def role_counts(self, reader: Reader, session_id: str) -> dict[str, int]:
        return self._messages.roles(reader, session_id)

    def usage(self, reader: Reader, session_id: str) -> list[UsageRow]:
        return self._records.usage(reader, session_id)

    def session_count(self, reader: Reader) -> int:
        return self._sessions.count(reader)

    def counts(self, reader: Reader) -> StoreCounts:
        return self._sessions.counts(reader)

    def channels(self, reader: Reader) -> tuple[ChannelSize, ...]:
        return ()

    def content_sizes(self, reader: Reader) -> ContentSizes:
        return content_sizes(reader)

    def session_record(self, reader: Reader, session_id: str) -> dict[str, Any] | None:
        return self._records.session(reader, session_id)

    def message_records(self, reader: Reader, session_id: str, *, after: int = 0) -> Iterator[dict[str, Any]]:
        ids = self.message_ids(reader, session_id)
        return self._records.messages(reader, ids[bisect_right(ids, after) :] if after else ids)

    def usage_records(self, reader: Reader, session_id: str) -> list[dict[str, Any]]:
        return self._records.usage_rows(reader, session_id)

    def search_indexes(self, reader: Reader) -> tuple[SearchIndex, ...]:
        from maintenance.dialects.foreign.search_layout import search_indexes

        return search_indexes(reader)

    def guards(self, reader: Reader, ids: Sequence[str], now: float) -> dict[str, str]:
        from maintenance.dialects.foreign.guards import find_guards

        return find_guards(reader, self.shape, lambda: Forest(self._ancestry(reader, ids)), ids, now)

    def delete_sessions(
        self, tx: Transaction, ids: Sequence[str], deed: Deed | None = None, *, limit: int = LARGE
    ) -> DeleteCounts:
        from maintenance.dialects.foreign.deletes import delete_sessions

        return delete_sessions(tx, self.shape, ids)

    @property
    def drains(self) -> bool:
        return False

    def left_behind(self, reader: Reader) -> bool:
        return False

    def drain(self, tx: Transaction, limit: int) -> bool:
        return False

    def delete_messages(self, tx: Transaction, session_id: str, limit: int, deed: Deed | None = None) -> int:
        from maintenance.dialects.foreign.deletes import delete_messages

        return delete_messages(tx, self.shape, session_id, limit)

    def set_archived(
        self, tx: Transaction, ids: Sequence[str], archived: bool, deed: Deed | None = None
    ) -> int:
        clears = ", auto_archived = 0" if "auto_archived" in self.shape.session_columns else ""
        return self._set_flag(tx, "archived", clears, ids, archived) if self.has_archived else 0

    def set_pinned(
        self, tx: Transaction, ids: Sequence[str], pinned: bool, deed: Deed | None = None
    ) -> int:
        return self._set_flag(tx, "pinned", "", ids, pinned) if self.has_pinned else 0

    def _set_flag(self, tx: Transaction, column: str, clears: str, ids: Sequence[str], value: bool) -> int:
        changed = 0
        for part in chunks(ids):
            changed += tx.execute(
                f"UPDATE sessions SET {column} = ?{clears} WHERE id IN {key_list(len(part))}"
                f" AND coalesce({column}, -1) <> ?",
                [int(value), *(key_bytes(key) for key in part), int(value)],
            )
        return changed

    def set_title(
        self, tx: Transaction, session_id: str, title: str | None, deed: Deed | None = None
    ) -> str | None:
        from maintenance.dialects.foreign.titles import set_title

        columns = frozenset(self.shape.session_columns)
        return set_title(tx, Forest(self.lineage(tx)), columns, session_id, title)
