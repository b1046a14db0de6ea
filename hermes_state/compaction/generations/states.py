"""What may become of a generation, as a table.

Invariant: nothing else changes `state`, and the trigger in the schema says the same to whoever writes past this code.

    running     -> done        its commit
    running     -> failed      its maker gave up, or is gone (dead, or its lease ran out)
    running     -> superseded  its commit came too late: the summary is kept, and seen by nobody
    failed      -> superseded  the same, after somebody else had given it up for gone
    done        -> superseded  a message that it covers was deleted: its text goes with it

Not for: which generation a session is seen through (see `effective`): a rewind changes no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from hermes_state.compaction.generations.records import State


class Event(Enum):
    """What happens to a generation."""

    COMMITTED = "committed"  # everything is as it was when the plan was read
    TOO_LATE = "too late"  # something is not
    FAILED = "failed"  # its maker says so
    GONE = "gone"  # its maker is provably dead, or its lease ran out
    MESSAGE_DELETED = "message deleted"  # one that it covers


NEXT: Mapping[tuple[State, Event], State] = {
    ("running", Event.COMMITTED): "done",
    ("running", Event.TOO_LATE): "superseded",
    ("running", Event.FAILED): "failed",
    ("running", Event.GONE): "failed",
    ("running", Event.MESSAGE_DELETED): "superseded",
    # Its lease had run out, somebody said so, and now it comes back.
    ("failed", Event.COMMITTED): "superseded",
    ("failed", Event.TOO_LATE): "superseded",
    ("failed", Event.FAILED): "failed",
    ("failed", Event.GONE): "failed",
    ("failed", Event.MESSAGE_DELETED): "failed",
    ("done", Event.MESSAGE_DELETED): "superseded",
    ("superseded", Event.COMMITTED): "superseded",
    ("superseded", Event.TOO_LATE): "superseded",
    ("superseded", Event.FAILED): "superseded",
    ("superseded", Event.GONE): "superseded",
    ("superseded", Event.MESSAGE_DELETED): "superseded",
}
