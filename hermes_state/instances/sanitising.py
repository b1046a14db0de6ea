"""What of a gateway's payload may be stored: a whitelist for each item type.

Invariant: only the named fields of a known type are kept, only when they are text, and of each at most 4,096 code
points; whatever else a payload holds, at any depth, never reaches a row. Text that was longer is marked as truncated
with the length that it had.

Not for: finding secrets inside a command or a path. Dropping text that is too long was rejected: a person would approve
a command without seeing that there was one. UTF-16 units were rejected as the measure: both ends count code points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_CODE_POINTS = 4_096

_COMMAND, _PATH = ("command", "cwd"), ("path",)
# Item types of turns.
ITEM_FIELDS: Mapping[str, tuple[str, ...]] = {
    "command_execution": _COMMAND,
    "file_change": _PATH,
    "web_search": ("query",),
    "image_view": _PATH,
    "mcp_tool_call": ("server", "operation"),
}
# Types of requests that people answer.
REQUEST_FIELDS: Mapping[str, tuple[str, ...]] = {
    "command_execution_approval": _COMMAND,
    "exec_command_approval": _COMMAND,
    "file_read_approval": _PATH,
    "file_change_approval": _PATH,
    "apply_patch_approval": _PATH,
}
FIELDS: Mapping[str, tuple[str, ...]] = {**ITEM_FIELDS, **REQUEST_FIELDS}


def sanitised(kind: str, payload: object) -> dict[str, Any]:
    """What may be stored of a payload of this type, as JSON can say it. A type that is not known keeps nothing.

    Each kept field is its text, or `{"text": the first 4,096 code points, "truncated": True, "length": all of them}`.
    """
    if not isinstance(payload, Mapping):
        return {}
    kept = {}
    for name in FIELDS.get(kind, ()):
        value = payload.get(name)
        if isinstance(value, str):
            kept[name] = bounded(value)
    return kept


def bounded(text: str) -> str | dict[str, Any]:
    """One text, cut and marked when it is longer than 4,096 code points. Lone surrogates become U+FFFD."""
    clean = str(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace") if has_surrogate(text) else text
    if len(clean) <= MOST_CODE_POINTS:
        return clean
    return {"text": clean[:MOST_CODE_POINTS], "truncated": True, "length": len(clean)}


def has_surrogate(text: str) -> bool:
    """Whether half a character is in it."""
    # UTF-8, in which rows are stored, has none. A pair that stands for one character is joined, so both ends count one.
    return not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text)
