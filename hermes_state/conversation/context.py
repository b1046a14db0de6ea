"""What a model is sent: the live messages of a session in OpenAI chat shape.

Invariant: the cost follows what is returned, not what a compaction or a rewind has hidden: each visible run of messages
is one range of the index, read in one snapshot. Order is insertion order, and every tool result follows its call (see
`pairing`). A session with a head is seen through its generation, see `compaction.generations.live`; one without costs
one look for it.

Not for: showing a history to people (see `history`), who also want what was compacted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state import json_values
from hermes_state.conversation.bodies import decode, read_contents
from hermes_state.conversation.lineage import segments
from hermes_state.conversation.pairing import pair
from hermes_state.conversation.session_rows import Reads
from hermes_state.conversation.view import view_of
from hermes_state.errors import StatementFailed

# What `chat` reads of a row, in this order; `extra` only when it is asked for.
COLUMNS = "content_type, content, body_no, role, tool_calls, tool_call_id, tool_name, reasoning"
_RUN = f"SELECT {COLUMNS} FROM messages WHERE session_no = ? AND seq BETWEEN ? AND ? ORDER BY seq"
_RUN_WITH_EXTRAS = _RUN.replace(" FROM", ", extra FROM")


def context(reader: Reads, no: int, *, extras: bool = False) -> list[dict[str, Any]]:
    """The context of session `no`; call it inside a snapshot. See `Messages.context`."""
    if is_compacted(reader, no):
        from hermes_state.compaction.generations.live import live_view
        from hermes_state.compaction.late import as_sent

        view = live_view(reader, no, extras=extras)
        return as_sent(view.messages, view.summary)
    rows: list[tuple[Any, ...]] = []
    run = _RUN_WITH_EXTRAS if extras else _RUN
    for session_no, first, last, _offset in view_of(reader, segments(reader, no)).visible("rewind", "compact"):
        rows += reader.rows(run, (session_no, first, last))
    return pair(chat(reader, rows))


def is_compacted(reader: Reads, no: int) -> bool:
    """Whether a session has a head that is a generation. One look by the primary key."""
    try:
        return reader.row(_HEAD, (no,)) is not None
    except StatementFailed:
        if never_compacted(reader):
            return False
        raise


def never_compacted(reader: Reads) -> bool:
    """Whether a store lacks the step that adds the table of heads; only one that is opened for reading may."""
    return reader.row("SELECT 1 FROM sqlite_schema WHERE name = 'compaction_heads'") is None


_HEAD = "SELECT 1 FROM compaction_heads WHERE session_no = ? AND compaction_id IS NOT NULL"


def chat(reader: Reads, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows of `COLUMNS`, with `extra` behind them or not, in OpenAI chat shape. Raises `Corrupt`."""
    messages: list[dict[str, Any]] = []
    # In one loop, without a call for each row: half of the time that this takes beside reading the rows.
    for row, raw in zip(rows, read_contents(reader, rows), strict=True):
        content_type, _content, _body_no, role, calls, call_id, name, reasoning, *extra = row
        message: dict[str, Any] = {"role": role, "content": raw if content_type != "json" else decode("json", raw)}
        if extra and extra[0] is not None:
            message = {**parsed(extra[0], dict), **message}
        if calls is not None:
            found = parsed(calls, list)
            if found:
                message["tool_calls"] = found
        if call_id is not None:
            message["tool_call_id"] = call_id
        if name is not None:
            message["name"] = name
        if reasoning is not None:
            message["reasoning"] = reasoning
        messages.append(message)
    return messages


def parsed(text: str, kind: type) -> Any:
    """A JSON column's value; an empty one of `kind` when an adopted row holds something else, as its program did."""
    try:
        value = json_values.read(text)
    except ValueError:
        return kind()
    return value if isinstance(value, kind) else kind()
