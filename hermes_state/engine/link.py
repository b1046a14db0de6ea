"""Reading through one connection, whichever door it came from.

Invariant: every read starts with the checks of `guarded.py`, holds no transaction after it, interrupted or not, and a
short one costs about 3 microseconds more than SQLite's own work.

Not for: transactions (`writer.py`) or what rows mean.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import apsw

from hermes_state.engine.guarded import Guarded
from hermes_state.engine.translate import named, translated
from hermes_state.engine.waiting import lock_timeout
from hermes_state.engine.wal_index import WalState, header_is_settled, read_wal_state
from hermes_state.errors import StateError


class Link(Guarded):
    """Base of every open store: reading, with the checks before it."""

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query. For queries whose result is small; otherwise `iterate`."""
        with self._lock:
            self._ready_to_read()
            try:
                return self._run(sql, params).fetchall()
            except (apsw.Error, UnicodeError) as error:
                raise named(error, self.path, "reading", self._connection, self._read_timeout) from error
            except BaseException:
                self._drop_statement()  # interrupted before its last row, it would keep a read transaction open
                raise

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        found = self.rows(sql, params)
        return found[0] if found else None

    def iterate(self, sql: str, params: Sequence[Any] = (), *, batch: int = 500) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, in memory of about `batch` rows; holds a read transaction until it ends or is closed."""
        with self._lock:
            self._ready_to_read()
            with translated(self.path, "reading", self._connection, self._read_timeout):
                cursor = self._connection.cursor().execute(sql, params)
        try:
            while True:
                with self._lock, translated(self.path, "reading", self._connection, self._read_timeout):
                    self._still_usable()
                    self._check_standing_lock(committed=False)
                    page = list(islice(cursor, batch))
                yield from page
                if len(page) < batch:
                    return
        finally:
            cursor.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Several reads that see one state of the store. Inside another one of the same thread: the state of that."""
        with self._lock:
            if self._snapshot_open and not self._closed and self._connection.in_transaction:
                yield
                return
            self._ready_to_read()
            if self._connection.in_transaction:
                self._end_forgotten()
            # Both see to it, since an interrupt may come while one of them does.
            try:
                try:
                    self._snapshot_open = True
                    with translated(self.path, "starting a read of", self._connection, self._read_timeout):
                        self._connection.execute("BEGIN").fetchall()
                    yield
                finally:
                    self._end_snapshot()
            except BaseException:
                self._end_snapshot()
                raise

    def _end_snapshot(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        if self._connection.in_transaction and self._snapshot_open:
            with translated(self.path, "ending a read of", self._connection):
                self._connection.execute("ROLLBACK").fetchall()
        self._snapshot_open = False

    def _end_forgotten(self) -> None:
        """Before a snapshot: end a read transaction that nobody has, since whoever began it was interrupted."""
        with translated(self.path, "ending a read of", self._connection):
            self._connection.execute("ROLLBACK").fetchall()

    def _drop_statement(self) -> None:
        """Let go of the statement that the shared cursor may still have in the middle of its rows."""
        if not self._closed and os.getpid() == self._pid:
            self._run("").fetchall()

    def wal_state(self) -> WalState | None:
        """A glance at the WAL, or None when the store has none that can be looked at."""
        self._ready()
        return read_wal_state(self.descriptors)

    def pragma(self, name: str) -> Any:
        """The value of a pragma such as "page_count"."""
        found = self.row(f"PRAGMA {name}")
        return found[0] if found else None

    @property
    def page_size(self) -> int:
        return int(self.pragma("page_size"))

    @property
    def page_count(self) -> int:
        return int(self.pragma("page_count"))

    @property
    def freelist_count(self) -> int:
        return int(self.pragma("freelist_count"))

    @property
    def application_id(self) -> int:
        return int(self.pragma("application_id"))

    def _ready_to_read(self) -> None:
        self._ready()
        if self._connection.in_transaction:
            return
        if self.checks_files:
            self._refuse_reading_lost()
        self._wait.arm(self._patience)
        shm, tries = self.descriptors.shm, 0
        # A reader that meets a half-written header asks for the write lock to read it again (SQLite's own habit). The
        # moment is short unless the writer lost the processor in it: so that is waited for here, without any lock.
        while shm is not None and not header_is_settled(shm) and self._wait.nap(tries):
            tries += 1

    def _read_timeout(self, error: apsw.Error) -> StateError:
        return lock_timeout(self.path, self.descriptors, self._wait.waited, cause=error, wanted="read")
