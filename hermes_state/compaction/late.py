"""Results that come when the call is no longer shown: what a model reads of them.

Invariant: what is appended to a compacted session is in its context. A result that pairing leaves out there, because
the call went into the summary, is shown as a text of the user that says whose result it is; no provider takes a result
without its call. A second result of one call that says the same as the first is left out, as everywhere.

Not for: a call that is still shown, whose result finds it (see `planning.groups` for how long one is kept). Showing the
call again with its result was rejected: it would have to be looked for below the cut at every reading, and what it was
called with may be larger than the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_state.compaction.render import Live, after_summary
from hermes_state.conversation.pairing import normal_id, pair

_BEGINNING = "[Late result of a tool call that is in the summary"
_ENDING = ":]"


def with_late_results(rows: Sequence[Live]) -> Sequence[Live]:
    """The rows of a compacted view with each stranded result as a text; the same rows when there is none."""
    if not _suspects(rows):
        return rows
    # Copies: pairing writes into results.
    copies = [dict(row.message) for row in rows]
    paired = pair(copies)
    shown = {id(message) for message in paired}
    said: dict[str, list[Any]] = {}
    for message in paired:
        if message["role"] == "tool":
            said.setdefault(normal_id(message.get("tool_call_id")), []).append(message.get("content"))
    found: list[Live] = []
    for row, copy in zip(rows, copies, strict=True):
        call_id = normal_id(row.message.get("tool_call_id"))
        if id(copy) in shown or row.message["role"] != "tool" or row.message.get("content") in said.get(call_id, []):
            found.append(row)
        else:
            said.setdefault(call_id, []).append(row.message.get("content"))
            found.append(replace(row, message=as_text(row.message), token_count=None))
    return found


def as_text(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as what the user brings, which needs no call."""
    label = _BEGINNING
    for word, value in (("", result.get("name")), ("id ", result.get("tool_call_id"))):
        if value:
            label += f", {word}{value}"
    return {"role": "user", "content": after_summary(label + _ENDING, result.get("content"))}


def is_late(message: Mapping[str, Any]) -> bool:
    """True for a message that `as_text` made: nobody said it."""
    content = message.get("content")
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        content = content[0].get("text")
    return message.get("role") == "user" and isinstance(content, str) and content.startswith(_BEGINNING)


def as_result(message: dict[str, Any]) -> dict[str, Any]:
    """What `as_text` made as a result once more, for a summary; every other message as it is."""
    if not is_late(message):
        return message
    content = message["content"]
    if isinstance(content, list):
        return {"role": "tool", "content": content[1:]}
    return {"role": "tool", "content": content.partition(_ENDING)[2].lstrip("\n")}


def _suspects(rows: Sequence[Live]) -> bool:
    """Whether there may be a result without its call; most views have none, and need not be paired twice for that."""
    waiting: dict[str, int] = {}
    for row in rows:
        message = row.message
        if message["role"] == "tool":
            call_id = normal_id(message.get("tool_call_id"))
            left = waiting.get(call_id, 0)
            if not call_id or not left:
                return True
            waiting[call_id] = left - 1
        else:
            calls = message.get("tool_calls")
            for call in calls if isinstance(calls, list) else ():
                fields: Mapping[str, Any] = call if isinstance(call, Mapping) else {}
                call_id = normal_id(fields.get("id") or fields.get("call_id"))
                waiting[call_id] = waiting.get(call_id, 0) + 1
    return False
