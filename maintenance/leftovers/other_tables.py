"""Rows of tables that are neither hermes-agent's nor ours, in a copy of a store.

Invariant: nothing is known of such a table, so every row counts as it stands: one that the store's table of that name
does not have word for word is a row that the store lacks, and equal rows are counted, not folded.

Not for: sessions, messages and what belongs to them, which both sides go on changing. Leaving unknown tables out was
rejected: what another program keeps in a store may be nowhere else.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from maintenance.quoting import quoted
from maintenance.recovery.captures.foreign import LEFT_OUT, ordinary_tables
from maintenance.recovery.known import known_shapes


def rows_of_other_tables(copy: Any, live: Any) -> dict[str, int]:
    """How many rows of unknown tables the store lacks, by table. Both are readers; reads those tables whole."""
    known = {name for shape in known_shapes() for name in shape.tables} | LEFT_OUT
    there = set(ordinary_tables(live))
    lacking = {
        table: (_rows(copy, table) - (_rows(live, table) if table in there else Counter[bytes]())).total()
        for table in ordinary_tables(copy) if table not in known
    }
    return {table: count for table, count in lacking.items() if count}


def _rows(reader: Any, table: str) -> Counter[bytes]:
    return Counter(
        hashlib.blake2b(repr(tuple(row)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for row in reader.iterate(f"SELECT * FROM {quoted(table)}")
    )
