"""Filters said again: a length of time exactly, and all filters as the options of a command line.

Invariant: what is said chooses the same sessions; what no option can say is not said at all. A hint with half of the
filters would hide sessions that nobody chose.

Not for: sentences (`describe.words`). Keeping the text that was typed was rejected: a bare prune has none.
"""

from __future__ import annotations

import shlex
from dataclasses import fields
from datetime import UTC, datetime

from maintenance.selection import AgeLimit, Filters

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
_WORDS = {"d": "d", "h": "h", "m": "min", "s": "s"}
# No option sets these; the last one is for the caller, who says it first.
_UNSAYABLE = ("include_hidden", "hidden_sources", "state")
_TIMES = ("before", "after")


def exact_duration(seconds: float) -> str:
    """`5400` as `1 h 30 min`: nothing is rounded away that a filter goes by."""
    said = []
    rest = round(seconds, 3)
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count:
            said.append(f"{int(count)} {_WORDS[unit]}")
    rest = round(rest, 3)
    if rest or not said:
        said.append(f"{rest:g} s" if rest == int(rest) else f"{rest:.3f}".rstrip("0") + " s")
    return " ".join(said)


def duration_option(seconds: float) -> str:
    """`5400` as `90m`, the way an option takes it."""
    for unit, length in _UNITS:
        if seconds and seconds % length == 0:
            return f"{int(seconds // length)}{unit}"
    # Never with an exponent, which no option takes.
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def options_of(filters: Filters) -> str | None:
    """The options that repeat all filters but `state`, each after a blank; None when one of them has no option."""
    default = Filters()
    said: list[str] = []
    for item in fields(filters):
        value = getattr(filters, item.name)
        if value == getattr(default, item.name) or item.name == "state":
            continue
        if item.name in _UNSAYABLE:
            return None
        said += _option(item.name, value)
    if not all(word.isprintable() for word in said):
        return None
    return "".join(f" {shlex.quote(word)}" for word in said)


def _option(name: str, value: object) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, AgeLimit):
        return [option, _age_option(value)]
    if value is True:
        return [option]
    if isinstance(value, tuple):
        return [word for one in value for word in ("--source", str(one))]
    if isinstance(value, float) and name == "newer_than":
        return [option, duration_option(value)]
    if isinstance(value, float) and name in _TIMES:
        return [option, datetime.fromtimestamp(value, UTC).isoformat()]
    return [option, str(value)]


def _age_option(limit: AgeLimit) -> str:
    ages = [f"{source}={duration_option(age)}" for source, age in limit.by_source.items()]
    if limit.default is not None:
        ages.insert(0, duration_option(limit.default))
    return ",".join(ages)
