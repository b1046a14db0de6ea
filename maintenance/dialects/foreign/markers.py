"""Lineage markers in `sessions.model_config`.

Invariant: a cell that is not a JSON object has no markers; nothing here raises. Not for: writing `model_config`.
SQLite's JSON functions were rejected: they raise on a malformed cell, and one such row then stops a whole listing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

# Fetches the cell only for rows that can have a marker; their keys all end in `_from`.
MARKER_CELL = (
    "CASE WHEN typeof(s.model_config) = 'text' AND instr(s.model_config, '_from\"') > 0"
    " THEN CAST(s.model_config AS BLOB) END"
)


@dataclass(frozen=True, kw_only=True)
class Markers:
    """The ids that a session's markers name."""

    branched_from: str | None = None  # it is a branch of that session
    delegate_from: str | None = None  # that session handed this work out
    reset_from: str | None = None  # it began when that session was reset


NO_MARKERS = Markers()


def read_markers(cell: object) -> Markers:
    """The markers of one cell fetched by `MARKER_CELL`."""
    if not isinstance(cell, bytes):
        return NO_MARKERS
    try:
        config = json.loads(cell.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return NO_MARKERS
    if not isinstance(config, dict):
        return NO_MARKERS
    return Markers(
        branched_from=_name(config.get("_branched_from")),
        delegate_from=_name(config.get("_delegate_from")),
        reset_from=_name(config.get("_reset_from")),
    )


def _name(value: object) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value)
