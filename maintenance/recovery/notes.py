"""What a recovery notes about single rows while it fills a file: in that file, in tables that are dropped at the end.

Invariant: a note and the row it is about are written in one transaction, so a killed run never disagrees with itself;
every note has a key, so that writing it twice is writing it once. Memory does not grow with notes.

Not for: the report itself. Keeping notes in memory was rejected: a lost root makes a note of every row of a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from hermes_state.engine.salvage import Building
from maintenance.interop.typed import BadText, Cell, to_json

_TABLES = """
CREATE TABLE IF NOT EXISTS _recovery_state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _recovery_uncertain (tab INTEGER, key ANY, reason TEXT, position INTEGER,
    PRIMARY KEY (tab, key)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _recovery_made (tab INTEGER, key ANY, PRIMARY KEY (tab, key)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _recovery_apart (tab INTEGER, key ANY, reason TEXT, hash BLOB, said TEXT,
    PRIMARY KEY (tab, key, reason, hash)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _recovery_versions (tab INTEGER, key ANY, hash BLOB, said TEXT,
    PRIMARY KEY (tab, key, hash)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _recovery_remains (tab INTEGER, key ANY, PRIMARY KEY (tab, key)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _recovery_listed (tab INTEGER, key ANY, said TEXT,
    PRIMARY KEY (tab, key)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _recovery_unread (tab INTEGER, first INTEGER, last INTEGER,
    PRIMARY KEY (tab, first)) STRICT, WITHOUT ROWID;
"""
NAMES = (
    "_recovery_state", "_recovery_uncertain", "_recovery_made", "_recovery_apart", "_recovery_versions",
    "_recovery_remains", "_recovery_listed", "_recovery_unread",
)
Key = int | str


class Notes:
    """The notes in one file that is being filled."""

    def __init__(self, building: Building) -> None:
        self._db = building
        for statement in _TABLES.split(";\n"):
            if statement.strip():
                building.execute(statement)

    # --- progress --------------------------------------------------------------------------------------------

    def load(self, name: str) -> dict[str, Any]:
        """What was kept under a name; empty when nothing was."""
        row = self._db.row("SELECT value FROM _recovery_state WHERE name = ?", (name,))
        found: dict[str, Any] = json.loads(row[0]) if row else {}
        return found

    def save(self, name: str, value: dict[str, Any]) -> None:
        """Keep JSON under a name."""
        self._db.execute("INSERT OR REPLACE INTO _recovery_state VALUES (?, ?)", (name, json.dumps(value)))

    # --- rows of the result ----------------------------------------------------------------------------------

    def uncertain(self, tab: int, key: Key, reason: str, position: int) -> None:
        """The row is in the result and not proven; `position` orders versions, newer ones higher."""
        self._db.execute("INSERT OR REPLACE INTO _recovery_uncertain VALUES (?, ?, ?, ?)", (tab, key, reason, position))

    def doubt(self, tab: int, key: Key) -> tuple[str, int] | None:
        """The reason and position of an uncertain row, None for a certain one."""
        sql = "SELECT reason, position FROM _recovery_uncertain WHERE tab = ? AND key = ?"
        row = self._db.row(sql, (tab, key))
        return None if row is None else (str(row[0]), int(row[1]))

    def proven(self, tab: int, key: Key) -> None:
        """The row is certain after all."""
        self._db.execute("DELETE FROM _recovery_uncertain WHERE tab = ? AND key = ?", (tab, key))

    def made(self, tab: int, key: Key) -> None:
        """The row is a placeholder."""
        self._db.execute("INSERT OR IGNORE INTO _recovery_made VALUES (?, ?)", (tab, key))

    # --- rows beside the result ------------------------------------------------------------------------------

    def apart(self, tab: int, key: Key, reason: str, said: dict[str, Any]) -> None:
        """Something was found and is not in the result."""
        text = json.dumps(said, ensure_ascii=False)
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self._db.execute(
            "INSERT OR IGNORE INTO _recovery_apart VALUES (?, ?, ?, ?, ?)", (tab, key, reason, digest, text)
        )

    def version(self, tab: int, key: Key, digest: bytes, said: dict[str, Any]) -> None:
        """Another version of a row of the result was found."""
        text = json.dumps(said, ensure_ascii=False)
        self._db.execute("INSERT OR IGNORE INTO _recovery_versions VALUES (?, ?, ?, ?)", (tab, key, digest, text))

    def remains(self, tab: int, key: Key) -> None:
        """What is left of a deleted row was seen."""
        self._db.execute("INSERT OR IGNORE INTO _recovery_remains VALUES (?, ?)", (tab, key))

    # --- what ought to be there ------------------------------------------------------------------------------

    def listed(self, tab: int, key: Key, said: dict[str, Any]) -> None:
        """An index lists a key for which no row was found so far."""
        self._db.execute(
            "INSERT OR IGNORE INTO _recovery_listed VALUES (?, ?, ?)", (tab, key, json.dumps(said, ensure_ascii=False))
        )

    def is_listed(self, tab: int, key: Key) -> bool:
        """Whether an index lists this key without a row."""
        return self._db.row("SELECT 1 FROM _recovery_listed WHERE tab = ? AND key = ?", (tab, key)) is not None

    def unread(self, tab: int, first: int, last: int) -> None:
        """No row between these keys can be read through SQL."""
        self._db.execute("INSERT OR REPLACE INTO _recovery_unread VALUES (?, ?, ?)", (tab, first, last))

    def is_unread(self, tab: int, key: int) -> bool:
        """Whether a key lies where SQL cannot read."""
        row = self._db.row(
            "SELECT last FROM _recovery_unread WHERE tab = ? AND first <= ? ORDER BY first DESC LIMIT 1", (tab, key)
        )
        return row is not None and int(row[0]) >= key

    def each(self, sql: str, params: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows of the notes, for the report."""
        return self._db.iterate(sql, params)

    def count(self, table: str, tab: int) -> int:
        """How many notes of a kind there are about a table."""
        row = self._db.row(f"SELECT count(*) FROM {table} WHERE tab = ?", (tab,))
        return int(row[0]) if row else 0

    def highest(self, tab: int) -> int:
        """The highest number of a row that was kept apart, or is listed and was not found; 0 when there is none."""
        return max(
            int(self._db.rows(
                f"SELECT coalesce(max(key), 0) FROM {name} WHERE typeof(key) = 'integer' AND tab = ?", (tab,)
            )[0][0])
            for name in ("_recovery_apart", "_recovery_listed")
        )

    def drop(self) -> None:
        """Take the notes out of the file."""
        for name in NAMES:
            self._db.execute(f"DROP TABLE IF EXISTS {name}")


def said_cells(names: Sequence[str], cells: Sequence[Cell]) -> dict[str, Any]:
    """Cells by column as JSON values."""
    return {name: to_json(cell) for name, cell in zip(names, cells, strict=False)}


def cell_bytes(cell: Cell) -> int:
    """About how large a cell is."""
    if isinstance(cell, (str, bytes)):
        return len(cell)
    return len(cell.data) if isinstance(cell, BadText) else 8
