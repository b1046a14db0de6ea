"""A stretch of messages as flat text, in parts that fit a small window.

Invariant: a part begins and ends at a closed tool group where a group fits; a row is shown shortened when it alone
would fill a part (its beginning and its end stay), so the number of parts is bounded and each is within its room by the
counter.

Not for: what the live view shows shortened (see `compaction.clips`): these texts go to the summariser and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hermes_state.compaction.summary.cleaning import printable
from hermes_state.compaction.summary.extractive.units import NO_TEXT, texts_of
from hermes_state.conversation.pairing import normal_id

MOST_PARTS = 12       # requests for one summary; more text is shortened, because a slow model needs minutes for each
_ROW_SHARE = 0.5      # of a part that one row may take before it is shortened
_LEAST_ROW = 48       # tokens to which rows are shortened at the most


def flat(message: dict[str, Any]) -> str:
    """A message as lines of text: who, what was said, which tools were called with what. Never a tool row by itself."""
    lines = []
    role = str(message.get("role", ""))
    name = f" ({message['name']})" if role == "tool" and isinstance(message.get("name"), str) else ""
    spoken = "\n".join(text.text for text in texts_of([message]) if text.kind != "call")
    if spoken.strip():
        lines.append(f"[{role}{name}] {spoken.strip()}")
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        lines.append(f"[{role} calls {_call(call)}]")
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "tool_use":
            lines.append(f"[{role} calls {_call(part)}]")
        elif isinstance(part, dict) and "text" not in part and str(part.get("type")) in NO_TEXT:
            lines.append(f"[{role}: a part of type {part.get('type')}]")
    return printable("\n".join(lines))


def _call(call: Any) -> str:
    if not isinstance(call, dict):
        return str(call)
    inner = call.get("function")
    function: dict[str, Any] = inner if isinstance(inner, dict) else call
    arguments = function.get("arguments", call.get("input", ""))
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False, default=str)
    return f"{function.get('name')} {arguments}"


def grouped(messages: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The messages in groups: an assistant message with calls and its results up to the last, or one message."""
    groups: list[list[dict[str, Any]]] = []
    waiting: set[str] = set()
    for message in messages:
        results, calls = _results(message), _calls(message)
        if groups and (results or waiting) and not calls and (waiting or message.get("role") == "tool"):
            groups[-1].append(message)
            waiting -= results
            if message.get("role") not in ("tool", "user"):
                waiting = set()
        else:
            groups.append([message])
            waiting = calls
    return groups


def _calls(message: dict[str, Any]) -> set[str]:
    calls, content = message.get("tool_calls"), message.get("content")
    found = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    parts = content if isinstance(content, list) else ()
    found += [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_use"]
    return {normal_id(call.get("id") or call.get("call_id")) for call in found}


def _results(message: dict[str, Any]) -> set[str]:
    if message.get("role") == "tool":
        return {normal_id(message.get("tool_call_id"))}
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    return {normal_id(p.get("tool_use_id")) for p in parts if isinstance(p, dict) and p.get("type") == "tool_result"}


def parts_of(messages: Sequence[dict[str, Any]], room: int, count: Callable[[str], int]) -> list[str]:
    """The messages as at most `MOST_PARTS` texts of at most `room` tokens each."""
    texts = [[text for text in map(flat, group) if text] for group in grouped(messages)]
    limit = max(_LEAST_ROW, int(room * _ROW_SHARE))
    while True:
        shortened = [[shorter(text, limit, count) for text in group] for group in texts]
        parts = _filled(shortened, room, count)
        if len(parts) <= MOST_PARTS or limit <= _LEAST_ROW:
            break
        limit = max(_LEAST_ROW, limit // 2)
    if len(parts) > MOST_PARTS:
        # Too many rows even so: the first and the last parts are whole, and of those between every so-manieth is asked
        # about.
        step = len(parts) / MOST_PARTS
        parts = [parts[min(len(parts) - 1, int(number * step + step / 2))] if 0 < number < MOST_PARTS - 1
                 else parts[0 if number == 0 else -1] for number in range(MOST_PARTS)]
    return parts


def _filled(groups: Sequence[Sequence[str]], room: int, count: Callable[[str], int]) -> list[str]:
    parts: list[str] = []
    current, used = "", 0
    for group in groups:
        whole = "\n".join(group)
        cost = count(whole) + 1
        # A group larger than a part is divided between its rows; the text names who speaks, so none is an orphan.
        for text in (whole,) if cost <= room else group:
            size = count(text) + 1
            if current and (used + size > room or count(f"{current}\n{text}") > room):
                parts.append(current)
                current, used = "", 0
            current, used = f"{current}\n{text}" if current else text, used + size
    return [*parts, current] if current else parts


def shorter(text: str, limit: int, count: Callable[[str], int]) -> str:
    """`text`, or its beginning and its end at white space with a mark between, in at most `limit` tokens."""
    # A token has rarely more than 16 characters: a text that long is cut before anything counts it.
    if len(text) <= limit * 16 and count(text) <= limit:
        return text
    keep = min(len(text), limit * 6)
    while keep > 8:
        head, tail = text[: keep * 2 // 3], text[-(keep // 3) :]
        head = head.rsplit(None, 1)[0] if " " in head else head
        tail = tail.split(None, 1)[-1] if " " in tail else tail
        short = f"{head} [... {len(text) - len(head) - len(tail)} characters left out ...] {tail}"
        if count(short) <= limit:
            return short
        keep = keep * 3 // 4
    return f"[{len(text)} characters left out]"
