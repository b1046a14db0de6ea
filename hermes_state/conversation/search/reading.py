"""Reading messages for search: only the columns it needs, in one shape.

Invariant: a damaged body never stops indexing or a search; the row's preview stands in for it, and the row says so.
Not for: what callers of `messages` get. `messages.history` was rejected as a source: it decodes what is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hermes_state.conversation.bodies import read_contents
from hermes_state.conversation.search.text import text_of
from hermes_state.engine import Reader
from hermes_state.errors import Corrupt

COLUMNS = (
    "SELECT m.id, m.session_no, m.seq, m.role, m.created_at, s.source, s.relation, m.content_type, m.content,"
    " m.body_no, m.tool_name, m.tool_calls FROM messages m JOIN sessions s ON s.no = m.session_no"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A message with its searchable text."""

    id: int
    session_no: int
    seq: int
    role: str
    # epoch seconds UTC
    created_at: float
    # of its session
    source: str
    relation: str | None
    text: str
    # True when `text` has only the preview of a damaged body
    damaged: bool


def rows_of(reader: Reader, sql: str, params: Sequence[Any]) -> list[Row]:
    """The rows of a statement that begins with `COLUMNS`."""
    found = reader.rows(sql, params)
    contents = [row[7:10] for row in found]
    damaged: set[int] = set()
    try:
        raws = read_contents(reader, contents)
    except Corrupt:
        raws = []
        for at, content in enumerate(contents):
            try:
                raws += read_contents(reader, [content])
            except Corrupt:
                raws.append(content[1])
                damaged.add(at)
    return [
        Row(
            row[0], row[1], row[2], row[3], row[4], row[5], row[6], text_of(row[7], raw, row[10], row[11]),
            at in damaged,
        )
        for at, (row, raw) in enumerate(zip(found, raws, strict=True))
    ]
