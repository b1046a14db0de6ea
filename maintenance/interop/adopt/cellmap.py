"""Taking cells that do not fit apart from those that do.

Invariant: each function returns a value that the native column accepts, and puts the cell itself into `original` unless
giving the row back would make the very same cell of that value. Not for: cells that have no native column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from maintenance.interop.adopt.source import Columns
from maintenance.interop.adopt.survey import sane_time
from maintenance.interop.fields import ORIGINAL
from maintenance.interop.typed import BadText, Cell, to_json

Original = dict[str, Cell]


def text(cells: Mapping[str, Cell], name: str, original: Original) -> str | None:
    """A text or NULL; bad UTF-8 as far as it can be read."""
    cell = cells.get(name)
    if cell is None or type(cell) is str:
        return cell
    original[name] = cell
    return str(cell) if isinstance(cell, BadText) else None


def count(cells: Mapping[str, Cell], name: str, original: Original) -> int:
    """A whole number; anything else counts as 0."""
    cell = cells.get(name, 0)
    if type(cell) is int:
        return cell
    original[name] = cell
    return int(cell) if isinstance(cell, float) and abs(cell) < 1 << 53 else 0


def amount(cells: Mapping[str, Cell], name: str, original: Original) -> float | None:
    """A finite number or NULL."""
    cell = cells.get(name)
    if cell is None or (type(cell) is float and cell - cell == 0):
        return cell
    original[name] = cell
    return float(cell) if type(cell) is int else None


def moment(cells: Mapping[str, Cell], name: str, original: Original, instead: float) -> float:
    """A time in seconds; a cell that is none is replaced by `instead`, the nearest time that is known."""
    cell = cells.get(name)
    found = sane_time(cell)
    if found is None or type(cell) is not float:
        original[name] = cell
    return instead if found is None else found


def flag(cells: Mapping[str, Cell], name: str, original: Original) -> int:
    """0 or 1; any other number counts as set."""
    cell = cells.get(name, 0)
    if type(cell) is int and cell in (0, 1):
        return cell
    original[name] = cell
    return 1 if isinstance(cell, (int, float)) and cell else 0


def extra_of(
    cells: Mapping[str, Cell], columns: Columns, unmapped: Iterable[str], original: Original, **more: Any
) -> str | None:
    """The `extra` of a row: what has no column and is not its default, then the originals."""
    extra: dict[str, Any] = {name: to_json(cells[name]) for name in unmapped if columns.differs(name, cells[name])}
    extra.update(more)
    if original:
        extra[ORIGINAL] = {name: to_json(cell) for name, cell in original.items()}
    return dump(extra) if extra else None


def dump(value: Any) -> str:
    """JSON without spaces, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
