"""Filters as SQL over a dialect's fields.

Invariant: equal to `predicate.matches` on every row (property test). Values are bound, never written into the text;
substrings are found with instr, which knows no wildcards. Not for: archived, pinned, hidden and delegates, which marks
and JSON decide; `select.py` looks at those in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maintenance.dialects.base import Condition
from maintenance.selection.filters import Filters

_PARTS = {"title": "title", "model": "model", "branch": "branch"}
_EXACT = {"end_reason": "end_reason", "user": "user_id", "chat_id": "chat_id", "chat_type": "chat_type"}
_RANGES = {"messages": "message_count", "tokens": "tokens", "tool_calls": "tool_call_count", "cost": "cost"}


def condition_of(filters: Filters, fields: Mapping[str, str], now: float) -> Condition:
    """The WHERE clause for these filters."""
    clauses: list[str] = []
    params: list[Any] = []

    def add(clause: str, *values: Any) -> None:
        clauses.append(clause)
        params.extend(values)

    activity, source = fields["last_activity_at"], f"coalesce({fields['source']}, '')"
    if filters.older_than is not None:
        limits = filters.older_than
        cases = "".join(" WHEN ? THEN ?" for _ in limits.by_source)
        cutoffs = [value for name, age in limits.by_source.items() for value in (name, now - age)]
        default = None if limits.default is None else now - limits.default
        limit = f"CASE {source}{cases} ELSE ? END" if cases else "?"
        add(f"{activity} < {limit}", *cutoffs, default)
    for moment, sign in (
        (filters.before, "<"),
        (filters.after, ">="),
        (None if filters.newer_than is None else now - filters.newer_than, ">="),
    ):
        if moment is not None:
            add(f"{activity} {sign} ?", moment)
    if filters.sources:
        add(f"{source} IN ({', '.join('?' * len(filters.sources))})", *filters.sources)
    for name, field in _PARTS.items():
        needle = getattr(filters, name)
        if needle:
            add(f"instr(lower({fields[field]}), lower(?)) > 0", needle)
    if filters.workspace:
        path = f"coalesce(nullif({fields['repo_root']}, ''), {fields['cwd']})"
        add(f"instr(lower({path}), lower(?)) > 0", filters.workspace)
    for name, field in _EXACT.items():
        value = getattr(filters, name)
        if value:
            add(f"{fields[field]} = ?", value)
    if filters.provider:
        add(f"lower({fields['provider']}) = lower(?)", filters.provider)
    if filters.cwd:
        path = fields["cwd"]
        below = [filters.cwd] if filters.cwd in ("/", "\\") else [f"{filters.cwd}/", f"{filters.cwd}\\"]
        add(f"({' OR '.join([f'{path} = ?'] + [f'instr({path}, ?) = 1' for _ in below])})", filters.cwd, *below)
    for name, field in _RANGES.items():
        for end, sign in (("min", ">="), ("max", "<=")):
            value = getattr(filters, f"{end}_{name}")
            if value is not None and not (end == "min" and value == 0):
                add(f"{fields[field]} {sign} ?", value)
    if filters.state != "any":
        add(f"{fields['ended']} = ?", int(filters.state == "ended"))
    if filters.never_active:
        add(fields["never_active"])
    return Condition(sql=" AND ".join(f"({clause})" for clause in clauses) or "1", params=tuple(params))
