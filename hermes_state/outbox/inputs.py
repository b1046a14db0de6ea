"""What callers of the outbox may give: texts, numbers, times and lists of names, checked before anything is touched.

Invariant: what passes here can be stored and read back. A text that UTF-8 cannot write, a number that is none, a time
outside the years that people can read and a single text where a list is meant are refused by the name of the argument.

Not for: payloads and verdicts as JSON, but for their depth (see `append`, `verdicts`). Leaving it to SQLite was
rejected: it stores infinity, takes True for 1, and its refusal comes after a message may be out. Leaving the depth of
JSON to Python's recursion limit was rejected: what one program records, another, whose calls are deeper, could not
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hermes_state import json_values
from hermes_state.errors import InvalidInput

# Longest name of anything here; platform ids are far below.
MOST_CHARACTERS = 512
# Of a reason that a person gives.
MOST_REASON = 4_000
# The end of the year 9999, where RFC 3339 ends.
LATEST = 253_402_300_799.0
# Largest id of a row.
MOST_ID = 2**63 - 1


def storable(value: str) -> bool:
    """Whether UTF-8 can write it: a lone surrogate, as in badly decoded file names, it cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def text(
    name: str, value: Any, *, empty: bool = False, most: int = MOST_CHARACTERS, of: str = " of an obligation"
) -> str:
    """A text that can be stored, at most `most` characters. Raises `InvalidInput`."""
    if (
        not isinstance(value, str) or len(value) > most or "\0" in value or not storable(value)
        or not (empty or value.strip())
    ):
        raise InvalidInput(
            f"{name}{of} is a text of at most {most:,} characters without NUL and lone surrogates"
            f"{'' if empty else ', not empty'}, not {value!r:.80}.",
            argument=name,
        )
    return value


def levels(name: str, value: Any, *, of: str) -> None:
    """Raise `InvalidInput` for JSON that cannot be given back to any caller, by `json_values`; `of` is what has it."""
    try:
        json_values.check(value)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"The {name} of {of} cannot be written as JSON: {error}.", hint="Store what is deeper as text within it.",
            argument=name,
        ) from error


def names(name: str, value: Any) -> list[str]:
    """A list of names, each once. Raises `InvalidInput`, also for a single text."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise InvalidInput(
            f"{name} is a list of names, not {value!r:.80}.",
            hint=f"Give [{value!r:.80}]." if isinstance(value, str) else "", argument=name,
        )
    return list(dict.fromkeys(text(f"A name in {name}", one, of="") for one in value))


def whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number within bounds. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(f"{name} is a whole number from {low} to {high}, not {value!r:.80}.", argument=name)
    return value


def seconds(name: str, value: Any, *, most: float, zero: bool = True) -> float:
    """A time span in seconds, at most `most`. Raises `InvalidInput`."""
    if (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most
        or not (zero or value > 0)
    ):
        raise InvalidInput(
            f"{name} is a number of seconds {'from' if zero else 'above'} 0 {'to' if zero else 'and at most'}"
            f" {most:.0f}, not {value!r:.80}.",
            argument=name,
        )
    return float(value)


def moment(name: str, value: Any) -> float:
    """A time in epoch seconds UTC. Raises `InvalidInput`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LATEST:
        raise InvalidInput(
            f"{name} is a time in epoch seconds UTC, from 1970 to 9999, not {value!r:.80}.", argument=name
        )
    return float(value)
