"""What is in a store, in numbers that can be compared: rows and a hash of each table, ids and times.

Invariant: two files have the same content when these are equal: each cell's type and value count, text that is not
UTF-8 is hashed as its bytes, rows in the order of their keys. The tables behind search indexes are left out: they
follow from the rows. Memory does not grow with the store.

Not for: judging pages. A hash over the file was rejected for this: two files of the same rows differ in their pages.
"""

from __future__ import annotations

import hashlib
from binascii import hexlify
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maintenance.dialects.detect import dialect_of
from maintenance.dialects.native.shape import native_identity
from maintenance.interop.typed import CellReader
from maintenance.quoting import quoted
from maintenance.space.verify import row_tables

if TYPE_CHECKING:
    from hermes_state.engine import Reader

BATCH = 200
PIECE_BYTES = 1 << 20
# What is said of a store besides its tables; people choose a backup by it.
COUNTED = (
    "dialect", "schema_version", "store_id", "incarnation", "sessions", "messages", "highest_message_id", "first_at",
    "last_at",
)


@dataclass(frozen=True, kw_only=True)
class TableContent:
    """One table."""

    rows: int  # how many
    sha256: str  # over every cell in key order


@dataclass(frozen=True, kw_only=True)
class Content:
    """One store."""

    dialect: str  # "native" or "hermes-agent"
    schema_version: int | None  # of hermes-agent, or the newest schema step of a native store
    store_id: str | None  # identity of a native store
    incarnation: str | None  # of a native store
    sessions: int  # session rows
    messages: int  # message rows
    highest_message_id: int | None  # None without messages
    first_at: float | None  # epoch seconds UTC of the oldest start of a session
    last_at: float | None  # epoch seconds UTC of the newest message, or start of a session
    tables: dict[str, TableContent]  # by name

    def differs(self, other: Content) -> str:
        """What is not the same, in words; empty when everything is."""
        if self.tables.keys() != other.tables.keys():
            return f"the tables differ: {', '.join(sorted(self.tables.keys() ^ other.tables.keys()))}"
        for name, mine in self.tables.items():
            theirs = other.tables[name]
            if mine.rows != theirs.rows:
                return f"{name} has {theirs.rows} rows instead of {mine.rows}"
            if mine.sha256 != theirs.sha256:
                return f"the content of {name} differs"
        for fact in COUNTED:
            if (was := getattr(self, fact)) != (there := getattr(other, fact)):
                return f"{fact} is {there} instead of {was}"
        return ""


def content_of(reader: Reader, say: Callable[[int], None] = lambda _rows: None) -> Content:
    """Read all of it; `say` hears how many rows are done. Raises `NotAStore`, `Corrupt` and what reading raises."""
    dialect = dialect_of(reader)
    identity = native_identity(reader)
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        say(done)

    tables = {name: _table(reader, name, count) for name in stored_tables(reader)}
    highest, newest = _one(reader, f"SELECT max(id), max({'created_at' if identity else 'timestamp'}) FROM messages")
    first, last = _one(reader, "SELECT min(started_at), max(started_at) FROM sessions")
    times = [float(moment) for moment in (newest, last) if isinstance(moment, (int, float))]
    return Content(
        dialect="native" if identity else "hermes-agent", schema_version=dialect.shape.schema_version,
        store_id=identity.store_id if identity else None, incarnation=identity.incarnation if identity else None,
        sessions=tables["sessions"].rows, messages=tables["messages"].rows,
        highest_message_id=highest if isinstance(highest, int) else None,
        first_at=float(first) if isinstance(first, (int, float)) else None, last_at=max(times, default=None),
        tables=tables,
    )


def stored_tables(reader: Reader) -> tuple[str, ...]:
    """Tables with rows of their own. A virtual table has none, and its module may not be here."""
    stored = {str(name) for (name,) in reader.rows("SELECT name FROM sqlite_schema WHERE rootpage > 0")}
    return tuple(name for name in row_tables(reader) if name in stored)


def _table(reader: Reader, name: str, count: Callable[[int], None]) -> TableContent:
    columns = [str(row[1]) for row in reader.rows(f"PRAGMA table_info({quoted(name)})")]
    # Text goes through as bytes, since it may not be UTF-8; one bit a column says which bytes are a blob. Nothing is
    # put together in SQL: each copy of a large cell is as large as the cell.
    cells = CellReader(columns)
    digest, rows = hashlib.sha256(), 0
    selected = f"SELECT {cells.sql} FROM {quoted(name)} NOT INDEXED ORDER BY {_key(reader, name)}"
    pending = 0
    for row in reader.iterate(selected, batch=BATCH):
        _feed(digest, row, cells)
        rows += 1
        pending += 1
        if pending == BATCH:
            count(pending)
            pending = 0
    count(pending)
    return TableContent(rows=rows, sha256=digest.hexdigest())


def _feed(digest: Any, row: tuple[Any, ...], cells: CellReader) -> None:
    """Each cell with its length; a letter tells text from a blob, which counts as its hexadecimal digits."""
    for number, cell in enumerate(row[cells.flag_count : cells.width]):
        if isinstance(cell, bytes):
            if cells.is_blob(row, number):
                digest.update(b"%d:b" % (1 + 2 * len(cell)))
                for start in range(0, len(cell), PIECE_BYTES):
                    digest.update(hexlify(memoryview(cell)[start : start + PIECE_BYTES]).upper())
            else:
                digest.update(b"%d:t" % (1 + len(cell)))
                digest.update(cell)
        else:
            digest.update(repr(cell).encode("ascii"))
        digest.update(b",")
    digest.update(b"\n")


def _key(reader: Reader, name: str) -> str:
    """The order in which a table is stored, so that sorting costs nothing."""
    found = reader.row("SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?", (name,))
    if found is None or not found[0]:
        return "rowid"
    keys = sorted((row[5], str(row[1])) for row in reader.rows(f"PRAGMA table_info({quoted(name)})") if row[5])
    return ", ".join(quoted(column) for _position, column in keys)


def _one(reader: Reader, sql: str) -> tuple[Any, ...]:
    found = reader.row(sql)
    return found if found is not None else (None, None)
