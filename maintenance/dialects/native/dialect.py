"""The dialect of native stores: one object that puts the parts together.

Invariant: holds what the file's schema said when it was made, no connection and no rows. Not for: SQL; that is in the
modules beside it. What a listing does not need is imported when it is first used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
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
from maintenance.dialects.native.fields import session_fields
from maintenance.dialects.native.messages import MessageReading, content_sizes
from maintenance.dialects.native.sessions import SessionReading
from maintenance.dialects.native.shape import read_native_shape

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

EVERYTHING = Condition()


class NativeDialect:
    """See `maintenance.dialects.base.Dialect` for what each method promises."""

    name = "native"

    def __init__(self, shape: StoreShape) -> None:
        self.shape = shape
        self._fields = session_fields(frozenset(shape.session_columns))
        self._sessions = SessionReading(self._fields)
        self._messages = MessageReading()

    @classmethod
    def of(cls, reader: Reader) -> NativeDialect:
        """The dialect of the file behind `reader`, which is native."""
        return cls(read_native_shape(reader))

    @property
    def is_native(self) -> bool:
        return True

    @property
    def fields(self) -> Mapping[str, str]:
        return self._fields

    @property
    def has_archived(self) -> bool:
        return True

    @property
    def has_pinned(self) -> bool:
        return True

    def facts(self, reader: Reader, condition: Condition = EVERYTHING) -> Iterator[SessionFacts]:
        return self._sessions.facts(reader, condition)

    def sessions(self, reader: Reader, ids: Sequence[str]) -> dict[str, SessionRow]:
        return self._sessions.rows(reader, ids)

    def lineage(self, reader: Reader) -> list[LineageRow]:
        return self._sessions.lineage(reader)

    def children(self, reader: Reader, ids: Sequence[str]) -> dict[str, frozenset[str]]:
        return self._sessions.children(reader, ids)

    def unnamed_sessions(self, reader: Reader) -> int:
        return 0  # the schema allows none

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
        from maintenance.dialects.native.compactions import count

        return count(reader, ids)

    def chat_count(self, reader: Reader, ids: Sequence[str]) -> int:
        from maintenance.dialects.native.routed import chats_in

        return chats_in(reader, ids)

    def job_count(self, reader: Reader, ids: Sequence[str]) -> int:
        from maintenance.dialects.native.scheduled import jobs_in

        return jobs_in(reader, ids)

    def stored_bytes(self, reader: Reader) -> dict[str, int]:
        return self._messages.stored(reader)

    def role_counts(self, reader: Reader, session_id: str) -> dict[str, int]:
        return self._messages.roles(reader, session_id)

    def usage(self, reader: Reader, session_id: str) -> list[UsageRow]:
        from maintenance.dialects.native.records import usage

        return usage(reader, session_id)

    def session_count(self, reader: Reader) -> int:
        return self._sessions.count(reader)

    def counts(self, reader: Reader) -> StoreCounts:
        return self._sessions.counts(reader)

    def channels(self, reader: Reader) -> tuple[ChannelSize, ...]:
        from maintenance.dialects.native.sample import channels

        return channels(reader)

    def content_sizes(self, reader: Reader) -> ContentSizes:
        return content_sizes(reader)

    def session_record(self, reader: Reader, session_id: str) -> dict[str, Any] | None:
        from maintenance.dialects.native.records import session_record

        return session_record(reader, self.shape.session_columns, self._fields, session_id)

    def message_records(self, reader: Reader, session_id: str, *, after: int = 0) -> Iterator[dict[str, Any]]:
        from maintenance.dialects.native.records import message_records

        ids = self.message_ids(reader, session_id)
        return message_records(reader, session_id, ids[bisect_right(ids, after) :] if after else ids)

    def usage_records(self, reader: Reader, session_id: str) -> list[dict[str, Any]]:
        from maintenance.dialects.native.records import usage_records

        return usage_records(reader, session_id)

    def search_indexes(self, reader: Reader) -> tuple[SearchIndex, ...]:
        return ()  # the index is a file of its own

    def guards(self, reader: Reader, ids: Sequence[str], now: float) -> dict[str, str]:
        from maintenance.dialects.native.guards import find_guards

        return find_guards(reader, ids)

    def delete_sessions(
        self, tx: Transaction, ids: Sequence[str], deed: Deed | None = None, *, limit: int = LARGE
    ) -> DeleteCounts:
        from maintenance.dialects.native.deletes import delete_sessions

        return delete_sessions(tx, ids, deed, limit)

    @property
    def drains(self) -> bool:
        return True

    def left_behind(self, reader: Reader) -> bool:
        from hermes_state.conversation.removal_steps import left_behind

        return left_behind(reader) > 0

    def drain(self, tx: Transaction, limit: int) -> bool:
        from maintenance.dialects.native.deletes import drain

        return drain(tx, limit)

    def delete_messages(self, tx: Transaction, session_id: str, limit: int, deed: Deed | None = None) -> int:
        return 0  # never by halves: `delete_sessions` takes a session of any size out at once

    def set_archived(
        self, tx: Transaction, ids: Sequence[str], archived: bool, deed: Deed | None = None
    ) -> int:
        from maintenance.dialects.native.flags import set_archived

        return set_archived(tx, ids, archived, deed)

    def set_pinned(
        self, tx: Transaction, ids: Sequence[str], pinned: bool, deed: Deed | None = None
    ) -> int:
        from maintenance.dialects.native.flags import set_pinned

        return set_pinned(tx, ids, pinned, deed)

    def set_title(
        self, tx: Transaction, session_id: str, title: str | None, deed: Deed | None = None
    ) -> str | None:
        from maintenance.dialects.native.flags import set_title

        return set_title(tx, session_id, title, deed)
