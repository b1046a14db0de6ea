"""What every adapter needs: the package of an extra, and long text in pieces.

Invariant: no tokenizer gets more than a piece at a time, and a piece ends where a token ends anyway. Some tokenizers
need time that grows with the square of the text between two spaces: one took 464 seconds for 1 MB of Chinese.

Not for: exactness over a seam. Two pieces may have a token more than the whole; with pieces of 16,000 characters that
is less than one in a thousand.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from hermes_state.errors import Refused

# Characters. A seam is looked for in the last part of a piece; where there is none, it is cut as it is.
PIECE, _SEAM = 16_000, 2_000
# A run without any space: small enough for a tokenizer that needs the square of it.
UNBROKEN = 2_000


def package(module: str, extra: str, what: str) -> Any:
    """The module of an extra. Raises `Refused`, naming the extra, when it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise Refused(
            f"{what} needs the library {module.partition('.')[0]}, which is not installed.",
            hint=f'Install it with `pip install "hermes-state[{extra}]"`.', extra=extra,
        ) from error


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """The text in pieces of at most `size` characters, each cut after a line or before a space where there is one."""
    if len(text) <= min(size, UNBROKEN):
        yield text
        return
    start, length = 0, len(text)
    while start < length:
        end = min(start + size, length)
        if end < length:
            low = max(end - _SEAM, start + 1)
            line = text.rfind("\n", low, end)
            space = text.rfind(" ", low, end)
            end = line + 1 if line >= 0 else space if space >= 0 else end
        yield from _broken(text[start:end])
        start = end


def _broken(piece: str) -> Iterator[str]:
    """A piece as it is, or in parts when it has a long run without any space."""
    if len(piece) <= UNBROKEN or max(map(len, piece.split()), default=len(piece)) <= UNBROKEN:
        yield piece
        return
    for start in range(0, len(piece), UNBROKEN):
        yield piece[start : start + UNBROKEN]


def plain(text: str) -> str:
    """The text with lone surrogates replaced: no tokenizer takes them."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
