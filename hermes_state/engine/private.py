"""A private copy of a store, open for whatever a repair must do to it: no guards, nobody else knows the file.

Invariant: never used on a store that others may have open; the caller made the file and keeps its folder closed to
others. Nothing here waits, and no lock of a live store can be met.

Not for: live stores (`connection.py` is their only door). Opening the copy through that door was rejected: it takes
files that SQLite cannot read for refused ones, and a repair is about those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Self

import apsw

from hermes_state.engine.tokenizers import NulRule, register
from hermes_state.engine.translate import translated
from hermes_state.engine.whole_file import copy_back

# The progress callback is called about 50 times a second of work.
STEPS_BETWEEN_CALLS = 200_000


class PrivateCopy:
    """One connection to a private file. Its methods raise what the engine's stores raise, by result code."""

    def __init__(self, connection: apsw.Connection, path: Path, *, has_wal: bool = False) -> None:
        self.path = path
        self._connection = connection
        self._has_wal = has_wal

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement, which may also change the file."""
        with translated(self.path, "working on the private copy", self._connection):
            return self._connection.execute(sql, params).fetchall()

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        found = self.rows(sql, params)
        return found[0] if found else None

    def iterate(self, sql: str, params: Sequence[Any] = (), *, batch: int = 500) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, in memory of about `batch` rows."""
        with translated(self.path, "reading the private copy", self._connection):
            cursor = self._connection.cursor().execute(sql, params)
        try:
            while True:
                with translated(self.path, "reading the private copy", self._connection):
                    page = list(islice(cursor, batch))
                yield from page
                if len(page) < batch:
                    return
        finally:
            cursor.close()

    def on_progress(self, callback: Callable[[], bool] | None) -> None:
        """Call `callback` now and then while a statement runs; True from it interrupts the statement."""
        self._connection.set_progress_handler(callback, STEPS_BETWEEN_CALLS)

    def close(self) -> None:
        """Close; the content of the WAL is copied into the file first. When that fails it raises, and is closed."""
        try:
            if self._has_wal:
                copy_back(self._connection, self.path)
        finally:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._connection.close()  # what went wrong is known, and the copy is thrown away


def open_private(
    path: Path, *, nul_rule: NulRule = NulRule.NATIVE, search_modules: bool = True, tolerant: bool = False
) -> PrivateCopy:
    """Open a private copy for reading and writing. Raises `NotAStore`, `Corrupt`, `CannotOpen`.

    `tolerant` also opens one whose schema has entries that SQLite cannot use, and lets the schema table be written.
    """
    with translated(path, "opening the private copy"):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
            if tolerant:  # before anything that makes SQLite read the schema
                connection.execute("PRAGMA writable_schema = ON").fetchall()
            # The file dies with a crash of this process, so nothing waits for the disk.
            connection.execute("PRAGMA synchronous = off").fetchall()
            if search_modules:
                register(connection, nul_rule)
            else:
                connection.drop_modules([])
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except BaseException:
            connection.close(True)
            raise
    return PrivateCopy(connection, path, has_wal=True)
