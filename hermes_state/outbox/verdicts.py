"""What a sender says about a claim: one verdict for all its obligations.

Invariant: acceptance is said, never inferred: a handler that returns nothing has not accepted. `NotSent` is the one
exception that says that nothing went out; any other error leaves open whether it did. A verdict that exists can be
stored: what it carries is checked when it is made.

Not for: what follows from a verdict (see `states`, `settling`). Checking when it is stored was rejected: the message is
out by then, and the row would stay claimed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import levels, seconds

# Largest result of a receiver, as JSON: ids and addresses, not answers.
MOST_RESULT_BYTES = 65_536
# Longest rest that a receiver may ask for: a week. What has to wait longer is not a matter of room.
LONGEST_REST_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The receiver took it. It says that it was admitted, not that a turn ran. Raises `InvalidInput`."""

    # what the receiver gave back, such as a message id; JSON, at most 64 KiB, 100 levels deep, as JSON gives it back
    result: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.result, Mapping):
            raise InvalidInput(f"The result of Accepted is a mapping, not {shown(self.result)}.", argument="result")
        levels("result", plain := dict(self.result), of="Accepted")
        try:
            text = json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"The result of Accepted is JSON: {error}.", argument="result") from error
        if len(text) > MOST_RESULT_BYTES:
            raise InvalidInput(
                f"The result of Accepted has {len(text):,} bytes; {MOST_RESULT_BYTES:,} is the most.",
                hint="Keep ids, not what they are of.", argument="result",
            )
        object.__setattr__(self, "result", json.loads(text))


@dataclass(frozen=True, kw_only=True)
class NotAdmitted:
    """The receiver had no room for it now. No attempt is spent, for any sibling. Raises `InvalidInput`."""

    why: str
    # seconds before it is asked again, at most a week; None: the schedule's rest
    retry_after: float | None = None

    def __post_init__(self) -> None:
        _reason(self)
        if self.retry_after is not None:
            seconds("retry_after", self.retry_after, most=LONGEST_REST_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The receiver will never take it: the chat is gone, the user blocked us. Final. Raises `InvalidInput`."""

    why: str

    def __post_init__(self) -> None:
        _reason(self)


@dataclass(frozen=True, kw_only=True)
class Failed:
    """It certainly did not go out. Spends one attempt; `for_good` when no other attempt can do better."""

    why: str
    for_good: bool = False

    def __post_init__(self) -> None:
        _reason(self)
        if not isinstance(self.for_good, bool):
            raise InvalidInput(f"for_good of Failed is True or False, not {shown(self.for_good)}.", argument="for_good")


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Nobody knows whether it went out. At most once: unknown. At least once: sent again, marked."""

    why: str

    def __post_init__(self) -> None:
        _reason(self)


@dataclass(frozen=True, kw_only=True)
class Suppressed:
    """It is not wanted any more. Final; the payload stays readable until its horizon."""

    why: str

    def __post_init__(self) -> None:
        _reason(self)


Verdict = Accepted | NotAdmitted | Refused | Failed | Lost | Suppressed
VERDICTS = (Accepted, NotAdmitted, Refused, Failed, Lost, Suppressed)


class NotSent(Exception):
    """Raised by a handler that knows that nothing went out, such as when no connection could be made."""


def shown(value: object) -> str:
    """A value in a message; its type when it cannot even say what it is."""
    try:
        return f"{value!r:.80}"
    except Exception:  # whatever a foreign __repr__ raises: nothing may keep a verdict from being written
        return f"an object of {type(value).__name__}"


def told(error: BaseException) -> str:
    """What an error says, "" when it cannot."""
    try:
        return str(error)
    except Exception:  # as above
        return ""


def verdict_of(said: object) -> Verdict:
    """What a handler returned, where that is a verdict; else it spends an attempt."""
    return said if isinstance(said, VERDICTS) else Failed(why=f"the handler gave no verdict: {shown(said)}")


def not_sent(error: NotSent) -> Failed:
    """A handler said that nothing went out."""
    return Failed(why=told(error) or "nothing was sent")


def lost_by(error: BaseException) -> Lost:
    """A handler broke: nobody knows whether it went out."""
    return Lost(why=f"{type(error).__name__}: {told(error)}")


def _reason(verdict: NotAdmitted | Refused | Failed | Lost | Suppressed) -> None:
    """Any text will do: a long one is cut, and a lone surrogate escaped, where it is stored."""
    if not isinstance(verdict.why, str):
        raise InvalidInput(f"why of {type(verdict).__name__} is a text, not {shown(verdict.why)}.", argument="why")
