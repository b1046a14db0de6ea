"""One message of a file as a native row: numbers, typed content, and what has no column.

Invariant: ids and their order stay; `seq` counts every row of a session from 1, hidden ones too; what a flag hid is a
range of a view edit. Content is taken as it is: structured content only where its JSON really parses.

Not for: sessions. Nothing is looked up here but the session's own state, so memory does not grow with messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hermes_state.conversation.row_check import row_check
from maintenance.interop.adopt import cellmap
from maintenance.interop.adopt.source import Columns
from maintenance.interop.adopt.survey import Found, Survey, sane_time
from maintenance.interop.fields import MARKER, MESSAGE_MAPPED, MESSAGE_TEXTS
from maintenance.interop.typed import BadText, Cell, key_of

INSERT_MESSAGE = (
    "INSERT INTO messages (id, session_no, seq, calls, role, content_type, content, tool_name, tool_call_id,"
    " tool_calls, finish_reason, token_count, reasoning, platform_message_id, created_at, extra, row_check)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_EDIT = (
    "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at, reason) VALUES (?, ?, ?, ?, ?, 'adopted')"
)
ROLE_UNKNOWN = "unknown"

Row = tuple[Any, ...]


class MessageRows:
    """Turns cells into rows. `edits` collects the view edits that came to an end; the caller takes them away."""

    def __init__(self, columns: Columns, survey: Survey) -> None:
        self._columns = columns
        self._survey = survey
        self._unmapped = [name for name in columns.names if name not in MESSAGE_MAPPED]
        self._flags = "active" in columns.names, "compacted" in columns.names
        self.edits: list[Row] = []

    def row(self, cells: dict[str, Any]) -> Row:
        """The native row of one message; messages must come in order of their ids."""
        session = self._survey.by_key[key_of(cells["session_id"])]
        original: cellmap.Original = {}
        at = cells["timestamp"]
        created = at if type(at) is float and sane_time(at) is not None else self._time(cells, original, session)
        session.last_at = created
        session.seq += 1
        role = cells["role"]
        if type(role) is not str or not role:
            original["role"] = role
            role = str(role) if isinstance(role, BadText) else ROLE_UNKNOWN
        content = cells["content"]
        kind: str | None = "text"
        if type(content) is str:
            if content.startswith(MARKER) and _parses(content[len(MARKER) :]):
                kind, content = "json", content[len(MARKER) :]
        else:
            kind, content = self._typed(content, original)
        calls, called = self._calls(cells.get("tool_calls"), original)
        tokens = cells.get("token_count")
        if tokens is not None and type(tokens) is not int:
            original["token_count"], tokens = tokens, None
        call_id, tool, finish, reasoning, platform = [
            cells.get(name) if type(cells.get(name)) is str else cellmap.text(cells, name, original)
            for name in MESSAGE_TEXTS
        ]
        hidden = self._hidden(cells, original)
        if hidden != session.hidden:
            self._close(session, session.seq - 1, created)
            session.hidden, session.hidden_from = hidden, session.seq
        session.calls += called
        if not hidden:
            session.live += 1
            session.live_calls += called
        extra = cellmap.extra_of(cells, self._columns, self._unmapped, original)
        check = row_check(
            session.no, role, kind, content, tool, call_id, calls, finish, tokens, reasoning, platform, None,
            created, extra,
        )
        return (
            cells["id"], session.no, session.seq, session.calls, role, kind, content, tool, call_id, calls, finish,
            tokens, reasoning, platform, created, extra, check,
        )

    def finish(self, sessions: Sequence[Found]) -> None:
        """End the edits that reach to the end of their session."""
        for session in sessions:
            self._close(session, session.seq, session.last_at)

    def _close(self, session: Found, last: int, at: float) -> None:
        if session.hidden:
            self.edits.append((session.no, session.hidden, session.hidden_from, last, at))

    def _time(self, cells: dict[str, Cell], original: cellmap.Original, session: Found) -> float:
        created = cellmap.moment(cells, "timestamp", original, session.last_at)
        if sane_time(cells["timestamp"]) is None:
            self._survey.oddities["times_unreadable"] += 1
        return created

    def _typed(self, content: Cell, original: cellmap.Original) -> tuple[str | None, Cell]:
        if content is None:
            return None, None
        if isinstance(content, BadText):
            original["content"] = content
            self._survey.oddities["texts_not_utf8"] += 1
            return "text", str(content)
        return ("bytes" if isinstance(content, bytes) else "number"), content

    def _calls(self, cell: Cell, original: cellmap.Original) -> tuple[str | None, int]:
        """The list of tool calls as JSON, and its length. A list inside a JSON string is what old releases
        wrote; an empty one says nothing."""
        if cell is None:
            return None, 0
        found = _list(cell)
        if found is None:
            original["tool_calls"] = cell
            self._survey.oddities["tool_calls_malformed"] += 1
            return None, 0
        calls, length = found
        if calls != cell or not length:
            original["tool_calls"] = cell
        return (calls if length else None), length

    def _hidden(self, cells: dict[str, Cell], original: cellmap.Original) -> str:
        active = cells["active"] if self._flags[0] else 1
        compacted = cells["compacted"] if self._flags[1] else 0
        if active == 1 and compacted == 0 and type(active) is type(compacted) is int:
            return ""
        if active == 0 and compacted in (0, 1) and type(active) is type(compacted) is int:
            return "compact" if compacted else "rewind"
        self._survey.oddities["flags_unusual"] += 1
        # What hermes-agent shows stays shown: rows whose `active` is 1, or NULL, which becomes 1 when it opens a file.
        hidden = "" if active is None or active == 1 else "compact" if compacted == 1 else "rewind"
        if self._flags[0] and not (type(active) is int and active == (0 if hidden else 1)):
            original["active"] = active
        if self._flags[1] and not (type(compacted) is int and compacted == (1 if hidden == "compact" else 0)):
            original["compacted"] = compacted
        return hidden


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _list(cell: Cell) -> tuple[str, int] | None:
    text: object = cell
    for _ in range(2):
        if type(text) is not str:
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if isinstance(found, list):
            return text, len(found)
        text = found
    return None
