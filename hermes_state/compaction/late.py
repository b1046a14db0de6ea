"""Results that come when the call is no longer shown: what a model reads of them.

Invariant: what is appended to a compacted session is in its context. A result that pairing leaves out there, because
the call went into the summary, is shown as a text of the user that says whose result it is; no provider takes a result
without its call. A second result of one call that says the same as the first is left out, as everywhere. A block
`tool_result` in a user message, which is Anthropic's shape of a result, becomes such a text in its message, each time.

Such a text makes no two user messages in a row: `as_sent` joins it with those beside it. In a view it is apart, because
there each message is one row, which goes or stays by itself.

Not for: a call that is still shown, whose result finds it (see `planning.groups` for how long one is kept). Showing the
call again with its result was rejected: it would have to be looked for below the cut at every reading, and what it was
called with may be larger than the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_state.compaction.render import Live, after_summary, as_shown, own_of
from hermes_state.conversation.pairing import normal_id, pair

_BEGINNING = "[Late result of a tool call that is in the summary"
_ENDING = ":]"


def with_late_results(rows: Sequence[Live]) -> Sequence[Live]:
    """The rows of a compacted view with each stranded result as a text; the same rows when there is none."""
    rows = _with_late_blocks(rows)
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
    said = _told(result.get("name"), result.get("tool_call_id"), result.get("content"))
    return {"role": "user", "content": said}


def is_late(message: Mapping[str, Any]) -> bool:
    """True for a message of late results, and of none but results: nobody said it."""
    content = message.get("content")
    if isinstance(content, list):
        # Ours stand last, see `_blocks_as_text`.
        content = next((_text_of(part) for part in content if not _is_block(part)), None)
    return message.get("role") == "user" and isinstance(content, str) and content.startswith(_BEGINNING)


def as_result(message: dict[str, Any]) -> dict[str, Any]:
    """What `is_late` as a result once more, for a summary; every other message as it is."""
    if not is_late(message):
        return message
    content = message["content"]
    if not isinstance(content, list):
        return {"role": "tool", "content": _untold(content)}
    parts = []
    for part in content:
        text = _text_of(part)
        if text is None or not text.startswith(_BEGINNING):
            parts.append(part)
        elif _untold(text):
            parts.append({**part, "text": _untold(text)})
    return {"role": "tool", "content": parts}


def as_sent(messages: Sequence[dict[str, Any]], summary: str | None) -> list[dict[str, Any]]:
    """The messages of a view, or its first ones, with late results joined with the user messages beside them.

    Nothing is changed. `summary`: of the view. Templates that want roles to alternate refuse the whole request
    otherwise.
    """
    runs: list[list[dict[str, Any]]] = []
    before = False
    for message in messages:
        late = message["role"] == "user" and is_late({**message, "content": own_of(message.get("content"), summary)})
        if runs and (late or before) and runs[-1][-1]["role"] == message["role"] == "user":
            runs[-1].append(message)
        else:
            runs.append([message])
        before = late
    return [run[0] if len(run) == 1 else _together(run) for run in runs]


def _told(name: Any, call_id: Any, content: Any) -> Any:
    label = _BEGINNING
    for word, value in (("", name), ("id ", call_id)):
        if value:
            label += f", {word}{value}"
    return after_summary(label + _ENDING, content)


def _untold(text: str) -> str:
    return text.partition(_ENDING)[2].lstrip("\n")


def _with_late_blocks(rows: Sequence[Live]) -> Sequence[Live]:
    """The rows with each stranded `tool_result` block as a text; the same rows when there is none."""
    waiting = Counter[str]()
    found: list[Live] | None = None
    for place, row in enumerate(rows):
        waiting.update([*_calls(row.message), *_call_blocks(row.message)])
        content = row.message.get("content")
        if row.message["role"] != "user" or not isinstance(content, list):
            continue
        late = set()
        for at, part in enumerate(content):
            if _is_block(part):
                call_id = normal_id(part.get("tool_use_id"))
                if waiting[call_id]:
                    waiting[call_id] -= 1
                else:
                    late.add(at)
        if late:
            found = list(rows) if found is None else found
            message = as_shown(row.message) | {"content": _blocks_as_text(content, late)}
            found[place] = replace(row, message=message, token_count=None)
    return rows if found is None else found


def _blocks_as_text(content: Sequence[Any], late: Collection[int]) -> list[Any]:
    """A content with the blocks at these places as texts at its end: a provider wants the results that it takes first,
    and what a user said beside them is no late result.
    """
    parts = [part for at, part in enumerate(content) if at not in late]
    for at in sorted(late):
        told = _told(None, content[at].get("tool_use_id"), content[at].get("content"))
        parts += told if isinstance(told, list) else [{"type": "text", "text": told}]
    return parts


def _together(run: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """User messages as one: texts with an empty line between, else parts, with the results that have a call first."""
    contents = [one["content"] for one in run if one.get("content")]
    if any(isinstance(content, (list, dict)) for content in contents):
        parts = [part for content in contents for part in (content if isinstance(content, list) else [content])]
        shown = [part if isinstance(part, Mapping) else {"type": "text", "text": _plain(part)} for part in parts]
        return as_shown(run[0]) | {"content": sorted(shown, key=lambda part: not _is_block(part))}
    return as_shown(run[0]) | {"content": "\n\n".join(map(_plain, contents))}


def _plain(content: Any) -> str:
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)


def _is_block(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool_result"


def _text_of(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else None


def _calls(message: Mapping[str, Any]) -> Iterator[str]:
    """Ids of the calls of a message in OpenAI's shape."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield normal_id((call.get("id") or call.get("call_id")) if isinstance(call, Mapping) else None)


def _call_blocks(message: Mapping[str, Any]) -> Iterator[str]:
    """Ids of the calls of a message in Anthropic's shape."""
    content = message.get("content") if message["role"] == "assistant" else None
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type") == "tool_use":
            yield normal_id(part.get("id"))


def _suspects(rows: Sequence[Live]) -> bool:
    """Whether there may be a result without its call; most views have none, and need not be paired twice for that."""
    waiting = Counter[str]()
    for row in rows:
        waiting.update(_calls(row.message))
        if row.message["role"] == "tool":
            call_id = normal_id(row.message.get("tool_call_id"))
            if not call_id or not waiting[call_id]:
                return True
            waiting[call_id] -= 1
    return False
