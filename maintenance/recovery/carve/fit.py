"""Whether a record can be a row of a table, by what its values are, and the row that it then is.

Invariant: -1 means that SQLite would never have stored these values in that table, so the record is no row of it; a
larger number only says that the record looks more like one. Values are never changed but as SQLite changes them when it
reads a row: the rowid in its column, whole numbers of REAL columns, defaults of columns that were added later.

Not for: which table a page belongs to (`lost`). Names and order of columns alone were rejected: ten tables of a real
store have two texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from maintenance.recovery.carve.shapes import ColumnShape, IndexShape, TableShape
from maintenance.recovery.format.record import BrokenNumber, BrokenText, BrokenValue, Value

_NUMERIC = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_EXACT = 1 << 53
# Combinations of types that are remembered for a table.
_MOST_TYPES = 1000
# What a STRICT column holds, and what damage makes of that: a REAL without a fraction is stored as an integer.
_DAMAGED = (BrokenValue,)
_OF_STRICT: dict[str, tuple[type, ...]] = {
    "INTEGER": (int, *_DAMAGED), "REAL": (float, int, *_DAMAGED), "TEXT": (str, *_DAMAGED), "BLOB": (bytes, *_DAMAGED),
    "NUMERIC": (int, float, *_DAMAGED),
}


class Fit:
    """One table, prepared for many rows."""

    def __init__(self, shape: TableShape) -> None:
        self.shape = shape
        self.name = shape.name
        order = shape.stored_order()
        # Columns in the order of a record.
        self.stored = [shape.columns[number] for number in order]
        self.alias = shape.rowid_column
        self._order = None if shape.key is None else order
        self._reals = [number for number, column in enumerate(shape.columns) if column.affinity == "REAL"]
        self._defaults = [column.default for column in shape.columns]
        self._stored_defaults = [column.default for column in self.stored]
        self._patterns = [re.compile(c.pattern, re.DOTALL) if c.pattern else None for c in self.stored]
        self._by_types: dict[tuple[type, ...], bool] = {}
        self.count = len(self.stored)
        # A record with fewer columns was written before the others were added, and those need a value.
        required = [n for n, column in enumerate(self.stored) if column.not_null and column.default is None]
        self.least = max(required, default=0) + 1

    def row(self, rowid: int | None, values: list[Value]) -> tuple[Value, ...]:
        """The row as SQLite would read it; `values` is used up. Without known columns it is what is stored."""
        missing = self.count - len(values)
        if missing > 0:
            values += self._stored_defaults[-missing:]
        if self.alias is not None:
            values[self.alias] = BrokenNumber(raw=b"", missing=8) if rowid is None else rowid
        if self._order is not None and self.count:
            ordered: list[Value] = [None] * self.count
            for place, number in enumerate(self._order):
                ordered[number] = values[place]
            values = ordered + values[self.count :]
        for number in self._reals:
            value = values[number]
            if type(value) is int:
                values[number] = float(value)
        return tuple(values)

    def fits(self, values: Sequence[Value]) -> bool:
        """Whether a record can be a row of the table. Rows of the same types share the answer where types decide it."""
        kinds = tuple(map(type, values))
        known = self._by_types.get(kinds)
        if known is None:
            answer = self.score(values) >= 0
            if len(self._by_types) < _MOST_TYPES and self._types_decide(values):
                self._by_types[kinds] = answer
            return answer
        return known

    def _types_decide(self, values: Sequence[Value]) -> bool:
        """Whether no value has to be looked at: texts in columns of numbers, floats in those of integers, patterns."""
        if len(values) > self.count:
            return True
        return not any(
            (isinstance(value, str) and (pattern is not None or column.affinity not in ("TEXT", "BLOB")))
            or (isinstance(value, float) and column.affinity in ("INTEGER", "NUMERIC"))
            for value, column, pattern in zip(values, self.stored, self._patterns, strict=False)
        )

    def score(self, values: Sequence[Value]) -> int:
        """How well a record fits, -1 when it cannot be a row of the table."""
        count = len(values)
        if not self.count:
            return -1
        # Entries of an index are short, so a short row of a WITHOUT ROWID table would be any of them.
        if count > self.count or count < (self.least if self._order is None else self.count):
            return -1
        total = count - self.count
        alias = self.alias
        for number, value in enumerate(values):
            if number == alias:
                if value is not None:
                    return -1
                total += 2
                continue
            points = column_score(self.stored[number], self._patterns[number], value)
            if points < 0:
                return -1
            total += points
        return max(total, 0)


def column_score(column: ColumnShape, pattern: re.Pattern[str] | None, value: Value) -> int:
    """The same for one value."""
    affinity = column.affinity
    if value is None:
        return -1 if column.not_null else 0
    if column.strict and not isinstance(value, _OF_STRICT[affinity]):
        return -1
    if isinstance(value, str):
        if pattern is not None:
            return 4 if pattern.fullmatch(value) else -1
        if affinity == "TEXT":
            return 2
        if affinity == "BLOB":
            return 1
        return -1 if _NUMERIC.fullmatch(value) else 0
    if isinstance(value, BrokenText):
        return 1 if affinity in ("TEXT", "BLOB") else 0
    if isinstance(value, BrokenValue):
        return 0
    if isinstance(value, bytes):
        return 2 if affinity == "BLOB" else 0
    if affinity == "TEXT":
        return -1
    if isinstance(value, int):
        return 2 if affinity in ("INTEGER", "NUMERIC") else 1
    if affinity in ("INTEGER", "NUMERIC") and value.is_integer() and abs(value) < _EXACT:
        return -1
    return 2 if affinity == "REAL" else 1 if affinity in ("NUMERIC", "BLOB") else 0


def index_score(shape: IndexShape, values: Sequence[Value]) -> int:
    """How well an entry of an index fits, -1 when it cannot be one."""
    if len(values) != len(shape.columns) + (len(shape.key_columns) or 1):
        return -1
    total = 0
    for affinity, value in zip(shape.affinities, values, strict=False):
        points = column_score(ColumnShape(name="", affinity=affinity), None, value)
        if points < 0:
            return -1
        total += points
    if not shape.key_columns:
        if not isinstance(values[-1], int):
            return -1
        total += 2
    return total
