"""Tokens of a message, and of a whole request.

Invariant: what is counted is what is sent: text, tool calls with their arguments and ids, tool results, and a fixed
price for each picture. Reasoning of earlier turns is not sent again and costs nothing. The count of a request is the
sum of its messages, so a plan may add and subtract rows.

Both shapes are understood, OpenAI's (`tool_calls`, `tool_call_id`, parts with `text` and `image_url`) and Anthropic's
(`tool_use`, `tool_result`, `image` and `document` with a `source`). An unknown part counts as the JSON it is sent as.

Not for: rendering a chat template, which differs by model; the learned factor covers that (see `factors`). Counting
`json.dumps(message)` as one text was rejected: escapes and keys that never reach the model were a fifth of a tool row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hermes_state.compaction.blobs import BYTES, text_in
from hermes_state.compaction.tokens.counters import TokenCounter

# Role and separators. ChatML spends 4 ("<|im_start|>", role, newline, "<|im_end|>"), OpenAI's own count says 3 to 4.
MESSAGE_TOKENS = 4
# The JSON around the name and the arguments of a call, or the tags of a template: `{"name": "", "arguments": }`.
CALL_TOKENS = 6
# Anthropic: width * height / 750, scaled down to at most 1,568 pixels a side, "about 1,600 tokens"; OpenAI charges 765
# for 1024 x 1024 in high detail. The pixels are not decoded here, so the larger one stands for all.
IMAGE_TOKENS = 1600
# OpenAI's price of a picture in low detail, whatever its size.
LOW_DETAIL_TOKENS = 85

_REASONING = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_PICTURES = frozenset({"image", "image_url", "input_image"})
_BINARY = frozenset({"input_audio", "audio", "file", "input_file", "document", "video", "video_url"})


def message_tokens(message: Mapping[str, Any], counter: TokenCounter) -> int:
    """Tokens of one chat message: its content, its calls or the id it answers, and 4 for the message itself.

    `message`: a dict with `role`, and `content` as a text, a list of parts, or None.
    """
    count = counter.count
    tokens = MESSAGE_TOKENS + _content(message.get("content"), count)
    calls = message.get("tool_calls")
    if isinstance(calls, (list, tuple)):
        for call in calls:
            tokens += _call(call, count)
    for key in ("tool_call_id", "name"):
        value = message.get(key)
        if isinstance(value, str) and value:
            tokens += count(value)
    return tokens


def request_tokens(messages: Iterable[Mapping[str, Any]], counter: TokenCounter) -> int:
    """Tokens of all messages together: the sum of `message_tokens`."""
    return sum(message_tokens(message, counter) for message in messages)


def _content(content: Any, count: Callable[[str], int]) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return count(content)
    if isinstance(content, (list, tuple)):
        return sum(_part(part, count) for part in content)
    if isinstance(content, Mapping):
        return _part(content, count)
    return count(_plain(content))


def _part(part: Any, count: Callable[[str], int]) -> int:
    if isinstance(part, str):
        return count(part)
    if not isinstance(part, Mapping):
        return count(_plain(part))
    kind = part.get("type")
    if not isinstance(kind, str):
        kind = None  # of no use, and perhaps not hashable
    if kind in _REASONING:
        return 0
    if kind in _PICTURES:
        picture = part.get("image_url")
        detail = picture.get("detail") if isinstance(picture, Mapping) else part.get("detail")
        return LOW_DETAIL_TOKENS if detail == "low" else IMAGE_TOKENS
    if kind in _BINARY:
        source = part.get("source")
        if isinstance(source, Mapping) and source.get("type") in ("text", "content"):
            return _content(source.get("data", source.get("content")), count)
        return IMAGE_TOKENS
    if kind == "tool_use":
        return _call({"id": part.get("id"), "name": part.get("name"), "arguments": part.get("input")}, count)
    if kind == "tool_result":
        call_id = part.get("tool_use_id")
        return CALL_TOKENS + _content(part.get("content"), count) + (count(call_id) if isinstance(call_id, str) else 0)
    text = part.get("text")
    return count(text) if isinstance(text, str) else count(_json(part))


def _call(call: Any, count: Callable[[str], int]) -> int:
    """Tokens of a tool call: OpenAI nests name and arguments in `function`, others have them beside the id."""
    if not isinstance(call, Mapping):
        return count(_json(call))
    inner = call.get("function")
    inner = inner if isinstance(inner, Mapping) else call
    tokens = CALL_TOKENS
    for value in (call.get("id"), inner.get("name"), inner.get("arguments", inner.get("input"))):
        if value is not None:
            tokens += count(value if isinstance(value, str) else _json(value))
    return tokens


def _plain(value: Any) -> str:
    """What is no text, as text: bytes in UTF-8 as that, others as Python writes them, which is more than base64."""
    if isinstance(value, BYTES):
        text = text_in(value)
        return str(bytes(value)) if text is None else text
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
