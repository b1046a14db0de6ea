"""What a table or an index looks like in a file: its stored columns in order, and which of them is the rowid.

Invariant: a shape describes bytes, so generated virtual columns are not in it, and it can be written down as data
without a file (the releases' shapes are). Not for: reading SQL (`ddl`) or a file's schema (`schema`).

Asking SQLite for `table_info` was rejected: a schema that SQLite refuses is one of the cases that carving is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Affinity = Literal["TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB"]


@dataclass(frozen=True, kw_only=True)
class ColumnShape:
    """One stored column."""

    name: str
    # SQLite's affinity; BLOB is "none", also of ANY in a STRICT table
    affinity: Affinity = "BLOB"
    # only values of its type are stored in it, as in a STRICT table; never of ANY
    strict: bool = False
    # NULL is never stored in it
    not_null: bool = False
    # what rows written before the column was added have in it
    default: int | float | str | bytes | None = None
    # regular expression that every whole text in it matches, such as the form of an identity; None: any text
    pattern: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """One table."""

    name: str
    # stored columns in the order of the table; empty: not known, then rows come as they are stored
    columns: tuple[ColumnShape, ...]
    # index in `columns` of the INTEGER PRIMARY KEY, whose place in a record holds NULL
    rowid_column: int | None = None
    # indexes in `columns` of the primary key of a WITHOUT ROWID table, in key order; None: a rowid table
    key: tuple[int, ...] | None = None
    # page of the root of its b-tree in this file; None when the file did not say
    root: int | None = None

    @property
    def without_rowid(self) -> bool:
        """Whether its rows are entries of an index b-tree."""
        return self.key is not None

    def stored_order(self) -> tuple[int, ...]:
        """Indexes in `columns` in the order of a record: the key first in a WITHOUT ROWID table."""
        if self.key is None:
            return tuple(range(len(self.columns)))
        return (*self.key, *(number for number in range(len(self.columns)) if number not in self.key))


@dataclass(frozen=True, kw_only=True)
class IndexShape:
    """One index: what its entries hold."""

    name: str
    # the table it belongs to
    table: str
    # columns of an entry in order, without the key of the table that follows; None: an expression
    columns: tuple[str | None, ...]
    # affinity of each
    affinities: tuple[Affinity, ...]
    # columns that follow and name the row: empty for a rowid table, whose entries end with the rowid
    key_columns: tuple[str, ...] = ()
    # holds some rows of the table only
    partial: bool = False
    # page of its root in this file
    root: int | None = None


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What page 1 and its tree say is in the file."""

    tables: tuple[TableShape, ...]
    indexes: tuple[IndexShape, ...]
    # names of objects with a root page whose SQL could not be read, with that page
    unreadable: tuple[tuple[str, int], ...] = ()


def roots(tables: Sequence[TableShape], indexes: Sequence[IndexShape]) -> list[int]:
    """Every root page that is known."""
    found = [shape.root for shape in tables] + [shape.root for shape in indexes]
    return [root for root in found if root]
