"""Which full-text indexes a foreign file has, how they store text, and whether their triggers work.

Invariant: read from the stored CREATE text, never by running a query on an index that may be damaged. A trigger that
exists and does not name its index is a no-op on purpose: old releases rebuild when a name is absent.

Not for: checking or rebuilding an index.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from maintenance.dialects.base import SearchIndex, TriggerState

if TYPE_CHECKING:
    from hermes_state.engine import Reader

_FTS5 = re.compile(r"\busing\s+fts5\s*\((.*)\)\s*;?\s*$", re.IGNORECASE | re.DOTALL)
_EVENTS = ("insert", "delete", "update")


def search_indexes(reader: Reader) -> tuple[SearchIndex, ...]:
    """Every FTS5 table of the file, in order of name."""
    rows = reader.rows("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
    triggers = {str(name): str(sql) for kind, name, sql in rows if kind == "trigger"}
    found = []
    for kind, name, sql in rows:
        match = _FTS5.search(str(sql)) if kind == "table" else None
        if match is not None:
            found.append(_index(str(name), match.group(1), triggers))
    return tuple(found)


def _index(name: str, body: str, triggers: dict[str, str]) -> SearchIndex:
    columns: list[str] = []
    options: dict[str, str] = {}
    for argument in _arguments(body):
        key, equals, value = argument.partition("=")
        if equals and re.fullmatch(r"\w+", key.strip()):
            options[key.strip().lower()] = _unquoted(value.strip())
        elif argument.strip():
            columns.append(_unquoted(argument.strip().split()[0]))
    content = options.get("content")
    return SearchIndex(
        name=name,
        layout="inline" if content is None else "external" if content else "contentless",
        tokenizer=options.get("tokenize", "unicode61") or "unicode61",
        columns=tuple(columns),
        content_source=content or None,
        triggers={f"{name}_{event}": _state(f"{name}_{event}", name, triggers) for event in _EVENTS},
    )


def _state(trigger: str, index: str, triggers: dict[str, str]) -> TriggerState:
    sql = triggers.get(trigger)
    if sql is None:
        return "missing"
    body = re.split(r"\bbegin\b", sql, maxsplit=1, flags=re.IGNORECASE)[-1]
    writes = re.search(rf"\b(?:into|from|update)\s+[\"'\[`]?{re.escape(index)}\b(?!_)", body, re.IGNORECASE)
    return "present" if writes else "noop"


def _arguments(body: str) -> list[str]:
    """The comma-separated arguments, commas inside quotes left alone, comments dropped."""
    parts = [""]
    quote = ""
    for token in re.findall(r"--[^\n]*|/\*.*?\*/|.", body, re.DOTALL):
        if len(token) > 1 and not quote:
            continue
        if quote:
            quote = "" if token == quote else quote
        elif token in "'\"`":
            quote = token
        elif token == ",":
            parts.append("")
            continue
        parts[-1] += token
    return parts


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"`":
        return text[1:-1].replace(text[0] * 2, text[0])
    return text
