"""Comparing the rows that are called certain with the source, cell by cell, before anything else touches them.

Invariant: each certain row that the source gives by its key has the same hash in the result; one difference stops the
run, unless it is the column that turned a damaged cell into another type: then the row is uncertain. Rows that SQL
cannot reach in the source were read from its pages and cannot be compared this way: they are counted.

Not for: rows called uncertain. Comparing counts only was rejected: a swapped column keeps every count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from hermes_state.engine.salvage import Building, Salvage
from hermes_state.errors import Corrupt, StateError
from maintenance.interop.typed import CellReader, digest_of
from maintenance.quoting import quoted
from maintenance.recovery.filling import CELL, Filler, TableFiller, cell_parts
from maintenance.recovery.judging import Grade

AT_ONCE = 200
TURNED = "the source has a value of a type that its column does not hold"
_Row = tuple[Any, ...]


def compare_rows(
    salvage: Salvage, filler: Filler, one: TableFiller, advance: Callable[[int], None] = lambda _rows: None
) -> tuple[int, int]:
    """Rows that equal the source's, and certain rows that could not be compared. Raises `Corrupt` at a difference."""
    table = one.table
    if table.rowid is None:
        return _by_key(salvage, filler, one)
    cells = CellReader(table.names)
    equal = unreachable = 0
    last: int | None = None
    while True:
        where, params = (f"WHERE {table.rowid} > ?", (last,)) if last is not None else ("", ())
        select = f"SELECT {cells.sql}, {table.rowid} FROM {quoted(table.name)}"
        rows = filler.db.rows(f"{select} {where} ORDER BY {table.rowid} LIMIT {AT_ONCE}", params)
        if not rows:
            return equal, unreachable
        last = int(rows[-1][-1])
        unsure = _unsure(filler.db, one.number, int(rows[0][-1]), last)
        there = _range(salvage, f"{select} NOT INDEXED WHERE {table.rowid}", int(rows[0][-1]), last)
        for row in rows:
            key = int(row[-1])
            if key in unsure:
                continue
            found = there.get(key)
            if found is None:
                unreachable += 1
            elif _is_same(row, found) or digest_of(ours := cells.cells(row)) == digest_of(theirs := cells.cells(found)):
                equal += 1
            elif one.judge(ours).proven or one.judge(theirs).grade is Grade.WRONG:
                unreachable += 1  # what SQL gives there now is wrong, and ours is from elsewhere
            elif one.stores(key, theirs, ours):
                filler.notes.uncertain(one.number, key, TURNED, 0)
            else:
                _refuse(filler, one, key)
        advance(len(rows))


def _range(salvage: Salvage, select: str, first: int, last: int) -> dict[int, _Row]:
    """Rows of the source between two keys, around what cannot be read."""
    try:
        return {int(row[-1]): row for row in salvage.rows(f"{select} BETWEEN ? AND ?", (first, last))}
    except StateError as error:
        if error.retryable:
            raise
        if last - first > 4 * AT_ONCE or first == last:
            return {}
    middle = (first + last) // 2
    return _range(salvage, select, first, middle) | _range(salvage, select, middle + 1, last)


def _unsure(db: Building, tab: int, first: int, last: int) -> set[int]:
    rows = db.rows(
        "SELECT key FROM _recovery_uncertain WHERE tab = ?1 AND key BETWEEN ?2 AND ?3 UNION ALL "
        "SELECT key FROM _recovery_made WHERE tab = ?1 AND key BETWEEN ?2 AND ?3", (tab, first, last),
    )
    return {int(key) for (key,) in rows}


def _by_key(salvage: Salvage, filler: Filler, one: TableFiller) -> tuple[int, int]:
    table = one.table
    cells = CellReader(table.names)
    keys = [table.names[place] for place in table.key]
    where = " AND ".join(f"{quoted(name)} IS {CELL}" for name in keys)
    equal = unreachable = 0
    for row in filler.db.iterate(f"SELECT {cells.sql} FROM {quoted(table.name)}"):
        ours = cells.cells(row)
        try:
            found = salvage.rows(
                f"SELECT {cells.sql} FROM {quoted(table.name)} WHERE {where}",
                [part for place in table.key for part in cell_parts(ours[place])],
            )
        except StateError as error:
            if error.retryable:
                raise
            found = []
        if not found:
            unreachable += 1
        elif digest_of(ours) == digest_of(cells.cells(found[0])):
            equal += 1
        else:
            unreachable += 1  # another version is in the way: it is noted as one
    return equal, unreachable


def _is_same(row: _Row, other: _Row) -> bool:
    """Whether two rows as SQLite gave them are the same, cell by cell and type by type: cheaper than their hashes."""
    return all(
        type(one) is type(two) and (repr(one) == repr(two) if type(one) is float else one == two)
        for one, two in zip(row, other, strict=True)
    )


def _refuse(filler: Filler, one: TableFiller, key: int) -> NoReturn:
    raise Corrupt(
        f"Row {key} of {one.table.name} is not what the source has there. The file that was made was not given its "
        "name.",
        hint="Report this sentence with the report of the recovery.", path=filler.db.path, search_index=False,
    )
