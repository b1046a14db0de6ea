"""Events of the tail as lines and as JSON.

Invariant: one event is one line, cut to a width, whatever it holds; a program gets the same fields for every kind.

Not for: reading. Whole messages were rejected: a tool's output of a megabyte would push everything else off the screen.
"""

from __future__ import annotations

import json
from typing import Any

from hermes_state.clock import Clock
from maintenance.output.documents import plain
from maintenance.output.text import human_time, rfc3339, safe_text
from maintenance.reading.tail import PREVIEW_WIDTH, Event

_SESSION_WIDTH = 40


def event_line(event: Event, clock: Clock) -> str:
    """One line for people."""
    if event.kind == "gap":
        return "-- some changes are no longer in the feed, or the store has other content: what follows is new --"
    session = safe_text(event.session_id or "-", _SESSION_WIDTH)
    if event.kind == "change":
        what = f"{event.table} {event.operation}"
        name = "" if event.key == event.session_id else f" {safe_text(event.key, _SESSION_WIDTH)}"
        return f"{human_time(event.at, clock)}  {session}  [{safe_text(what)}]{name}"
    role = safe_text(f"{event.role} {event.tool_name}" if event.tool_name else event.role, 40)
    return f"{human_time(event.at, clock)}  {session}  {role}: {safe_text(event.preview, PREVIEW_WIDTH)}"


def event_document(event: Event) -> dict[str, Any]:
    """The fields of `--json`."""
    return {
        "kind": event.kind,
        "id": event.id,
        "at": rfc3339(event.at),
        "session_id": event.session_id,
        "role": event.role,
        "tool_name": event.tool_name,
        "preview": event.preview,
        "table": event.table,
        "key": event.key,
        "operation": event.operation,
    }


def event_json_line(event: Event) -> str:
    """One event as one line of JSON."""
    return json.dumps(plain(event_document(event)), allow_nan=False)
