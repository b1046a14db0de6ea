"""What a sender says about a claim: one verdict for all its obligations.

Invariant: acceptance is said, never inferred: a handler that returns nothing has not accepted. `NotSent` is the one
exception that says that nothing went out; any other error leaves open whether it did.

Not for: what follows from a verdict (see `states`, `settling`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The receiver took it. It says that it was admitted, not that a turn ran."""

    # what the receiver gave back, such as a message id; JSON
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NotAdmitted:
    """The receiver had no room for it now. No attempt is spent, for any sibling."""

    why: str
    # seconds before it is asked again; None: the schedule's rest
    retry_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The receiver will never take it: the chat is gone, the user blocked us. Final."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Failed:
    """It certainly did not go out. Spends one attempt; `for_good` when no other attempt can do better."""

    why: str
    for_good: bool = False


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Nobody knows whether it went out. At most once: unknown. At least once: sent again, marked."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Suppressed:
    """It is not wanted any more. Final; the payload stays readable until its horizon."""

    why: str


Verdict = Accepted | NotAdmitted | Refused | Failed | Lost | Suppressed
VERDICTS = (Accepted, NotAdmitted, Refused, Failed, Lost, Suppressed)


class NotSent(Exception):
    """Raised by a handler that knows that nothing went out, such as when no connection could be made."""
