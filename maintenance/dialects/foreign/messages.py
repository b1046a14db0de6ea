"""Reading messages by insertion id, in pieces.

Invariant: transcript order is insertion id. Which rows to read is decided on ids alone, from an index; then only those
rows are fetched, a few at a time, so a page costs what it shows. Not for: model context, the program's own view.
`ORDER BY id LIMIT n` over whole rows was rejected: no release has an index on (session_id, id), so it sorts every body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import MessageRow, StoreShape
from maintenance.dialects.cells import (
    cell,
    chunks,
    decode_key,
    decode_text,
    key_bytes,
    key_list,
    text_cell,
    time_sql,
)
from maintenance.dialects.foreign.content import MARKER, decode_content
from maintenance.dialects.readable import preview_of

if TYPE_CHECKING:
    from hermes_state.engine import Reader

# Rows fetched by one statement; bodies may be megabytes.
ROWS_AT_ONCE = 50
# A preview reads this much of a body, or a whole structured one up to the second size.
PREVIEW_HEAD_BYTES = 4_096
PREVIEW_STRUCTURED_BYTES = 4 * 1024 * 1024

# What a row takes besides its text, in its table and in the indexes on it.
ROW_BYTES = 64

_SIZED = (
    "content",
    "tool_calls",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "api_content",
)


class MessageReading:
    """Statements over `messages` for one shape of file."""

    def __init__(self, shape: StoreShape) -> None:
        columns = frozenset(shape.message_columns)
        self._has_active = "active" in columns
        live = "(m.active IS NULL OR m.active <> 0)" if self._has_active else "1"
        compacted = "coalesce(m.compacted, 0) <> 0" if "compacted" in columns else "0"
        self._sizes = [f"coalesce(octet_length({name}), 0)" for name in _SIZED if name in columns]
        optional = {name: f"m.{name}" if name in columns else "NULL" for name in ("tool_name", "tool_calls")}
        self._row = (
            f"m.id, CAST(m.session_id AS BLOB), {text_cell('m.role')}, {cell('m.content')},"
            f" coalesce(octet_length(m.content), 0), {text_cell(optional['tool_name'])},"
            f" {text_cell(optional['tool_calls'])}, {time_sql('m.timestamp')}, {live}, {compacted}"
        )

    def ids(self, reader: Reader, session_id: str, first: int, last: int) -> list[int]:
        """Insertion ids in order; with `first` or `last`, only that many from the ends."""
        key = key_bytes(session_id)
        sql = "SELECT id FROM messages WHERE session_id = CAST(? AS TEXT) ORDER BY id"
        if not first and not last:
            return [int(row[0]) for row in reader.iterate(sql, (key,))]
        head = reader.rows(f"{sql} LIMIT ?", (key, first)) if first else []
        tail = reader.rows(f"{sql} DESC LIMIT ?", (key, last)) if last else []
        return sorted({int(row[0]) for row in (*head, *tail)})

    def rows(self, reader: Reader, message_ids: Sequence[int]) -> Iterator[MessageRow]:
        """These messages in order of id."""
        for start in range(0, len(message_ids), ROWS_AT_ONCE):
            part = message_ids[start : start + ROWS_AT_ONCE]
            marks = ", ".join("?" * len(part))
            sql = f"SELECT {self._row} FROM messages AS m WHERE m.id IN ({marks}) ORDER BY m.id"
            for values in reader.iterate(sql, part, batch=8):
                yield _message(values)

    def newest(self, reader: Reader) -> int:
        """The highest message id."""
        found = reader.row("SELECT max(id) FROM messages")
        return int(found[0] or 0) if found else 0

    def after(self, reader: Reader, message_id: int) -> list[tuple[int, str]]:
        """Id and session of what is newer; a range of the table itself, no index is needed."""
        rows = reader.rows("SELECT id, CAST(session_id AS BLOB) FROM messages WHERE id > ? ORDER BY id", (message_id,))
        return [(int(key), decode_key(session_id)) for key, session_id in rows]

    def previews(self, reader: Reader, ids: Sequence[str], width: int) -> dict[str, str]:
        """First words of the first live user message of each session."""
        previews: dict[str, str] = {}
        for session_id in ids:
            message_id = self._first_live_user_message(reader, session_id)
            if message_id is not None:
                text = self._preview(reader, message_id, width)
                if text:
                    previews[session_id] = text
        return previews

    def _first_live_user_message(self, reader: Reader, session_id: str) -> int | None:
        """Its id. Live ids come from an index, a few at a time; only then is a row's role looked at."""
        live = "AND (active IS NULL OR active <> 0)" if self._has_active else ""
        after = -(2**63)
        size = 20
        while True:
            rows = reader.rows(
                f"SELECT id FROM messages WHERE session_id = CAST(? AS TEXT) {live} AND id > ? ORDER BY id LIMIT ?",
                (key_bytes(session_id), after, size),
            )
            if not rows:
                return None
            marks = ", ".join("?" * len(rows))
            found = reader.row(
                f"SELECT min(id) FROM messages WHERE id IN ({marks}) AND role = 'user'", [row[0] for row in rows]
            )
            if found is not None and found[0] is not None:
                return int(found[0])
            after = int(rows[-1][0])
            size = 400

    def _preview(self, reader: Reader, message_id: int, width: int) -> str:
        row = reader.row(
            "SELECT typeof(content), CASE WHEN typeof(content) IN ('text', 'blob')"
            f" THEN substr(CAST(content AS BLOB), 1, {PREVIEW_HEAD_BYTES}) ELSE content END, octet_length(content)"
            " FROM messages WHERE id = ?",
            (message_id,),
        )
        if row is None:
            return ""
        kind, value, size = row
        if kind == "blob":
            return f"<blob {size} bytes>"
        if isinstance(value, bytes) and value.startswith(MARKER.encode()) and size > PREVIEW_HEAD_BYTES:
            if size > PREVIEW_STRUCTURED_BYTES:
                return f"[structured content, {size} bytes]"
            whole = reader.row("SELECT CAST(content AS BLOB) FROM messages WHERE id = ?", (message_id,))
            value = b"" if whole is None else whole[0]
        return preview_of(decode_content(kind, value), width)

    def counts(self, reader: Reader, ids: Sequence[str]) -> dict[str, int]:
        """Message rows by session, counted in an index."""
        return self._by_session(reader, ids, "count(*)")

    def sizes(self, reader: Reader, ids: Sequence[str]) -> dict[str, int]:
        """Bytes of text by session; SQLite tells them from the record headers, no body is read."""
        return self._by_session(reader, ids, f"sum({' + '.join(self._sizes)})")

    def stored(self, reader: Reader) -> dict[str, int]:
        """Bytes of all rows by session, from record headers; every session that has a message."""
        rows = reader.iterate(
            f"SELECT CAST(session_id AS BLOB), sum({ROW_BYTES} + {' + '.join(self._sizes)}) FROM messages"
            " WHERE session_id IS NOT NULL GROUP BY session_id"
        )
        return {decode_key(key): int(total) for key, total in rows}

    def _by_session(self, reader: Reader, ids: Sequence[str], what: str) -> dict[str, int]:
        totals = dict.fromkeys(ids, 0)
        for part in chunks(ids):
            sql = (
                f"SELECT CAST(session_id AS BLOB), {what} FROM messages"
                f" WHERE session_id IN {key_list(len(part))} GROUP BY session_id"
            )
            for key, total in reader.rows(sql, [key_bytes(key) for key in part]):
                totals[decode_key(key)] = int(total or 0)
        return totals

    def roles(self, reader: Reader, session_id: str) -> dict[str, int]:
        """Messages of one session by role."""
        rows = reader.rows(
            f"SELECT {text_cell('role')}, count(*) FROM messages WHERE session_id = CAST(? AS TEXT)"
            " GROUP BY 1 ORDER BY 2 DESC, 1",
            (key_bytes(session_id),),
        )
        return {decode_text(role) or "": int(count) for role, count in rows}


def _message(values: tuple[Any, ...]) -> MessageRow:
    message_id, session_id, role, kind, content, size, tool_name, tool_calls, timestamp, live, compacted = values
    return MessageRow(
        id=int(message_id),
        session_id=decode_key(session_id),
        role=decode_text(role) or "",
        content=decode_content(kind, content),
        content_bytes=int(size),
        tool_name=decode_text(tool_name),
        tool_calls=decode_text(tool_calls),
        timestamp=timestamp,
        live=bool(live),
        compacted=bool(compacted),
    )
