"""Lines of a file that another program may still be writing, parsed as JSON objects that a store can hold.

Invariant: memory is bounded by one line, and no line is read that this machine has no room for; a line is taken or
named by its number, and a last line without its end is "unfinished" unless it is whole JSON. What JSON can say and a
store cannot (lone surrogates, infinite numbers) is replaced here, in one place: U+FFFD, and the name of the number as
text.

Not for: what a line means. Reading the file at once was rejected: transcripts of 1 GB exist.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maintenance.space.disk import free_memory

# A line of this length is always read. A longer one takes, with what is made of it, about seven times as much memory
# (measured with one message of 200 MB: 1.4 GB), so it may have a sixteenth of what is free: an export of ours writes a
# session in a line. `sessions export --since-id 0` writes a line a message.
LINE_BYTES = 64 * 1024 * 1024
LINE_SHARE = 16
# JSON nested deeper than this is refused: whoever reads it back recursively has 1000 levels in Python and in SQLite.
NESTING = 200
_LONE = re.compile(r"[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\u[dD]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a file."""

    number: int  # from 1
    value: dict[str, Any] | None  # the object; None when the line is blank or `reason` says why not
    reason: str = ""  # why it cannot be used, as a clause
    unfinished: bool = False  # the last line, without its end, and not whole


def longest_line(free_memory: int | None) -> int:
    """Bytes that a line may have on a machine with so many bytes of free memory; None: nobody knows how many."""
    return max(LINE_BYTES, (free_memory or 0) // LINE_SHARE)


def read_lines(path: Path, *, end: int | None = None, limit: int | None = None) -> Iterator[Line]:
    """The lines of `path`, up to the byte offset `end`. `limit`: bytes that a line may have, by default what fits."""
    limit = longest_line(free_memory()) if limit is None else limit
    with path.open("rb") as content:
        number = at = 0
        while end is None or at < end:
            room = limit + 1 if end is None else min(limit + 1, end - at)
            raw = content.readline(room)
            if not raw:
                return
            number += 1
            at += len(raw)
            if len(raw) > limit:
                at += _skip_rest(content)
                reason = f"is longer than {limit:,} bytes, the longest line that there is memory for"
                yield Line(number=number, value=None, reason=reason)
                continue
            yield _parsed(number, raw)


def _skip_rest(content: Any) -> int:
    skipped = 0
    while piece := content.readline(1 << 20):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def _parsed(number: int, raw: bytes) -> Line:
    text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
    if not text.strip():
        return Line(number=number, value=None)
    value, reason = parse_object(text)
    if reason and not raw.endswith(b"\n"):
        return Line(number=number, value=None, unfinished=True)
    return Line(number=number, value=value, reason=reason)


def parse_object(raw: bytes | str) -> tuple[dict[str, Any] | None, str]:
    """A JSON object that a store can hold, or why not."""
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
    except UnicodeDecodeError:
        return None, "is not UTF-8"
    try:
        value = json.loads(text, parse_constant=str, parse_float=_number)
    except RecursionError:
        return None, "is nested too deeply"
    except ValueError:
        return None, "is not JSON"
    if not isinstance(value, dict):
        return None, "is not a JSON object"
    if text.count("[") + text.count("{") > NESTING and _depth(value) > NESTING:
        return None, "is nested too deeply"
    # A surrogate can only come from an escape: UTF-8 has none.
    return (scrub(value) if _ESCAPED.search(text) else value), ""


def scrub(value: Any) -> Any:
    """`value` with every lone surrogate replaced by U+FFFD."""
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, list):
        return [scrub(item) for item in value]
    if isinstance(value, dict):
        return {scrub(key): scrub(item) for key, item in value.items()}
    return value


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else ("-" if number < 0 else "") + "Infinity"


def _depth(value: Any) -> int:
    """How deeply lists and objects are nested, without recursion."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        deepest = max(deepest, depth)
        waiting += [(part, depth + 1) for part in inner if isinstance(part, (dict, list))]
    return deepest
