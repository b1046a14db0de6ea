"""Which tree of a table is out of order, when all of its pages are pages and every cell can be read.

Invariant: the table is judged by the row ids in its own leaves, each index by its own entries compared the way SQLite
compares them; so an index that lost or swapped entries is never called damage of the table. What cannot be told stays
with the table, which is the answer that loses nothing.

Not for: pages that cannot be read (`pages`). Trusting the words of the page check was rejected: it is text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hermes_state.engine import Reader
from hermes_state.errors import StateError
from maintenance.doctor.page_source import StorePages
from maintenance.quoting import literal, quoted

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

TABLE_LEAF = 13


def table_in_order(store: ReadStore, table: str) -> bool:
    """Whether the row ids of a table rise from leaf to leaf, by the bytes of its pages. False when that is unknown."""
    try:
        with store.snapshot():
            leaves = store.rows(
                "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path", (table,)
            )
            pages = StorePages(store)
            last: int | None = None
            for (number,) in leaves:
                for rowid in _row_ids(pages.page(int(number))):
                    if last is not None and rowid <= last:
                        return False
                    last = rowid
    except (StateError, IndexError):
        return False
    return bool(leaves)


def disordered_indexes(reader: Reader, table: str) -> list[str]:
    """The indexes of a table whose entries are out of order, or are not as many as the rows."""
    row = reader.row(f"SELECT count(*) FROM {quoted(table)} NOT INDEXED")
    rows = int(row[0]) if row else 0
    return [name for name, columns in _plain_indexes(reader, table) if _is_wrong(reader, table, name, columns, rows)]


def _is_wrong(reader: Reader, table: str, index: str, columns: list[str], rows: int) -> bool:
    source = f"{quoted(table)} INDEXED BY {quoted(index)}"
    order = ", ".join(quoted(column) for column in columns)
    try:
        # Without ORDER BY the entries come as the index has them; lag() then sees each beside the one before it.
        entries, back = reader.rows(
            f"SELECT count(*), coalesce(sum(({', '.join(f'p{n}' for n in range(len(columns)))}) > "
            f"({', '.join(f'k{n}' for n in range(len(columns)))})), 0) FROM (SELECT "
            + ", ".join(
                f"{quoted(column)} AS k{n}, lag({quoted(column)}) OVER () AS p{n}" for n, column in enumerate(columns)
            )
            + f" FROM (SELECT {order} FROM {source}))"
        )[0]
    except StateError:
        return True
    return bool(entries != rows or back)


def _plain_indexes(reader: Reader, table: str) -> Iterator[tuple[str, list[str]]]:
    """Indexes over all rows, of columns only, in rising order."""
    for _sequence, name, _unique, _origin, partial in reader.rows(f"PRAGMA index_list({literal(table)})"):
        if partial:
            continue
        parts = reader.rows(f"PRAGMA index_xinfo({literal(str(name))})")
        keys = [(column, falling) for _no, _cid, column, falling, _collation, key in parts if key]
        if keys and all(column is not None and not falling for column, falling in keys):
            yield str(name), [str(column) for column, _falling in keys]


def _row_ids(page: bytes) -> Iterator[int]:
    """Row ids of a leaf of a table, in the order of its cells. Raises IndexError for a page that is none."""
    if page[0] != TABLE_LEAF:
        raise IndexError(page[0])
    for cell in range(int.from_bytes(page[3:5], "big")):
        at = int.from_bytes(page[8 + 2 * cell : 10 + 2 * cell], "big")
        _size, at = _varint(page, at)
        rowid, _at = _varint(page, at)
        yield rowid - (1 << 64) if rowid >= 1 << 63 else rowid


def _varint(page: bytes, at: int) -> tuple[int, int]:
    """A number of the file format at `at`, and where the next one begins."""
    value = 0
    for step in range(8):
        byte = page[at + step]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    return value << 8 | page[at + 8], at + 9
