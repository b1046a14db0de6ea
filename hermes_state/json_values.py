"""JSON on its way in and out: what is taken can be given back, to any caller.

Invariant: a value that `dump` or `load` lets pass is at most `MOST_LEVELS` deep, so that reading it never depends on
how deep the reader's own calls are; it has no NaN and no infinity, which JSON has no words for; and no two keys of one
dict become one. Reading what is in a store is by `read`, which fails in one way only.

Not for: deciding what a bad value means; callers turn `ValueError` into their own. Leaving the depth to Python's
recursion limit was rejected: what one program could store, another could not read.
"""

from __future__ import annotations

import json
import math
from typing import Any

MOST_LEVELS = 100
# Compact, not escaped to ASCII, nothing that JSON has no word for.
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dump(value: Any) -> str:
    """Compact JSON text of `value`, not escaped to ASCII. Raises `ValueError` for what JSON cannot say."""
    check(value)
    try:
        return ENCODER.encode(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def load(text: str) -> Any:
    """The value of a JSON text that a caller gives. Raises `ValueError` as `dump` would for the value."""
    try:
        value = _STRICT.decode(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    check(value)
    return value


def read(text: str | bytes) -> Any:
    """The value of a stored JSON text. Raises `ValueError` only, also for one too deep to be read here."""
    try:
        if type(text) is str:
            # What `json.loads` does for a text without white space around it, which is all that is written here, in
            # half the time; it says what is wrong with any other.
            try:
                value, end = _SCAN(text, 0)
                if end == len(text):
                    return value
            except (StopIteration, ValueError):
                pass
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error


_TOO_DEEP = f"it is more than {MOST_LEVELS} levels deep"


def check(value: Any, levels: int = MOST_LEVELS) -> None:
    """Raise `ValueError` for lists and dicts that are too deep or lose a key; the encoder looks at the rest."""
    if isinstance(value, dict):
        if not levels:
            raise ValueError(_TOO_DEEP)
        texts = True
        for key, item in value.items():
            if type(key) is not str:
                texts = False
            if type(item) is not str and isinstance(item, (dict, list, tuple)):
                check(item, levels - 1)
        if not texts:
            _check_keys(value)
    elif isinstance(value, (list, tuple)):
        if not levels:
            raise ValueError(_TOO_DEEP)
        for item in value:
            if type(item) is not str and isinstance(item, (dict, list, tuple)):
                check(item, levels - 1)


def _check_keys(value: dict[Any, Any]) -> None:
    names = set[str]()
    for key in value:
        name = str.__str__(key) if isinstance(key, str) else _key(key)
        if name in names:
            raise ValueError(f"two of its keys become {name!r}")
        names.add(name)


def _key(key: Any) -> str:
    """A key that is no text as the encoder writes it."""
    if key is None or isinstance(key, (bool, int, float)):
        return ENCODER.encode(key)
    raise ValueError(f"keys are texts, not {type(key).__name__}")


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


_SCAN = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_STRICT = json.JSONDecoder(parse_constant=_constant, parse_float=_float)
