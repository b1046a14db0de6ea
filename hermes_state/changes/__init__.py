"""The feed of what changed in a store: written with every change, read from a position on, waited for."""

from __future__ import annotations

from hermes_state.changes.changes import Changes
from hermes_state.changes.feed import Batch, Change, Position, moved, position_of, read_batch, since
from hermes_state.changes.records import OPERATIONS, Operation, record, trim
from hermes_state.changes.watch import CommitWatch

__all__ = [
    "OPERATIONS", "Batch", "Change", "Changes", "CommitWatch", "Operation", "Position", "moved", "position_of",
    "read_batch", "record", "since", "trim",
]
