"""Tables that a native store has no meaning for: copied cell by cell under `foreign_<name>`.

Invariant: every cell keeps its value and its type, bad UTF-8 included, and every row its rowid where it has one.
Indexes, triggers, constraints and generated columns are kept as text (`store.adopted_from`) and do not act: rows of
hermes-agent must not be changed by rules that refer to tables which are no longer there.

Not for: search indexes; their text is in the messages. `CREATE TABLE … AS SELECT` across two databases was rejected: it
would need both files on one connection, and it keeps neither types nor rowids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from maintenance.interop.adopt.source import PREFIX
from maintenance.interop.typed import BadText, Cell, CellReader, canonical
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

_ROWID_NAMES = ("rowid", "oid", "_rowid_")
_MASK = (1 << 128) - 1


class KeptTable:
    """One table of the file and its copy."""

    def __init__(self, reader: Reader, name: str, columns: Sequence[str]) -> None:
        self.name = name
        self.copy = PREFIX + name
        self.columns = tuple(columns)
        lowered = {column.lower() for column in columns}
        without = reader.row("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (name,)) == (1,)
        # The name by which the rowid can be asked for; None when the table has none, or its columns hide it.
        self.rowid = None if without else next((word for word in _ROWID_NAMES if word not in lowered), None)
        self._cells = CellReader(self.columns)

    def create(self, tx: Transaction) -> None:
        """Make the copy's table. ANY keeps each value as it comes."""
        columns = ", ".join(f"{quoted(column)} ANY" for column in self.columns)
        tx.execute(f"CREATE TABLE IF NOT EXISTS {quoted(self.copy)} ({columns}) STRICT")

    def rows(self, reader: Reader, *, of_copy: bool = False) -> Iterator[tuple[int | None, list[Cell]]]:
        """Rowid and cells of each row of the table, or of its copy."""
        table = quoted(self.copy if of_copy else self.name)
        rowid = self.rowid or "NULL"
        order = f" ORDER BY {self.rowid}" if self.rowid else ""
        for row in reader.iterate(f"SELECT {self._cells.sql}, {rowid} FROM {table}{order}", batch=50):
            yield row[-1], self._cells.cells(row)

    def insert(self, tx: Transaction, rows: Sequence[tuple[int | None, Sequence[Cell]]]) -> None:
        """Add rows to the copy."""
        # Text that is not UTF-8 can be bound as bytes only; the flag in front of it says that it is text.
        values = ", ".join("iif(?, CAST(? AS TEXT), ?)" for _column in self.columns)
        names = ", ".join(quoted(column) for column in self.columns)
        if self.rowid is None:
            sql = f"INSERT INTO {quoted(self.copy)} ({names}) VALUES ({values})"
            tx.executemany(sql, [_bound(cells) for _rowid, cells in rows])
        else:
            sql = f"INSERT INTO {quoted(self.copy)} ({self.rowid}, {names}) VALUES (?, {values})"
            tx.executemany(sql, [(rowid, *_bound(cells)) for rowid, cells in rows])

    def content(self, reader: Reader, *, of_copy: bool = False) -> tuple[int, int]:
        """Number of rows, and a sum over the hashes of all rows: equal for equal rows in any order."""
        count = total = 0
        names = (*self.columns, "")
        for rowid, cells in self.rows(reader, of_copy=of_copy):
            named = dict(zip(names, [*cells, rowid], strict=True))
            count += 1
            total = total + row_hash(canonical(named, names)) & _MASK
        return count, total


def row_hash(row: bytes) -> int:
    """16 bytes of blake2b."""
    return int.from_bytes(blake2b(row, digest_size=16).digest(), "big")


def _bound(cells: Sequence[Cell]) -> list[Cell]:
    bound: list[Cell] = []
    for cell in cells:
        bound += (1, cell.data, None) if isinstance(cell, BadText) else (0, None, cell)
    return bound


def size_of(cells: Sequence[Cell]) -> int:
    """About how many bytes a row takes."""
    return 20 + sum(
        len(cell) if isinstance(cell, (str, bytes)) else len(cell.data) if isinstance(cell, BadText) else 8
        for cell in cells
    )
