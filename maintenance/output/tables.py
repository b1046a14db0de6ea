"""Aligned tables with lower-case headings.

Invariant: every column lines up, wide characters included, and a row is one line. A column of free text has a widest
width wherever it is printed, so that one damaged cell does not push the others away. On a terminal the columns that may
shrink are cut further, so that a row fits; into a pipe they are not.

Not for: programs (see `documents.py`). rich.table was rejected: importing it costs 28 ms, more than reading a page of
sessions, and this page is all of it that a listing needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TextIO

from maintenance.output.text import cut, pad, safe_text, text_width

_GAP = "  "
_NARROWEST = 8


class Column(NamedTuple):
    """One column of a table."""

    name: str  # the heading
    right: bool = False  # numbers stand to the right
    shrinks: bool = False  # may be cut when a row does not fit the terminal
    widest: int | None = None  # columns of the terminal that a cell may take anywhere; None for values of ours


def print_table(
    columns: Sequence[str | Column], rows: Iterable[Sequence[Any]], *, out: TextIO | None = None, indent: str = ""
) -> None:
    """Write the rows under their headings. Cells go through `safe_text`; an empty table prints its headings only."""
    stream = out or sys.stdout
    heads = [column if isinstance(column, Column) else Column(column) for column in columns]
    lines = [[safe_text(cell, head.widest) for head, cell in zip(heads, row, strict=True)] for row in rows]
    widths = [
        max([text_width(head.name), *(text_width(line[index]) for line in lines)]) for index, head in enumerate(heads)
    ]
    if stream.isatty():
        from shutil import get_terminal_size

        room = get_terminal_size().columns - len(indent)
        widths = _fitted(heads, widths, room)
    for cells in [[head.name for head in heads], *lines]:
        shown = (
            pad(cut(cell, width), width, right=head.right)
            for head, cell, width in zip(heads, cells, widths, strict=True)
        )
        stream.write(indent + _GAP.join(shown).rstrip() + "\n")


def _fitted(heads: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """Take columns from the widest column that may shrink, one by one, until a row fits or nothing can shrink."""
    fitted = list(widths)
    excess = sum(fitted) + len(_GAP) * (len(fitted) - 1) - room
    shrinking = [index for index, head in enumerate(heads) if head.shrinks]
    while excess > 0:
        index = max(shrinking, key=lambda number: fitted[number], default=None)
        if index is None or fitted[index] <= _NARROWEST:
            break
        fitted[index] -= 1
        excess -= 1
    return fitted


def print_facts(facts: Iterable[tuple[str, Any]], *, out: TextIO | None = None, indent: str = "") -> None:
    """Write `name  value` lines with the values under each other."""
    stream = out or sys.stdout
    lines = [(name, safe_text(value)) for name, value in facts]
    width = max((text_width(name) for name, _ in lines), default=0)
    for name, value in lines:
        stream.write(f"{indent}{pad(name, width)}{_GAP}{value}".rstrip() + "\n")
