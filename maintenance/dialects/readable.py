"""Message content as a person would read it.

Invariant: no base64, no NUL, never more than asked for; content of any shape gives text, nothing raises. Not for: how a
file encodes content (its dialect decodes it first), or escaping for a terminal or a page (whoever prints does that).
"""

from __future__ import annotations

import re
from typing import Any

_DATA_URL = re.compile(r"data:([a-z]+)/[\w.+-]*(?:;[\w=.+-]+)*;base64,[A-Za-z0-9+/=_-]*", re.IGNORECASE)
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")
_KINDS = ("image", "audio", "video", "file")


def readable_text(content: Any) -> str:
    """The text parts, and `[image]` and its kind for the rest."""
    if content is None:
        return ""
    if isinstance(content, str):
        return _DATA_URL.sub(lambda found: f"[{found.group(1).lower()}]", content).replace("\x00", " ")
    if isinstance(content, list):
        return " ".join(part for part in map(readable_text, content) if part)
    if isinstance(content, dict):
        return _part_text(content)
    return str(content)


def preview_of(content: Any, width: int) -> str:
    """The first words on one line, at most `width` characters."""
    text = readable_text(content)
    line = _SPACE.sub(" ", text[: width * 8 + 200]).strip()
    return line if len(line) <= width else line[: max(width - 1, 0)].rstrip() + "…"


def _part_text(part: dict[str, Any]) -> str:
    kind = str(part.get("type", ""))
    text = part.get("text")
    if isinstance(text, str) and "image" not in kind:
        return readable_text(text)
    for name in _KINDS:
        if name in kind or f"{name}_url" in part:
            return f"[{name}]"
    inner = part.get("content")
    if isinstance(inner, (str, list)):
        return readable_text(inner)
    return f"[{kind}]" if kind else "[structured content]"
