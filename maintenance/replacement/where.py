"""Which store, for code that no command line started.

Invariant: what the gate and the replacement of content need, and nothing of click. Not for: verbs; their
`maintenance.context.Context` has all of this and more, and fits wherever a `Where` is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hermes_state.clock import Clock


class Where(Protocol):
    """What is needed of a `maintenance.context.Context`."""

    @property
    def db(self) -> Path:
        """The store."""

    @property
    def profile(self) -> str | None:
        """Name of the profile, for the advice in refusals."""

    @property
    def clock(self) -> Clock:
        """The source of time."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The same for scripts."""

    db: Path  # the store's real path
    clock: Clock  # the only source of time
    profile: str | None = None  # the profile's name, when it is one's
