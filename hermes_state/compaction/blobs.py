"""Data in text that no model reads: base64, data URLs, and the one line that stands for it.

Invariant: looking takes time linear in the text, whatever it is. A run of letters counts as encoded data only when it
mixes digits, small and capital letters as encoded bytes do; "xxxx" and a long word do not.

Not for: secrets (see scrub), nor for deciding what becomes a mark (see `planning/trims`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SMALLEST_RUN = 512
_PARSED_CHARACTERS = 200_000
_NAMED_KEYS = 5
BYTES = (bytes, bytearray, memoryview)
# A run can only begin where no run is in progress, so that each character is looked at a bounded number of times.
_RUN = re.compile(
    r"(?:(?<![\w/+-])data:(?P<type>[\w.+-]{1,40}/[\w.+-]{1,60})?(?:;[\w=.+-]{1,40}){0,3},)?"
    rf"(?<![A-Za-z0-9+/_-])(?P<body>[A-Za-z0-9+/_-]{{{SMALLEST_RUN},}}={{0,2}}"
    # In lines, of which the last may be short: a whole number of fours, counting what fills it up.
    r"|[A-Za-z0-9+/]{60,76}(?:\r?\n[A-Za-z0-9+/]{60,76}){7,}"
    r"(?:={1,2}|\r?\n(?:[A-Za-z0-9+/]{2,74}={1,2}|(?:[A-Za-z0-9+/]{4}){1,19}(?![A-Za-z0-9+/])))?)"
)


def marked(text: str, place: str) -> str:
    """The text with each run of encoded data replaced by a line that names it, its size and how to get it."""
    if len(text) < SMALLEST_RUN:
        return text

    def line(found: re.Match[str]) -> str:
        if not found["type"] and not _encoded(found["body"]):
            return found[0]
        kind = found["type"] or "base64"
        return f"[{kind} data, {_decoded(found['body']):,} bytes, left out; recover({place}) returns it]"

    return _RUN.sub(line, text)


def _encoded(run: str) -> bool:
    sample = run[:256] + run[-256:]
    kinds = (any(c.isdigit() for c in sample), any(c.islower() for c in sample), any(c.isupper() for c in sample))
    return all(kinds) and len(set(sample)) >= 24


def _decoded(run: str) -> int:
    return sum(not c.isspace() and c != "=" for c in run) * 3 // 4 if "\n" in run else len(run.rstrip("=")) * 3 // 4


def size_of(text: str) -> str:
    """How large a text is, for people and models."""
    return f"{len(text.encode('utf-8', 'surrogatepass')):,} bytes"


def text_in(data: bytes | bytearray | memoryview) -> str | None:
    """The text that bytes are in UTF-8; None for bytes that are none."""
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return None


def is_json(text: str) -> bool:
    """True for a text that looks like one JSON object or array of some size; its inside is not read."""
    return len(text) >= SMALLEST_RUN and text.lstrip()[:1] + text.rstrip()[-1:] in ("{}", "[]")


def what_it_is(value: Any) -> str:
    """Kind and size of a body, for the line that stands for it."""
    if isinstance(value, str):
        return f"{_json_kind(value)}, {size_of(value)},"
    if isinstance(value, BYTES):
        return f"data, {len(bytes(value)):,} bytes,"
    if isinstance(value, Mapping):
        picture = _source(value)
        if picture is not None:
            return picture
    text = json.dumps(value, ensure_ascii=False, default=str)
    return f"{_json_kind(text)}, {size_of(text)},"


def _json_kind(text: str) -> str:
    if not is_json(text):
        return "text"
    if len(text) > _PARSED_CHARACTERS:
        return "JSON"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "text"
    if isinstance(value, list):
        return f"JSON array of {len(value):,}"
    keys = [str(key)[:40] for key in list(value)[:_NAMED_KEYS]]
    return f"JSON object with {', '.join(keys)}" + (", ..." if len(value) > _NAMED_KEYS else "")


def _source(part: Mapping[str, Any]) -> str | None:
    """Type and size of the data in a part of a message; None when the part carries none."""
    source: Any = next(
        (part[name] for name in ("image_url", "video_url", "source", "input_audio", "audio", "file") if name in part),
        part,
    )
    kind = str(part.get("type") or "file").removeprefix("input_").removesuffix("_url")
    if isinstance(source, Mapping):
        media = source.get("media_type") or source.get("mimeType") or source.get("format")
        source = source.get("url") or source.get("data") or source.get("file_data") or ""
    else:
        media = None
    if isinstance(source, BYTES):
        return f"{kind} {media or 'data'}, {len(bytes(source)):,} bytes,"
    if not isinstance(source, str) or not source:
        return None
    head, comma, data = source.partition(",")
    if head.startswith("data:") and comma:
        return f"{kind} {media or head[5:].partition(';')[0] or 'data'}, {_decoded(data):,} bytes,"
    if source.startswith(("http://", "https://")):
        return f"{kind} {source[:200]}"
    return f"{kind} {media or 'data'}, {_decoded(source):,} bytes,"
