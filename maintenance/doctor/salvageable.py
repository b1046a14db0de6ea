"""How many rows of a damaged table can still be read, counted by key.

Invariant: only reads, and bounded: keys come from one whole index of the table, and a range that fails is halved until
single keys are known. Not for: copying rows out. A forward scan was rejected: it stops at the first bad page and misses
every row behind it that a key would reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from hermes_state.engine import Reader
from hermes_state.errors import StateError
from maintenance.doctor.findings import is_damage
from maintenance.quoting import literal, quoted

RANGE_ROWS = 512


@dataclass(frozen=True, kw_only=True)
class Readable:
    """What of a table can be reached by key."""

    # Rows that an index of the table lists; None when no whole index can be read.
    listed: int | None
    # How many of them can be read in full.
    readable: int | None
    # The index that listed them, "" when there was none.
    by: str


def readable_rows(reader: Reader, table: str) -> Readable:
    """Count the rows of `table` that can be read one by one."""
    lengths = ", ".join(
        f"length(CAST({quoted(str(row[1]))} AS BLOB))" for row in reader.rows(f"PRAGMA table_xinfo({literal(table)})")
    )
    for index in _whole_indexes(reader, table):
        listed = readable = 0
        try:
            keys = reader.iterate(f"SELECT rowid FROM {quoted(table)} INDEXED BY {quoted(index)}")
            while part := sorted(int(row[0]) for row in islice(keys, RANGE_ROWS)):
                listed += len(part)
                readable += _count(reader, table, lengths, part)
        except StateError:
            continue  # this index is damaged too, or the table has no rowid: the next one may list the keys
        return Readable(listed=listed, readable=readable, by=index)
    return Readable(listed=None, readable=None, by="")


def _count(reader: Reader, table: str, lengths: str, keys: Sequence[int]) -> int:
    """How many of `keys` can be read: all at once when the range is good, else half by half."""
    marks = ", ".join("?" * len(keys))
    sql = f"SELECT {lengths} FROM {quoted(table)} NOT INDEXED WHERE rowid IN ({marks})"
    try:
        return len(reader.rows(sql, tuple(keys)))
    except StateError as error:
        if not is_damage(error):
            raise
        if len(keys) == 1:
            return 0
    middle = len(keys) // 2
    return _count(reader, table, lengths, keys[:middle]) + _count(reader, table, lengths, keys[middle:])


def _whole_indexes(reader: Reader, table: str) -> Iterator[str]:
    for _sequence, name, _unique, _origin, partial in reader.rows(f"PRAGMA index_list({literal(table)})"):
        if not partial:
            yield str(name)
