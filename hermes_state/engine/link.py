"""One APSW connection with everything that makes it safe to use and safe to close.

Invariant: work starts only in the process that opened the connection, while the kernel still shows SQLite's standing
lock, and never again once the connection is `stopped`. Closing never checkpoints (SQLite's own checkpoint at close is
off), and when another SQLite library has the same file open in this process the connection is parked instead of
closed, because its close would cancel the other library's locks.

Not for: transactions (`transaction.py`) or what rows mean.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, Self

import apsw

from hermes_state.clock import Clock
from hermes_state.engine.busy import BusyWait
from hermes_state.engine.descriptors import REGISTRY, StoreDescriptors
from hermes_state.engine.generation import GenerationGuard, Lost, operator_detail, user_sentence
from hermes_state.engine.own_lock import (
    RESERVED_BYTE,
    SHARED_FIRST,
    WAL_WRITE_BYTE,
    own_lock,
    plant_canary,
    take_back,
)
from hermes_state.engine.parking import LIVE, park, roll_back_and_close, second_sqlite
from hermes_state.engine.translate import translated
from hermes_state.engine.waiting import lock_timeout
from hermes_state.engine.wal_index import WalState, header_is_settled, read_wal_state
from hermes_state.errors import ForkedConnection, GenerationLost, StateError, WriteLockLost


class Link:
    """Base of every open store: reading, checks, and closing."""

    def __init__(
        self, connection: apsw.Connection, path: Path, descriptors: StoreDescriptors, wait: BusyWait, clock: Clock,
        *, journal_mode: str, patience_seconds: float, exclusive: bool = False,
    ) -> None:
        self.path = path
        self.descriptors = descriptors
        # "wal", "delete", "truncate", "persist", "memory" or "off", as SQLite answered at open
        self.journal_mode = journal_mode
        self._connection = connection
        self._wait = wait
        self._clock = clock
        self._patience = patience_seconds
        self._exclusive = exclusive
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._closed = False
        self._stopped: StateError | None = None
        self._guard = GenerationGuard(connection, path, descriptors)
        # In rollback mode SQLite unlocks the whole file after each transaction, the canary with it, and keeps no lock.
        standing = (descriptors.main, descriptors.shm) if journal_mode == "wal" else ()
        self._canaries = [
            (number, byte) for number in standing if number is not None and (byte := plant_canary(number)) is not None
        ]
        # device and inode of main, -wal and -shm as they were at open
        self.identities = self._guard.identities
        self.token = REGISTRY.enter(self.identities)
        LIVE.add(self)

    @property
    def raw_connection(self) -> apsw.Connection:
        """For the other modules of the engine only."""
        return self._connection

    @property
    def stopped(self) -> StateError | None:
        """Why no further work is done through this connection; None while it is usable."""
        return self._stopped

    # --- reading ---------------------------------------------------------------------------------------------

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query. For queries whose result is small; otherwise `iterate`."""
        with self._lock:
            self._ready_to_read()
            with translated(self.path, "reading", self._connection, self._read_timeout):
                return self._connection.execute(sql, params).fetchall()

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
        """Several reads that see one state of the store."""
        with self._lock:
            self._ready_to_read()
            with translated(self.path, "starting a read of", self._connection, self._read_timeout):
                self._connection.execute("BEGIN").fetchall()
            try:
                yield
            finally:
                with translated(self.path, "ending a read of", self._connection):
                    self._connection.execute("ROLLBACK").fetchall()

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
        self._wait.arm(self._patience)
        shm, tries = self.descriptors.shm, 0
        # A reader that meets a half-written header asks for the write lock to read it again (SQLite's own habit). The
        # moment is short unless the writer lost the processor in it: so that is waited for here, without any lock.
        while shm is not None and not header_is_settled(shm) and self._wait.nap(tries):
            tries += 1

    def _read_timeout(self, error: apsw.Error) -> StateError:
        return lock_timeout(self.path, self.descriptors, self._wait.waited, cause=error, wanted="read")

    # --- checks ----------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        """Raise unless this connection may be used now."""
        self._still_usable()
        self._check_strangers(committed=False)
        self._check_standing_lock(committed=False)

    def _still_usable(self) -> None:
        """Raise in a forked child and once this connection is stopped or closed."""
        if os.getpid() != self._pid:
            raise ForkedConnection(
                f"The connection to {self.path} was opened by process {self._pid} and used by process {os.getpid()}, "
                "which was forked from it.",
                hint="Open the store after the fork, or start the child with exec (spawn).",
                path=self.path, opened_by_pid=self._pid,
            )
        if self._stopped is not None:
            raise self._stopped
        if self._closed:
            raise StateError(f"The connection to {self.path} is closed.", hint="Open the store again.", path=self.path)

    def _check_strangers(self, *, committed: bool) -> None:
        """Raise `SecondSQLite`, and park this connection, when other code of this process has the files open."""
        if not REGISTRY.changed():
            return
        strangers = REGISTRY.strangers(self.path, self.identities)
        if strangers:
            self._capture_if_lost(committed=committed)
            what = "left as it is, committed" if committed else "left as it is, nothing committed"
            error = second_sqlite(self.path, strangers, what)
            self._abandon(error)
            raise error

    def lost_files(self) -> Lost:
        """Which files of this connection were replaced or unlinked; empty when none was. From any thread."""
        return self._guard.lost_by_name()

    def lost_lock(self) -> str:
        """Which standing lock the kernel no longer shows for this process; empty when all are there."""
        for descriptor, byte in self._canaries:
            if own_lock(descriptor, byte) == "none":
                return "the standing locks of this process"
        main = self.descriptors.main
        if self._exclusive and main is not None and own_lock(main, SHARED_FIRST) in ("read", "none"):
            return "the exclusive lock of this process"
        return ""

    def _check_standing_lock(self, *, committed: bool) -> None:
        """Raise `WriteLockLost` when a lock that SQLite keeps between transactions is gone."""
        which = self.lost_lock()
        if which:
            self._lock_lost(which, committed=committed)

    def _lock_lost(self, which: str, *, committed: bool) -> NoReturn:
        """Roll back, stop and close every connection of this process to the file, and raise."""
        self._capture_if_lost(committed=committed)
        error = lock_lost(self.path, which, committed=committed)
        self._abandon(error)
        self.stop_others(error)
        raise error

    def stop_others(self, error: StateError) -> None:
        """Stop and close every other connection of this process to the same file: their locks are gone as well.

        One that another thread is using right now is stopped, and closed by its own thread. Until then the file is not
        opened again here, because SQLite would count on the locks of that connection.
        """
        for other in [link for link in list(LIVE) if link is not self and link.path == self.path]:
            REGISTRY.distrust(other.token)
            other._stopped = other._stopped or error
            if other._lock.acquire(blocking=False):
                try:
                    other._abandon(error)
                finally:
                    other._lock.release()

    def _check_generation(self, *, committed: bool, contents: bool) -> None:
        """Raise `GenerationLost` (after a capture) when the files under this connection are no longer the path's."""
        lost = self._guard.lost()
        if not lost and contents:
            lost = self._guard.overwritten()
        if lost:
            self._generation_lost(lost, committed=committed)

    def _capture_if_lost(self, *, committed: bool) -> None:
        """Before this connection is let go for another reason: nothing that only it still sees may go with it."""
        lost = self._guard.lost()
        if lost:
            self._generation_lost(lost, committed=committed)

    def _generation_lost(self, lost: Lost, *, committed: bool) -> NoReturn:
        from hermes_state.engine.capture import capture_generation  # hashing is loaded only when it is needed

        # Beside another library, or without our lock, the connection is left as it is: no rollback, no copy through it.
        usable = not REGISTRY.strangers(self.path, self.identities) and self.may_roll_back()
        if usable:
            with suppress(apsw.Error):  # nothing to roll back is not an error here
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK").fetchall()
        capture: Path | None
        failure = ""
        try:
            capture = capture_generation(
                self.path, self.descriptors, lost, self._copy_whole if usable else None, self._clock
            )
        except OSError as error:
            capture, failure = None, f" Capturing failed: {error}."
        detail = operator_detail(self.path, lost, capture, committed=committed) + failure
        sentence = user_sentence()
        problem = GenerationLost(
            f"{sentence} {detail}",
            hint=f"Stop all Hermes processes of this profile, then run `hermes-state doctor --db {self.path}`.",
            path=self.path, lost=lost, capture=capture, committed=committed,
            user_sentence=sentence, operator_detail=detail,
        )
        self._abandon(problem)
        raise problem

    def _copy_whole(self, target: Path) -> str:
        """Copy the store as this connection sees it into the new file `target`; what its page check says."""
        # Imported here: `connection` is the only module that opens database files, and it imports this one.
        from hermes_state.engine.connection import copy_into, page_verdict

        copy_into(self._connection, target)
        return page_verdict(target)

    # --- closing ---------------------------------------------------------------------------------------------

    def _abandon(self, reason: StateError) -> None:
        """Refuse all further use with `reason`, and close without a checkpoint."""
        REGISTRY.distrust(self.token)
        with self._lock:
            if self._stopped is None:
                self._stopped = reason
            if not self._closed:
                self._release()

    def _release(self) -> tuple[int, ...]:
        """Roll back and close; park the connection as it is when strange descriptors are found, which are returned.

        Even a rollback would unlock bytes that the other library believes to have.
        """
        self._closed = True
        LIVE.discard(self)
        if os.getpid() != self._pid:
            return ()
        with REGISTRY.lock:
            strangers = REGISTRY.strangers(self.path, self.identities)
            if strangers or not self.may_roll_back():
                park(self)
                return strangers
            roll_back_and_close(self._connection, self.path)
            REGISTRY.leave(self.token)
        return ()

    def may_roll_back(self) -> bool:
        """True when a rollback can harm nobody: no transaction is open, or the write lock is there or taken back."""
        if not self._connection.in_transaction:
            return True
        wal = self.descriptors.shm is not None
        descriptor = self.descriptors.shm if wal else self.descriptors.main
        byte = WAL_WRITE_BYTE if wal else RESERVED_BYTE
        if descriptor is None or self._exclusive or own_lock(descriptor, byte) in ("write", None):
            return True
        return take_back(descriptor, byte)

    def forget_locks(self, fresh: threading.RLock) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._lock = fresh

    def _adopt(self, fresh: Link) -> None:
        """Take over the connection of `fresh`, which may not close it any more."""
        fresh._closed = True
        LIVE.discard(fresh)
        LIVE.add(self)

    def _before_close(self) -> None:
        """What a writer does before its connection goes; readers have nothing to do."""

    def close(self) -> None:
        """Close without checkpoint or unlink. Safe to call twice.

        Raises `SecondSQLite` when another SQLite library has the same file open in this process: the connection is
        then left open until the process ends, since closing it would silently drop that library's locks.
        """
        if os.getpid() != self._pid:
            return  # a forked child must not touch its parent's connection
        with self._lock:
            if self._closed:
                return
            try:
                if self._stopped is None and not REGISTRY.strangers(self.path, self.identities):
                    self._check_standing_lock(committed=False)
                    self._before_close()
            finally:
                strangers = () if self._closed else self._release()
        if strangers:
            raise second_sqlite(self.path, strangers, "left open, not closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A forgotten store is released without a checkpoint; an interpreter that is shutting down is left alone.
        if not getattr(self, "_closed", True) and os.getpid() == self._pid:
            with suppress(Exception):
                if self._stopped is None:
                    self._capture_if_lost(committed=False)
                self._release()


def lock_lost(path: Path, which: str, *, committed: bool) -> WriteLockLost:
    """The error for a lock that the kernel no longer shows."""
    outcome = (
        "The last commit was written while the lock was gone: check that its rows are there."
        if committed
        else "The transaction was rolled back."
    )
    return WriteLockLost(
        f"The kernel no longer shows {which} on {path}: other code in this process opened and closed the same "
        f"file. {outcome}",
        hint="Find the code that opens the store with another SQLite library or as a plain file, "
        "then open the store again. Repeat only work that may safely happen twice.",
        path=path, committed=committed,
    )
