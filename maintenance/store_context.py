"""What one piece of work on a store is told: which store, which output, which clock.

Invariant: it says everything that code below the command line may know about how it was called, and importing it loads
no command line. Not for: options (see `context`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hermes_state.clock import Clock


@dataclass(frozen=True, kw_only=True)
class Context:
    """What one run of a verb, or one call of a script, works with."""

    home: Path  # the folder that holds the store; session files and exports are looked for beside it
    profile: str | None  # the profile's name, None for the root's own store and for --db
    db: Path  # the store's real path
    json: bool  # whether the result is one JSON document
    clock: Clock  # the only source of time


def context_of(store: Path, clock: Clock) -> Context:
    """The context of a script that names a store by its path."""
    real = store.resolve()
    return Context(home=real.parent, profile=None, db=real, json=False, clock=clock)
