"""The parts of a message that may be shown shortened, and what each costs.

Invariant: what is measured is the message as `message_tokens` counts it, split into bodies and the rest (role, names,
ids), which always stays. Encoded data in text is counted as the line that will stand for it: no pass keeps it.

Not for: choosing what stays (see `default`) or how long (see `trims`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hermes_state.compaction.blobs import BYTES, marked, text_in
from hermes_state.compaction.clips import BodyClip, shortened
from hermes_state.compaction.tokens import TokenCounter, message_tokens

Path = tuple[str | int, ...]
Sort = Literal["text", "arguments", "data"]
_UNCOUNTED = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
# Stands in the marks that are counted here for the number that the renderer fills in.
PLACE = "99999999"
# Below this many characters a mark would be longer than the body.
SMALLEST_BODY = 160
_DATA_PARTS = frozenset(
    {
        "image", "image_url", "input_image", "input_audio", "audio", "file", "input_file", "document", "video",
        "video_url",
    }
)


@dataclass(frozen=True, kw_only=True)
class Body:
    """One part of a message that may be shortened."""

    row: int
    path: Path
    sort: Sort
    """`data`: a picture or a file, which stays or becomes a mark."""
    value: Any
    """As in the message."""
    length: int
    """Characters of it as it is counted; 0 for `data`."""
    whole: int
    """Tokens when nothing but encoded data in it is left out."""
    least: int
    """Tokens when it is one line; never more than `whole`."""
    blobs: bool
    """True when encoded data in its text becomes a mark."""


def bodies_of(row: int, message: Mapping[str, Any], tokens: int, counter: TokenCounter) -> tuple[int, list[Body]]:
    """Tokens of what always stays of a message, and its bodies. `tokens`: of the whole message, by the same counter."""
    rest = tokens
    bodies: list[Body] = []
    for path, sort, value in _paths(message):
        text = None
        if sort == "data":
            raw = whole = _part_tokens(value, counter)
        else:
            text = text_of(value)
            if len(text) < SMALLEST_BODY:
                continue
            raw = whole = counter.count(text)
        shown = marked(text, PLACE) if text is not None else None
        blobs = shown is not None and shown != text
        if blobs and shown is not None:
            whole = min(raw, counter.count(shown))
        smallest = shortened(value, _smallest(path, sort), PLACE)
        least = _part_tokens(smallest, counter) if sort != "text" and path[0] == "content" else count_of(
            smallest, counter
        )
        rest -= raw
        bodies.append(
            Body(
                row=row, path=path, sort=sort, value=value, length=len(text or ""), whole=whole,
                least=min(whole, least), blobs=blobs,
            )
        )
    return rest, bodies


def _smallest(path: Path, sort: Sort) -> BodyClip:
    return BodyClip(path=path, kind="text" if sort == "text" else "mark")


def count_of(value: Any, counter: TokenCounter) -> int:
    """Tokens of a body, a text or JSON."""
    return counter.count(text_of(value))


def text_of(value: Any) -> str:
    """A body as the text that it is counted as: bytes of a text as that text, what is no text as JSON."""
    if isinstance(value, BYTES):
        found = text_in(value)
        return str(bytes(value)) if found is None else found
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _part_tokens(part: Any, counter: TokenCounter) -> int:
    alone = {"role": "user", "content": [part]}
    return message_tokens(alone, counter) - message_tokens({"role": "user", "content": []}, counter)


def _paths(message: Mapping[str, Any]) -> Iterator[tuple[Path, Sort, Any]]:
    yield from _content_paths(("content",), message.get("content"))
    calls = message.get("tool_calls")
    if message["role"] != "assistant" or not isinstance(calls, list):
        return
    for number, call in enumerate(calls):
        if not isinstance(call, Mapping):
            continue
        nested = isinstance(call.get("function"), Mapping)
        fields = call["function"] if nested else call
        for key in ("arguments", "input"):
            if isinstance(fields.get(key), (str, Mapping)):
                middle: Path = ("tool_calls", number, "function") if nested else ("tool_calls", number)
                yield (*middle, key), "arguments", fields[key]
                break


def _content_paths(path: Path, content: Any) -> Iterator[tuple[Path, Sort, Any]]:
    parts = enumerate(content) if isinstance(content, list) else [(None, content)]
    for number, part in parts:
        here = path if number is None else (*path, number)
        if isinstance(part, str):
            yield here, "text", part
        elif isinstance(part, BYTES):
            # Bytes that are no text are data: no provider takes them, and no model reads them.
            yield here, "data" if text_in(part) is None else "text", part
        elif isinstance(part, list):
            yield here, "data", part  # a list where a part is expected is sent as the JSON that it is
        elif isinstance(part, Mapping):
            yield from _part_paths(here, part)


def _part_paths(here: Path, part: Mapping[str, Any]) -> Iterator[tuple[Path, Sort, Any]]:
    kind = part.get("type")
    kind = kind if isinstance(kind, str) else None
    if kind in _UNCOUNTED:
        return
    if kind in _DATA_PARTS:
        yield here, "data", part
    elif kind == "tool_use":
        if isinstance(part.get("input"), (str, Mapping)):
            yield (*here, "input"), "arguments", part["input"]
    elif kind == "tool_result":
        yield from _content_paths((*here, "content"), part.get("content"))
    elif isinstance(part.get("text"), str):
        yield (*here, "text"), "text", part["text"]
    else:
        yield here, "arguments", part  # of a type that is not known here: counted, sent and shortened as JSON
