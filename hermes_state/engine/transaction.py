"""One write transaction: BEGIN IMMEDIATE, the guards, COMMIT.

Invariant: a commit is reported as done only when, inside the write lock and again after it, the files are still the
path's and the kernel still showed our lock. Durability is chosen before BEGIN and read back. Everything else rolls
back. Not for: retrying; see `Store.run`. Deferred transactions were rejected: a read that turns into a write fails
at once with a stale snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from hermes_state.engine.translate import translated
from hermes_state.errors import StateError

if TYPE_CHECKING:
    from hermes_state.engine.store import Store


class Transaction:
    """What a function that takes part in a write transaction receives. Valid only inside its `with` block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.path: Path = store.path
        self._open = True

    def execute(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Run one statement; returns the number of rows it changed, those changed by triggers not counted."""
        connection = self._connection()
        with translated(self.path, "writing", connection):
            before = connection.total_changes()
            connection.execute(sql, params).fetchall()
            return int(connection.changes()) if connection.total_changes() != before else 0

    def executemany(self, sql: str, many: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each set of parameters."""
        connection = self._connection()
        with translated(self.path, "writing", connection):
            connection.executemany(sql, many).fetchall()

    def last_insert_rowid(self) -> int:
        """The rowid of the row inserted last."""
        return int(self._connection().last_insert_rowid())

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query, inside the transaction."""
        connection = self._connection()
        with translated(self.path, "reading", connection):
            return connection.execute(sql, params).fetchall()

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        found = self.rows(sql, params)
        return found[0] if found else None

    def iterate(self, sql: str, params: Sequence[Any] = (), *, batch: int = 500) -> Iterator[tuple[Any, ...]]:
        """Rows one by one; for results that are too large for memory."""
        connection = self._connection()
        with translated(self.path, "reading", connection):
            cursor = connection.cursor().execute(sql, params)
        try:
            while True:
                with translated(self.path, "reading", connection):
                    page = list(islice(cursor, batch))
                yield from page
                if len(page) < batch:
                    return
        finally:
            cursor.close()

    def end(self) -> None:
        """Refuse further use."""
        self._open = False

    def _connection(self) -> apsw.Connection:
        if not self._open:
            raise StateError(f"The transaction on {self.path} has ended.", hint="Open a new one.", path=self.path)
        self._store.check_transaction()
        return self._store.raw_connection
