"""Reading one table of the damaged copy through SQL: in one go, or around what cannot be read, down to single keys.

Invariant: every row that SQLite gives is taken before the next is asked for, so an error costs no row that came before
it; `NOT INDEXED` keeps a damaged index out of it; where reading stops it is tried from the other end and then by
halves, until single keys are known or the time for it is used up. What could not be read is noted as ranges of keys.

Not for: pages that no tree leads to (`carving.py`). One scan per table was rejected: it stops at the first bad page and
misses every row behind it that a key would reach (report 100).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hermes_state.engine.salvage import Salvage
from hermes_state.errors import StateError
from maintenance.interop.typed import Cell, CellReader
from maintenance.quoting import literal, quoted
from maintenance.recovery.filling import key_of
from maintenance.recovery.notes import Key
from maintenance.recovery.schema import Table

Take = Callable[[Key, list[Cell]], None]
# How long one table may be read in vain: each leaf page that is gone costs about twice as many reads as it has keys.
BISECT_SECONDS = 60.0
MOST_READS = 200_000
LARGEST, SMALLEST = (1 << 63) - 1, -(1 << 63)


@dataclass(kw_only=True)
class Reading:
    """What came of reading a table around its damage."""

    # whether it was read from one end to the other, every key above the one before
    orderly: bool = False
    rows: int = 0
    reads: int = 0
    # ranges of rowids in which nothing can be read
    unread: list[tuple[int, int]] = field(default_factory=list)
    # seconds of reads that gave no row
    in_vain_seconds: float = 0.0
    # True when the time was used up before single keys were known
    cut_short: bool = False


class TableReader:
    """One table of the damaged copy."""

    def __init__(self, salvage: Salvage, table: Table) -> None:
        self._salvage, self._table = salvage, table
        # By the names that SQLite reads from the damaged statement; what they are is known by their places.
        seen = tuple(str(row[1]) for row in salvage.rows(f"PRAGMA table_xinfo({literal(table.name)})") if not row[6])
        self._cells = CellReader(seen if len(seen) == len(table.names) else table.names)
        rowid = table.rowid or "NULL"
        self._sql = f"SELECT {self._cells.sql}, {rowid} FROM {quoted(table.name)} NOT INDEXED"
        self._rowid = table.rowid

    def plain(self, after: int | None = None) -> Iterator[tuple[Key, list[Cell]]]:
        """Every row in key order, behind the rowid `after`."""
        where, params = "", ()
        if self._rowid and after is not None:
            where, params = f" WHERE {self._rowid} > ?", (after,)  # type: ignore[assignment]
        order = f" ORDER BY {self._rowid}" if self._rowid else ""
        yield from self._each(where + order, params)

    def around(self, take: Take, *, seconds: float = BISECT_SECONDS) -> Reading:
        """Every row that can be reached. `take` gets some rows twice."""
        found = Reading()
        first_key, last_key, ordered = self._scan("", take, found)
        if ordered is None:  # from end to end; the order says whether the tree is what it was
            found.orderly = first_key is None or last_key is not None
            return found
        if self._rowid is None:
            keys = ", ".join(f"{quoted(self._table.names[place])} DESC" for place in self._table.key)
            self._scan(f" ORDER BY {keys}", take, found)
            return found
        self._bisect(last_key, take, found, seconds)
        return found

    # --- parts -----------------------------------------------------------------------------------------------

    def _each(self, rest: str, params: tuple[Any, ...] = ()) -> Iterator[tuple[Key, list[Cell]]]:
        for row in self._salvage.iterate(self._sql + rest, params):
            cells = self._cells.cells(row)
            yield key_of(self._table, row[-1], cells), cells

    def _scan(
        self, rest: str, take: Take, found: Reading, params: tuple[Any, ...] = ()
    ) -> tuple[Key | None, Key | None, StateError | None]:
        """First and last key read (the last one None when the order was broken), and what stopped it."""
        first: Key | None = None
        last: Key | None = None
        broken = False
        found.reads += 1
        began = time.monotonic()
        try:
            for key, cells in self._each(rest, params):
                if first is None:
                    first = key
                elif isinstance(key, int) and isinstance(last, int) and key <= last and " DESC" not in rest:
                    broken = True
                last = key
                found.rows += 1
                take(key, cells)
        except StateError as error:
            if error.retryable:
                raise
            if first is None:
                found.in_vain_seconds += time.monotonic() - began
            return first, last, error
        return first, None if broken else last, None

    def _bisect(self, last: Key | None, take: Take, found: Reading, seconds: float) -> None:
        """Read what lies behind the last key that a forward scan gave."""
        low = last + 1 if isinstance(last, int) else self._outermost()[0]
        _first, top, error = self._scan(f" ORDER BY {self._rowid} DESC", take, found)
        if error is None:
            return  # backwards it went through
        high = top - 1 if isinstance(top, int) else max(self._outermost()[1], low)
        waiting = [(low, high)] if low <= high else []
        if top is None:  # the last page cannot be read, and nothing says how far it went
            found.unread.append((high + 1, LARGEST))
        if last is None and top is None and not self._any_key_answers(high):
            # Neither end can be read: the root is gone, and halves of a range would be tried in vain.
            found.unread = [(SMALLEST, LARGEST)]
            return
        while waiting:
            low, high = waiting.pop()
            if low > high:
                continue
            if found.in_vain_seconds > seconds or found.reads > MOST_READS:
                found.cut_short = True
                self._note(found, low, high)
                continue
            self._range(low, high, take, found, waiting)
        found.unread = _joined(found.unread)

    def _range(
        self, low: int, high: int, take: Take, found: Reading, waiting: list[tuple[int, int]]
    ) -> None:
        within = f" WHERE {self._rowid} BETWEEN ? AND ? ORDER BY {self._rowid}"
        _first, last, error = self._scan(within, take, found, (low, high))
        if error is None:
            return
        if low == high:
            self._note(found, low, high)
            return
        low = last + 1 if isinstance(last, int) and last >= low else low
        if low > high:
            return
        _first, top, error = self._scan(f"{within} DESC", take, found, (low, high))
        if error is None:
            return
        high = top - 1 if isinstance(top, int) and top <= high else high
        if low >= high:
            if low == high:
                waiting.append((low, high))
            return
        middle = (low + high) // 2
        waiting += [(middle + 1, high), (low, middle)]

    def _outermost(self) -> tuple[int, int]:
        """Rowids that no row is below and above, from what indexes and the counter of ids say."""
        least, most = 1, 1
        for name, columns in self.whole_indexes():
            try:
                for rowid, _cells in self.of_index(name, columns):
                    least, most = min(least, rowid), max(most, rowid)
            except StateError as error:
                if error.retryable:
                    raise
        try:
            row = self._salvage.row("SELECT max(seq) FROM sqlite_sequence WHERE name = ?", (self._table.name,))
        except StateError as error:
            if error.retryable:
                raise
            row = None
        return least, max(most, row[0]) if row and isinstance(row[0], int) else most

    def _any_key_answers(self, high: int) -> bool:
        """Whether some of a few keys spread over the table can be looked up without an error."""
        for number in range(16):
            key = 1 + (high - 1) * number // 15
            try:
                self._salvage.rows(f"{self._sql} WHERE {self._rowid} = ?", (key,))
            except StateError as error:
                if error.retryable:
                    raise
                continue
            return True
        return False

    def whole_indexes(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Indexes that have an entry for every row, with their columns."""
        if self._rowid is None:
            return
        try:
            listed = self._salvage.rows(f"PRAGMA index_list({literal(self._table.name)})")
            for row in listed:
                if row[4]:
                    continue
                columns = self._salvage.rows(f"PRAGMA index_info({literal(str(row[1]))})")
                if all(column[2] for column in columns):
                    yield str(row[1]), tuple(str(column[2]) for column in columns)
        except StateError as error:
            if error.retryable:
                raise

    def of_index(self, name: str, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Cell]]]:
        """Rowid and columns of every entry of an index; the table itself is not touched."""
        cells = CellReader(columns)
        sql = f"SELECT {cells.sql}, {self._rowid} FROM {quoted(self._table.name)} INDEXED BY {quoted(name)}"
        for row in self._salvage.iterate(sql):
            yield int(row[-1]), cells.named(row)

    @staticmethod
    def _note(found: Reading, low: int, high: int) -> None:
        found.unread.append((low, high))


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges that touch, as one."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined
