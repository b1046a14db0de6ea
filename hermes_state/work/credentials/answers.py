"""What of a provider's answer can be kept: each field by itself, and none that is odd takes the others with it.

Invariant: nothing here raises for what a provider says. The one who asks holds a new token that exists nowhere else, so
a time that nobody can read is unknown, an empty text is absent, and what cannot be kept is left out.

Not for: what a caller gives, which is refused by name (see `secrets`). Judging the answer as a whole was rejected: one
odd field would lose the grant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from hermes_state import json_values
from hermes_state.outbox.inputs import LATEST, storable

# Longest token that is taken: signed ones with many claims have some kilobytes.
MOST_SECRET = 2**18
# Most of the other secrets of one credential, as JSON.
MOST_OTHERS_BYTES = 2**20
# Longest address of a provider.
MOST_ADDRESS = 2_048
# A number above this is in milliseconds: the year 5138 in seconds, 1973 in milliseconds.
_MILLISECONDS = 1e11
_LONGEST_NAME = 200


def is_token(value: Any) -> bool:
    """Whether it is a text that a token can be: not empty, without NUL, and one that UTF-8 can write."""
    return isinstance(value, str) and 0 < len(value) <= MOST_SECRET and "\0" not in value and storable(value)


def moment(value: Any) -> float | None:
    """A time in epoch seconds UTC from a number, its text, milliseconds or RFC 3339; None for what is none."""
    number = seconds(value)
    if number is None and isinstance(value, str):
        try:
            said = datetime.fromisoformat(value)
            number = None if said.tzinfo is None else said.timestamp()
        except (ValueError, OverflowError):
            return None
    if number is not None and number > _MILLISECONDS:
        number /= 1000
    return None if number is None or not 0 <= number <= LATEST else number


def seconds(value: Any) -> float | None:
    """A number from a number or its text; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_address(value: Any) -> bool:
    """Whether it is an address that a row can have: without a password in it."""
    return (
        isinstance(value, str) and len(value.strip()) > 0 and len(value) <= MOST_ADDRESS and "\0" not in value
        and storable(value) and "@" not in value
    )


def keepable(fields: Any) -> dict[str, Any]:
    """The fields that JSON has words for, each as it is read back; empty for what is no mapping."""
    found: dict[str, Any] = {}
    if not isinstance(fields, Mapping):
        return found
    for name, value in fields.items():
        if not isinstance(name, str) or len(name) > _LONGEST_NAME or name in found:
            continue
        try:
            found[name] = json_values.load(json_values.dump({name: value}))[name]
        except (ValueError, RecursionError):
            continue  # nothing that a program reads back as JSON
    return found


def within(fields: Iterable[tuple[str, Any]], most: int) -> dict[str, Any]:
    """As many of the fields as fit into so many bytes of JSON, the first ones first."""
    found: dict[str, Any] = {}
    left = most - 2
    for name, value in fields:
        size = len(json_values.dump({name: value}).encode("utf-8", "surrogatepass"))
        if name not in found and size <= left:
            found[name], left = value, left - size
    return found


def merged(before: Mapping[str, Any], new: Mapping[str, Any], most: int, *, newest_first: bool) -> dict[str, Any]:
    """The fields of an answer over those that were there, at most so many bytes.

    What does not fit goes: of what is only told (`newest_first`) the oldest; of what may have to be sent, new names.
    """
    whole = {**before, **new}
    old = [name for name in before if name not in new]
    order = [*new, *reversed(old)] if newest_first else list(whole)
    kept = within(((name, whole[name]) for name in order), most)
    return {name: value for name, value in whole.items() if name in kept}
