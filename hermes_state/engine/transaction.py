"""What a function that takes part in a write transaction receives.

Invariant: a commit is reported as done only when, inside the write lock and again after it, the files are still the
path's and the kernel still showed our lock. Durability is chosen before BEGIN and read back. Everything else rolls
back. In a `with` block, which may be long, each statement first asks for the write lock; in `Store.write` none does.

Not for: retrying; see `Store.run`. Deferred transactions were rejected: a read that turns into a write fails at once
with a stale snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from hermes_state.engine.translate import named, translated
from hermes_state.errors import StateError


class Transaction:
    """One write transaction. Valid only until its block or function ends."""

    __slots__ = ("_check", "_connection", "_run", "path")

    def __init__(
        self, path: Path, connection: apsw.Connection, run: Callable[..., apsw.Cursor], check: Callable[[], None] | None
    ) -> None:
        self.path = path
        self._connection = connection
        self._run = run
        self._check = check  # before each statement, so that a lost lock ends the work at once

    def execute(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Run one statement; returns the number of rows it changed, those changed by triggers not counted."""
        if self._check is not None:
            self._check()
        connection = self._connection
        before = connection.total_changes()
        try:
            self._run(sql, params).fetchall()
        except (apsw.Error, UnicodeError) as error:
            raise named(error, self.path, "writing", connection) from error
        return connection.changes() if connection.total_changes() != before else 0

    def executemany(self, sql: str, many: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each set of parameters."""
        if self._check is not None:
            self._check()
        try:
            self._connection.executemany(sql, many).fetchall()
        except (apsw.Error, UnicodeError) as error:
            raise named(error, self.path, "writing", self._connection) from error

    def last_insert_rowid(self) -> int:
        """The rowid of the row inserted last."""
        if self._check is not None:
            self._check()
        return self._connection.last_insert_rowid()

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query, inside the transaction."""
        if self._check is not None:
            self._check()
        try:
            return self._run(sql, params).fetchall()
        except (apsw.Error, UnicodeError) as error:
            raise named(error, self.path, "reading", self._connection) from error

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        found = self.rows(sql, params)
        return found[0] if found else None

    def iterate(self, sql: str, params: Sequence[Any] = (), *, batch: int = 500) -> Iterator[tuple[Any, ...]]:
        """Rows one by one; for results that are too large for memory."""
        if self._check is not None:
            self._check()
        with translated(self.path, "reading", self._connection):
            cursor = self._connection.cursor().execute(sql, params)
        try:
            while True:
                with translated(self.path, "reading", self._connection):
                    page = list(islice(cursor, batch))
                yield from page
                if len(page) < batch:
                    return
        finally:
            cursor.close()

    def end(self) -> None:
        """Refuse further use."""
        self._check = self._refuse

    def _refuse(self) -> None:
        raise StateError(f"The transaction on {self.path} has ended.", hint="Open a new one.", path=self.path)
