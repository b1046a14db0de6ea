"""What an export writes: sessions, one record each, or one record for a whole conversation.

Invariant: a record's messages are a stream, never a list; each session is read in a snapshot of its own, so that a long
export does not hold back the checkpoints of a live store. A session that is gone by then is counted as missing. An
export by id ends at the newest id from before its first record, so that the next one begins where this one ended.

Not for: the shape of the file (`writers.py`, `feed.py`, `pages.py`, `tables.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from maintenance.dialects.base import Dialect
from maintenance.lineage import Forest
from maintenance.reading.export.redact import Redactor

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

# Columns that hold a JSON list as plain text; a reader wants the list.
_JSON_COLUMNS = ("tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items")


@dataclass(frozen=True, kw_only=True)
class ExportChoice:
    """Which messages go into a record, and how."""

    lineage: Literal["single", "logical"] = "single"  # a record a session, or a record a conversation
    only_user: bool = False  # only what people wrote
    every_message: bool = False  # rewound and compacted rows too
    redact: bool = False  # mask secrets
    since_id: int | None = None  # only messages with a higher id


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What is to be exported."""

    forest: Forest  # lineage of the whole store
    ids: tuple[str, ...]  # sessions, in the order of the file
    archived_left_out: int = 0  # archived sessions that match and are not chosen
    high_id: int | None = None  # with `since_id`: the newest message that belongs to this export


@dataclass(kw_only=True)
class ExportTally:
    """What happened while records were written; filled in as they are."""

    sessions: int = 0  # session rows written
    records: int = 0  # records written
    messages: int = 0  # messages written
    not_live: int = 0  # rewound or compacted messages left out
    missing: list[str] = field(default_factory=list)  # sessions that were deleted meanwhile


@dataclass(frozen=True, kw_only=True)
class ExportRecord:
    """One record: the session's columns, and its messages as a stream that must be read to its end."""

    # every column, and `usage` rows where there are any; of a conversation the last segment's, with `segments`
    session: dict[str, Any]
    messages: Iterator[dict[str, Any]]  # every column of each message, content decoded


class ExportSource:
    """Records of chosen sessions, in the order of the choice."""

    def __init__(
        self,
        store: ReadStore,
        dialect: Dialect,
        chosen: Chosen,
        choice: ExportChoice,
        advance: Callable[[int], None] = lambda sessions: None,
    ) -> None:
        self._advance = advance
        self._store = store
        self._dialect = dialect
        self._forest = chosen.forest
        self._ids = chosen.ids
        self._choice = choice
        self._high_id = chosen.high_id
        self.since_id = choice.since_id
        self.redacts = choice.redact
        self.redactor = Redactor()
        self.tally = ExportTally()

    def records(self) -> Generator[ExportRecord, None, None]:
        """One record after the other; each must be read to its end before the next."""
        done: set[str] = set()
        for key in self._ids:
            if key in done:
                continue
            logical = self._choice.lineage == "logical"
            segments = self._forest.segments(key) if logical else (key,)
            done.update(segments)
            with self._store.snapshot():
                rows = {segment: self._session(segment) for segment in segments}
                found = [segment for segment in segments if rows[segment] is not None]
                self.tally.missing += [segment for segment in segments if rows[segment] is None]
                if not found:
                    continue
                record = self._record(self._forest.tip(key) if logical else key, found, rows, logical=logical)
                yield ExportRecord(session=self._redacted(record), messages=self._messages(found))
                self.tally.records += 1
                self.tally.sessions += len(found)
            self._advance(len(segments))

    def _session(self, key: str) -> dict[str, Any] | None:
        record = self._dialect.session_record(self._store, key)
        if record is not None and (usage := self._dialect.usage_records(self._store, key)):
            record.setdefault("usage", usage)
        return record

    def _record(
        self, tip: str, found: Sequence[str], rows: dict[str, dict[str, Any] | None], *, logical: bool
    ) -> dict[str, Any]:
        base = dict(rows[tip if tip in found else found[-1]] or {})
        if logical:
            base["lineage_session_ids"] = list(found)
            base["segments"] = [rows[key] for key in found]
        return base

    def _messages(self, segments: Sequence[str]) -> Iterator[dict[str, Any]]:
        for segment in segments:
            for message in self._dialect.message_records(self._store, segment, after=self._choice.since_id or 0):
                if self._high_id is not None and message["id"] > self._high_id:
                    break
                if not self._choice.every_message and message.get("active", 1) == 0:
                    self.tally.not_live += 1
                    continue
                if self._choice.only_user and message.get("role") != "user":
                    continue
                self.tally.messages += 1
                yield self._redacted(_with_lists(message))

    def _redacted(self, record: dict[str, Any]) -> dict[str, Any]:
        return self.redactor.apply(record) if self._choice.redact else record


def _with_lists(message: dict[str, Any]) -> dict[str, Any]:
    for name in _JSON_COLUMNS:
        text = message.get(name)
        if isinstance(text, str) and text[:1] == "[":
            try:
                message[name] = json.loads(text)
            except (ValueError, RecursionError):
                continue  # not JSON after all: the text itself is the value
    return message
