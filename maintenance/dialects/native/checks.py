"""The check that every message of a native store carries, compared with what the row says now.

Invariant: the whole body is read, wherever it is kept; a body that cannot be read back fails the check of every message
that uses it, and no failure keeps the other rows from being checked. Not for: saying why a row differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.conversation.bodies import preview_of, read_contents
from hermes_state.conversation.row_check import row_check
from hermes_state.errors import Corrupt

if TYPE_CHECKING:
    from hermes_state.engine import Reader

ROWS_AT_ONCE = 50
_COLUMNS = (
    "id, content_type, content, body_no, session_no, role, tool_name, tool_call_id, tool_calls, finish_reason,"
    " token_count, reasoning, platform_message_id, client_key, created_at, extra, row_check"
)


def failed_rows(reader: Reader, message_ids: Sequence[int]) -> list[int]:
    """Those of these messages whose content is not what their check was made of; ids that are gone are no failure.

    Rows and bodies are read in one statement each, so call it in a snapshot or transaction when others may write.
    """
    return failed_and_previews(reader, message_ids)[0]


def failed_and_previews(reader: Reader, message_ids: Sequence[int]) -> tuple[list[int], dict[int, str]]:
    """The same, and of those that match the right preview where the row has another one: no check covers it."""
    failed: list[int] = []
    previews: dict[int, str] = {}
    for start in range(0, len(message_ids), ROWS_AT_ONCE):
        part = message_ids[start : start + ROWS_AT_ONCE]
        marks = ", ".join("?" * len(part))
        rows = reader.rows(f"SELECT {_COLUMNS} FROM messages WHERE id IN ({marks}) ORDER BY id", part)
        for row, raw in _with_bodies(reader, rows):
            if raw is _UNREADABLE or not _matches(row, raw):
                failed.append(row[0])
            elif row[3] is not None and (preview := preview_of(row[1], raw)) != row[2]:
                previews[row[0]] = preview
    return failed, previews


_UNREADABLE = object()


def _with_bodies(reader: Reader, rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    try:
        raws: list[Any] = list(read_contents(reader, [row[1:4] for row in rows]))
    except Corrupt:
        # One body of them cannot be read back; which one is found row by row.
        if len(rows) == 1:
            raws = [_UNREADABLE]
        else:
            for row in rows:
                yield from _with_bodies(reader, [row])
            return
    yield from zip(rows, raws, strict=True)


def _matches(row: tuple[Any, ...], raw: Any) -> bool:
    (
        _id, content_type, _content, _body, session_no, role, tool_name, tool_call_id, tool_calls, finish_reason,
        token_count, reasoning, platform_message_id, client_key, created_at, extra, check,
    ) = row
    found = row_check(
        session_no, role, content_type, raw, tool_name, tool_call_id, tool_calls, finish_reason, token_count, reasoning,
        platform_message_id, client_key, created_at, extra,
    )
    return bool(found == check)
