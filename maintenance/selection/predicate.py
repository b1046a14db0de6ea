"""Filters as plain Python over one row: the meaning that the SQL is held to.

Invariant: equal to `conditions.condition_of`. Used by itself for conversations of several segments, whose figures are
sums that no single row has. Not for: whole tables; that is what the SQL is for.
"""

from __future__ import annotations

import string

from maintenance.dialects.base import SessionRow
from maintenance.selection.filters import Filters

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def matches(filters: Filters, row: SessionRow, now: float) -> bool:
    """Whether every filter holds for this row."""
    return (
        _age_matches(filters, row, now)
        and (not filters.sources or row.facts.source in filters.sources)
        and _contains(row.title, filters.title)
        and _contains(row.model, filters.model)
        and _contains(row.branch, filters.branch)
        and _contains(row.workspace, filters.workspace)
        and _equals(row.end_reason, filters.end_reason)
        and _equals(row.user_id, filters.user)
        and _equals(row.chat_id, filters.chat_id)
        and _equals(row.chat_type, filters.chat_type)
        and (not filters.provider or lower(row.provider or "") == lower(filters.provider))
        and (not filters.cwd or _within(row.cwd, filters.cwd))
        and _between(row.facts.message_count, filters.min_messages, filters.max_messages)
        and _between(row.tokens, filters.min_tokens, filters.max_tokens)
        and _between(row.tool_call_count, filters.min_tool_calls, filters.max_tool_calls)
        and _between(row.cost_usd, filters.min_cost, filters.max_cost)
        and (filters.state == "any" or row.facts.ended == (filters.state == "ended"))
        and (not filters.never_active or row.never_active)
    )


def lower(text: str) -> str:
    """A-Z as a-z, as SQLite's lower() does."""
    return text.translate(_LOWER)


def _age_matches(filters: Filters, row: SessionRow, now: float) -> bool:
    if not filters.has_age:
        return True
    activity = row.facts.last_activity_at
    if activity is None:
        return False
    if filters.older_than is not None:
        age = filters.older_than.seconds(row.facts.source)
        if age is None or not activity < now - age:
            return False
    return (
        (filters.before is None or activity < filters.before)
        and (filters.after is None or activity >= filters.after)
        and (filters.newer_than is None or activity >= now - filters.newer_than)
    )


def _contains(text: str | None, needle: str) -> bool:
    return not needle or (text is not None and lower(needle) in lower(text))


def _equals(text: str | None, wanted: str) -> bool:
    return not wanted or text == wanted


def _within(path: str | None, directory: str) -> bool:
    if path is None:
        return False
    if directory in ("/", "\\"):
        return path.startswith(directory)
    return path == directory or path.startswith((f"{directory}/", f"{directory}\\"))


def _between(value: float | None, low: float | None, high: float | None) -> bool:
    if value is None:
        return (low is None or low == 0) and high is None
    return (low is None or low == 0 or value >= low) and (high is None or value <= high)
