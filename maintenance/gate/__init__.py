"""The one place where a maintenance verb gets a store from.

Invariant: no verb opens a store for writing but through `online` or `exclusive`, and a verb gets only what its row in
`maintenance.verbs` allows. Both scan for holders first; `exclusive` scans again under SQLite's own exclusive lock,
and only then hands the store out.

Not for: opening stores in the library (that is `hermes_state.engine`), or deciding what a verb may change.
A check at the top of each command was rejected: the fifteenth command forgets it.
"""

from __future__ import annotations

from maintenance.gate.advice import holder_line, holder_lines, how_to_stop, not_visible_lines
from maintenance.gate.doors import exclusive, online, preflight, readable_wal, reading
from maintenance.gate.hold import expected_hold_seconds, hold_lines
from maintenance.gate.opened import Alone, Forced, Online, VacuumOnly

__all__ = [
    "Alone",
    "Forced",
    "Online",
    "VacuumOnly",
    "exclusive",
    "expected_hold_seconds",
    "hold_lines",
    "holder_line",
    "holder_lines",
    "how_to_stop",
    "not_visible_lines",
    "online",
    "preflight",
    "readable_wal",
    "reading",
]
