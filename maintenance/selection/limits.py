"""Limits on what a store keeps: a number of conversations that always stay, a size that the file may have.

Invariant: limits are values beside the filters; `removal.limits` turns them into a choice. A size that cannot be
understood is InvalidInput that names the option. Not for: ages (`ages.py`), which are filters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from hermes_state.errors import InvalidInput

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {
    **{"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)
_LARGEST = 2**53


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a prune leaves besides its filters."""

    keep_last: int | None = None  # conversations that stay because they were active last
    max_bytes: int | None = None  # bytes of the pages that the file may have in use

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return self.keep_last is not None or self.max_bytes is not None

    def facts(self) -> dict[str, int]:
        """Those that were set, as plain JSON."""
        named = {"keep_last": self.keep_last, "max_bytes": self.max_bytes}
        return {name: value for name, value in named.items() if value is not None}


def parse_size(text: str, option: str) -> int:
    """Bytes of `2GB` (powers of ten), `2G` or `2GiB` (powers of two); a bare number is bytes."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match.group(2).lower()) if match else None
    size = int(float(match.group(1)) * unit) if match and unit else -1
    if not 0 < size <= _LARGEST:
        raise InvalidInput(
            f"{option}: {text!r} is not a size.",
            hint="Write a number and a unit: 500MB, 2GB, 1.5GiB.",
            option=option,
            value=text,
        )
    return size


def limit_options(command: Command) -> Command:
    """Put --keep-last and --max-size on a command; it receives them as the keyword argument `limits`."""

    @functools.wraps(command)
    def with_limits(*args: Any, keep_last: int | None, max_size: str | None, **given: Any) -> Any:
        limits = Limits(
            keep_last=keep_last, max_bytes=None if max_size is None else parse_size(max_size, "--max-size")
        )
        return command(*args, limits=limits, **given)

    decorated: Any = with_limits
    for option in (
        click.option("--max-size", metavar="SIZE", help="Delete the oldest until the file holds no more: 2GB, 500MB."),
        click.option(
            "--keep-last", type=click.IntRange(min=0), metavar="N",
            help="Spare the N conversations that were active last, of those that the filters mean.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
