"""Durations and moments as people write them.

Invariant: whatever cannot be understood is InvalidInput that names the option; nothing is guessed. Not for: printing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hermes_state.errors import InvalidInput

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", re.IGNORECASE | re.ASCII)
# A bare number is days; one like this is more likely meant as a year.
_YEAR = re.compile(r"(?:19|20|21)[0-9]{2}")
# A thousand years; more is a typing mistake.
_LONGEST_SECONDS = 1000 * 366 * 86400.0


@dataclass(frozen=True, kw_only=True)
class AgeLimit:
    """An age that may differ by source. Sources without an age of their own use `default`; without that, none apply."""

    default: float | None = None  # seconds
    by_source: Mapping[str, float] = field(default_factory=dict)  # source -> seconds

    def seconds(self, source: str) -> float | None:
        """The limit for a source, or None when the source is not meant."""
        return self.by_source.get(source, self.default)

    @property
    def is_zero(self) -> bool:
        """Whether it lets every session pass."""
        return self.default == 0 and not any(self.by_source.values())


def parse_duration(text: str, option: str) -> float:
    """Seconds of `90d`, `12h`, `1.5w`; a bare number is days."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match.group(1)) * _UNITS[match.group(2).lower()] if match else math.nan
    if not seconds <= _LONGEST_SECONDS:
        raise InvalidInput(
            f"{option}: {text!r} is not a duration.",
            hint="Write a number and a unit: 30s, 15m, 12h, 90d or 4w. A bare number is days.",
            option=option,
            value=text,
        )
    return seconds


def parse_age_limit(text: str, now: float, option: str = "--older-than") -> AgeLimit:
    """`90d`, or `cron=7d,cli=90d`, or both: `90d,cron=7d`. A date stands for the time since then."""
    default: float | None = None
    by_source: dict[str, float] = {}
    for part in text.split(","):
        source, equals, age = part.rpartition("=")
        seconds = parse_age(age, now, option)
        source = source.strip()
        if equals and not source:
            raise InvalidInput(f"{option}: {part!r} names no source before '='.", option=option, value=text)
        if (source in by_source) if equals else (default is not None):
            raise InvalidInput(f"{option}: {text!r} gives two ages for the same sessions.", option=option, value=text)
        if equals:
            by_source[source] = seconds
        else:
            default = seconds
    return AgeLimit(default=default, by_source=by_source)


def parse_age(text: str, now: float, option: str) -> float:
    """Seconds of a duration, or since an ISO date or time; never negative."""
    if _DURATION.fullmatch(text.strip()):
        return parse_duration(text, option)
    return max(0.0, now - parse_moment(text, option, now))


def parse_moment(text: str, option: str, now: float) -> float:
    """Epoch seconds of a duration back from `now`, or of an ISO date or time (local time unless it says its offset)."""
    stripped = text.strip()
    if _YEAR.fullmatch(stripped):
        raise InvalidInput(
            f"{option}: {stripped} may be a year or a number of days.",
            hint=f"Write {stripped}-01-01 for the year's beginning, or {stripped}d for that many days ago.",
            option=option,
            value=text,
        )
    if _DURATION.fullmatch(stripped):
        return now - parse_duration(stripped, option)
    try:
        return datetime.fromisoformat(stripped).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(
            f"{option}: {text!r} is neither a duration nor a date.",
            hint="Write 30d, 2026-03-01, 2026-03-01T18:00 (local time) or 2026-03-01T18:00Z.",
            option=option,
            value=text,
        ) from error
