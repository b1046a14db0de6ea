"""Rows of a capture that merging cannot bring in, so that nobody takes them for merged.

Invariant: every table of a capture is either merged or listed here with the number of rows that the store lacks: one
that the store does not have, and one without a key that both have, whose rows are compared word for word and counted.

Not for: bringing them in. Adding a table to a live store, or rows that may be there twice, was rejected: the program
that keeps them knows, and `recover` reads them out of the capture.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maintenance.output.text import plural
from maintenance.quoting import quoted
from maintenance.recovery.captures.foreign import LEFT_OUT, columns_of, key_of, ordinary_tables
from maintenance.recovery.known import native_shape

if TYPE_CHECKING:
    from hermes_state.engine import Reader


@dataclass(frozen=True, kw_only=True)
class Untaken:
    """One table that is not merged."""

    # its name
    table: str
    # its rows that the store lacks
    rows: int
    # why: a clause that follows "table x, "
    why: str

    def __str__(self) -> str:
        return f"{plural(self.rows, 'row')} of table {self.table}, {self.why}"


def untaken(whole: Reader, before: Reader | None, live: Reader, *, native: bool) -> list[Untaken]:
    """The tables of a capture with rows that the store lacks and that are not merged, by name. Reads those whole."""
    merged: Iterable[str] = native_shape().tables if native else ()
    found = []
    for table in sorted(set(ordinary_tables(whole)) - set(merged) - LEFT_OUT):
        shared, key = columns_of(live, table), key_of(whole, table)
        if not shared:
            rows, why = _count(whole, table), "which the store does not have"
        elif native:
            rows, why = _lacking(whole, before, live, table), "which is another program's"
        elif not key:
            rows, why = _lacking(whole, before, live, table), "which has no primary key"
        elif not set(key) <= set(shared):
            rows, why = _lacking(whole, before, live, table), "which has another primary key in the store"
        else:
            continue
        if rows:
            found.append(Untaken(table=table, rows=rows, why=why))
    return found


def _count(reader: Reader, table: str) -> int:
    return int(reader.rows(f"SELECT count(*) FROM {quoted(table)}")[0][0])


def _lacking(whole: Reader, before: Reader | None, live: Reader, table: str) -> int:
    """Rows that the live table does not have; what was there before the WAL matches itself only."""
    added, here = _prints(whole, table), _prints(live, table)
    if before is not None and columns_of(before, table):
        old = _prints(before, table)
        added, here = added - old, here - old
    return (added - here).total()


def _prints(reader: Reader, table: str) -> Counter[bytes]:
    rows: Iterable[tuple[Any, ...]] = reader.iterate(f"SELECT * FROM {quoted(table)}")
    return Counter(
        hashlib.blake2b(repr(tuple(row)).encode("utf-8", "surrogatepass"), digest_size=16).digest() for row in rows
    )
