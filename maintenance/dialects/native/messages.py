"""Reading messages of a native store.

Invariant: order is the insertion id; pages of ids come from `messages_session`, then only those rows are fetched, a
few at a time, with their bodies in the same read. A preview reads the row alone, because a body that is kept apart
leaves its first characters there.

Not for: the model's context (the library's `messages.context`). Reading bodies by a join was rejected: a body that many
rows share would be fetched and unpacked once for each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import ContentSizes, MessageRow
from maintenance.dialects.cells import Blob, chunks, key_bytes, key_list
from maintenance.dialects.native.compactions import taken_out
from maintenance.dialects.native.inherited import Story, story_ids, story_of
from maintenance.dialects.readable import preview_of

if TYPE_CHECKING:
    from hermes_state.conversation.view import View
    from hermes_state.engine import Reader

# Rows fetched by one statement; bodies may be megabytes.
ROWS_AT_ONCE = 50
# Messages that a preview looks at before it gives up: the first words of a conversation stand at its beginning.
LOOKED_AT = 400

# What a row takes besides its text, in its table and in the index by session.
ROW_BYTES = 64

STORED_BYTES = (
    "coalesce((SELECT b.raw_bytes FROM bodies AS b WHERE b.no = m.body_no), octet_length(m.content), 0)"
    " + coalesce(octet_length(m.tool_calls), 0) + coalesce(octet_length(m.reasoning), 0)"
)


def contents(reader: Reader, cells: Sequence[tuple[Any, Any, Any]]) -> list[Any]:
    """The values of rows `(content_type, content, body_no)`: text, list or dict, Blob, number or None."""
    from hermes_state.conversation.bodies import read_contents

    raws = read_contents(reader, cells)
    return [_value(cell[0], raw) for cell, raw in zip(cells, raws, strict=True)]


def _value(content_type: Any, raw: Any) -> Any:
    """One value; JSON that is none after all is shown as its text, so that one row does not hide the page."""
    if isinstance(raw, bytes):
        return Blob(data=raw)
    if content_type == "json" and isinstance(raw, str):
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            return raw
    return raw


def read_view(reader: Reader, session_no: int) -> View:
    """What edits hide of a session; its own messages are at their `seq`."""
    from hermes_state.conversation.lineage import segments
    from hermes_state.conversation.view import view_of

    return view_of(reader, segments(reader, session_no))


class MessageReading:
    """Statements over `messages`."""

    def ids(self, reader: Reader, session_id: str, first: int, last: int) -> list[int]:
        """Insertion ids in order; with `first` or `last`, only that many from the ends."""
        story = story_of(reader, session_id)
        if story is not None and story.shift:
            every = story_ids(reader, story)
            return every if not first and not last else sorted({*every[:first], *(every[-last:] if last else ())})
        key = (key_bytes(session_id),)
        sql = (
            "SELECT m.id FROM messages AS m WHERE m.session_no = (SELECT no FROM sessions WHERE id = CAST(? AS TEXT))"
            " ORDER BY m.seq"
        )
        if not first and not last:
            return [int(row[0]) for row in reader.iterate(sql, key)]
        head = reader.rows(f"{sql} LIMIT ?", (*key, first)) if first else []
        tail = reader.rows(f"{sql} DESC LIMIT ?", (*key, last)) if last else []
        return sorted({int(row[0]) for row in (*head, *tail)})

    def rows(self, reader: Reader, message_ids: Sequence[int]) -> Iterator[MessageRow]:
        """These messages in order of id."""
        views: dict[int, View] = {}
        for start in range(0, len(message_ids), ROWS_AT_ONCE):
            part = message_ids[start : start + ROWS_AT_ONCE]
            marks = ", ".join("?" * len(part))
            found = reader.rows(
                f"SELECT m.id, s.id, m.session_no, m.seq, m.role, m.content_type, m.content, m.body_no, m.tool_name,"
                f" m.tool_calls, m.created_at, {STORED_BYTES} FROM messages AS m JOIN sessions AS s"
                f" ON s.no = m.session_no WHERE m.id IN ({marks}) ORDER BY m.id",
                part,
            )
            values = contents(reader, [row[5:8] for row in found])
            summarised = {
                (no, seq) for no in {row[2] for row in found}
                for seq in taken_out(reader, no, [row[3] for row in found if row[2] == no])
            }
            for row, content in zip(found, values, strict=True):
                session_no, seq = row[2], row[3]
                view = views.get(session_no) or views.setdefault(session_no, read_view(reader, session_no))
                hidden, taken = view.hidden(seq), (session_no, seq) in summarised
                yield MessageRow(
                    id=row[0],
                    session_id=row[1],
                    role=row[4],
                    content=content,
                    content_bytes=row[11],
                    tool_name=row[8],
                    tool_calls=row[9],
                    timestamp=row[10],
                    live=hidden is None and not taken,
                    compacted=hidden == "compact" or taken,
                )

    def newest(self, reader: Reader) -> int:
        """The highest id ever given."""
        found = reader.row("SELECT max(coalesce((SELECT max(id) FROM messages), 0), message_floor) FROM store")
        return int(found[0]) if found else 0

    def after(self, reader: Reader, message_id: int) -> list[tuple[int, str]]:
        """Id and session of what is newer."""
        rows = reader.rows(
            "SELECT m.id, s.id FROM messages AS m JOIN sessions AS s ON s.no = m.session_no WHERE m.id > ? ORDER BY "
            "m.id",
            (message_id,),
        )
        return [(int(key), str(session_id)) for key, session_id in rows]

    def previews(self, reader: Reader, ids: Sequence[str], width: int) -> dict[str, str]:
        """First words of the first user message of each session that was not taken back."""
        previews: dict[str, str] = {}
        for part in chunks(ids):
            sql = f"SELECT no, id FROM sessions WHERE id IN {key_list(len(part))}"
            for session_no, session_id in reader.rows(sql, [key_bytes(key) for key in part]):
                text = self._preview(reader, session_no, width)
                if text:
                    previews[session_id] = text
        return previews

    def _preview(self, reader: Reader, session_no: int, width: int) -> str:
        sql = (
            "SELECT m.seq, m.content_type, m.content, m.body_no FROM messages AS m"
            " WHERE m.session_no = ? AND m.seq <= ? AND m.role = 'user'"
            " AND NOT EXISTS (SELECT 1 FROM view_edits AS e WHERE e.session_no = m.session_no AND e.action = 'rewind'"
            " AND m.seq BETWEEN e.from_seq AND e.to_seq"
            " AND NOT EXISTS (SELECT 1 FROM view_edits AS undo WHERE undo.undoes = e.id))"
            " ORDER BY m.seq LIMIT 1"
        )
        for depth in (8, LOOKED_AT):
            row = reader.row(sql, (session_no, depth))
            if row is not None:
                _seq, kind, content, body_no = row
                # What is kept apart left its first characters in the row; JSON cut short is shown as its text.
                value = content if body_no is not None else contents(reader, [(kind, content, None)])[0]
                return preview_of(value, width)
        return ""

    def counts(self, reader: Reader, ids: Sequence[str]) -> dict[str, int]:
        """Message rows by session, counted in the index."""
        return self._by_session(reader, ids, "count(*)")

    def sizes(self, reader: Reader, ids: Sequence[str]) -> dict[str, int]:
        """Bytes of text by session, before compression."""
        return self._by_session(reader, ids, f"sum({STORED_BYTES})")

    def stored(self, reader: Reader) -> dict[str, int]:
        """Bytes of all rows by session; a body that several messages share is one part for each of them."""
        frames = (
            "(SELECT octet_length(b.frame) / max(1, (SELECT count(*) FROM messages AS o WHERE o.body_no = b.no))"
            " FROM bodies AS b WHERE b.no = m.body_no)"
        )
        rows = reader.iterate(
            f"SELECT s.id, sum({ROW_BYTES} + coalesce(octet_length(m.content), 0) + coalesce({frames}, 0)"
            " + coalesce(octet_length(m.tool_calls), 0) + coalesce(octet_length(m.reasoning), 0)"
            " + coalesce(octet_length(m.extra), 0))"
            " FROM messages AS m JOIN sessions AS s ON s.no = m.session_no GROUP BY m.session_no"
        )
        return {str(key): int(total) for key, total in rows}

    def _by_session(self, reader: Reader, ids: Sequence[str], what: str) -> dict[str, int]:
        totals = dict.fromkeys(ids, 0)
        for part in chunks(ids):
            sql = (
                f"SELECT s.id, {what} FROM sessions AS s JOIN messages AS m ON m.session_no = s.no"
                f" WHERE s.id IN {key_list(len(part))} GROUP BY s.no"
            )
            for key, total in reader.rows(sql, [key_bytes(key) for key in part]):
                totals[key] = int(total or 0)
        return totals

    def roles(self, reader: Reader, session_id: str) -> dict[str, int]:
        """Messages of one session by role."""
        story = story_of(reader, session_id)
        if story is not None and story.shift:
            return self._roles_of(reader, story)
        rows = reader.rows(
            "SELECT role, count(*) FROM messages WHERE session_no = (SELECT no FROM sessions WHERE id = CAST(? AS "
            "TEXT))"
            " GROUP BY 1 ORDER BY 2 DESC, 1",
            (key_bytes(session_id),),
        )
        return {str(role): int(count) for role, count in rows}

    def _roles_of(self, reader: Reader, story: Story) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for session_no, low, high, _offset in story.runs:
            rows = reader.rows(
                "SELECT role, count(*) FROM messages WHERE session_no = ? AND seq BETWEEN ? AND ? GROUP BY 1",
                (session_no, low, high),
            )
            counted.update({str(role): int(count) for role, count in rows})
        return dict(counted.most_common())


def content_sizes(reader: Reader) -> ContentSizes:
    """How much structured content there is. What is in `bodies` is there once, so only rows of their own can repeat."""
    import hashlib

    seen: set[bytes] = set()
    messages = total = repeated = 0
    rows = reader.iterate(
        "SELECT m.body_no, m.content, (SELECT b.raw_bytes FROM bodies AS b WHERE b.no = m.body_no) FROM messages AS m"
        " WHERE m.content_type = 'json'",
        batch=8,
    )
    for body_no, content, size in rows:
        messages += 1
        if body_no is not None:
            total += int(size or 0)
            continue
        encoded = str(content).encode()
        digest = hashlib.blake2b(encoded, digest_size=16).digest()
        total += len(encoded)
        repeated += len(encoded) if digest in seen else 0
        seen.add(digest)
    return ContentSizes(structured_messages=messages, structured_bytes=total, structured_repeated_bytes=repeated)
