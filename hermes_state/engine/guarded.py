"""One APSW connection with everything that makes it safe to use and safe to close.

Invariant: work starts only in the process that opened the connection, while the kernel still shows SQLite's standing
lock, and never again once the connection is `stopped`. Closing never checkpoints (SQLite's own checkpoint at close is
off), and when another SQLite library has the same file open in this process the connection is parked instead of
closed, because its close would cancel the other library's locks.

Not for: reading (`link.py`) or transactions (`writer.py`).
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Self

import apsw

from hermes_state.clock import Clock
from hermes_state.engine.busy import BusyWait
from hermes_state.engine.descriptors import REGISTRY, StoreDescriptors
from hermes_state.engine.files import forked, unseen_descriptors
from hermes_state.engine.generation import GenerationGuard, Lost, operator_detail, user_sentence
from hermes_state.engine.inotify import Watch
from hermes_state.engine.lost_generation import keep
from hermes_state.engine.own_lock import (
    RESERVED_BYTE,
    SHARED_FIRST,
    WAL_WRITE_BYTE,
    all_shown,
    known_lock,
    own_lock,
    plant_canary,
    take_back,
)
from hermes_state.engine.parking import LIVE, park, roll_back_and_close, second_sqlite
from hermes_state.engine.stale import lost_to_reader, stale_here
from hermes_state.errors import GenerationLost, StateError, WriteLockLost
from hermes_state.shell_words import shell_word


class Guarded:
    """Base of `Link`: checks and closing."""

    def __init__(
        self, connection: apsw.Connection, path: Path, descriptors: StoreDescriptors, wait: BusyWait, clock: Clock,
        *, journal_mode: str, patience_seconds: float, exclusive: bool = False,
    ) -> None:
        self.path = path
        self.descriptors = descriptors
        # "wal", "delete", "truncate", "persist", "memory" or "off", as SQLite answered at open
        self.journal_mode = journal_mode
        self._connection = connection
        self._run = connection.cursor().execute  # one cursor for all short statements: half the cost of a new one each
        self._wait = wait
        self._clock = clock
        self._patience = patience_seconds
        self._exclusive = exclusive
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._closed = False
        self._stopped: StateError | None = None
        self.checks_files = False  # a reader that looks at its files before each read, as those of a `Core` do
        self.stands_for_writer = False  # a reader whose lost generation is captured, because no writer would do it
        self._snapshot_open = False  # the transaction of the connection, if it has one, is a reader's
        self._watch = Watch(path, descriptors, clock)
        self._guard = GenerationGuard(connection, path, descriptors, self._watch)
        # In rollback mode SQLite unlocks the whole file after each transaction, the canary with it, and keeps no lock.
        standing = (descriptors.main, descriptors.shm) if journal_mode == "wal" else ()
        self._canaries = [
            (number, byte) for number in standing if number is not None and (byte := plant_canary(number)) is not None
        ]
        self._standing = tuple(known_lock(number, byte, "read") for number, byte in self._canaries)
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

    @property
    def closed(self) -> bool:
        """True once the connection is closed or parked."""
        return self._closed

    @property
    def opened_by(self) -> int:
        """PID of the process that opened the connection."""
        return self._pid

    def is_idle(self) -> bool:
        """True when the connection is usable and no statement or transaction of it is unfinished."""
        return self._stopped is None and not self._closed and self._connection.txn_state() == 0

    # --- checks ----------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        """Raise unless this connection may be used now."""
        if not self._is_quiet():
            self._still_usable()
            self._check_strangers(committed=False)
            self._check_standing_lock(committed=False)

    def _is_quiet(self) -> bool:
        """True when `_still_usable`, `_check_strangers` and `_check_standing_lock` would find nothing to look at."""
        return (
            os.getpid() == self._pid and not self._closed and self._stopped is None and not self._exclusive
            and not REGISTRY.changed() and all_shown(self._standing)
        )

    def _still_usable(self) -> None:
        """Raise in a forked child and once this connection is stopped or closed."""
        if os.getpid() != self._pid:
            raise forked(self.path, self._pid)
        if self._stopped is not None:
            raise self._stopped
        if self._closed:
            raise StateError(f"The connection to {self.path} is closed.", hint="Open the store again.", path=self.path)

    def _check_strangers(self, *, committed: bool) -> None:
        """Raise `SecondSQLite`, and park this connection, when other code of this process has the files open."""
        if self._watch.opens_are_quiet() and not REGISTRY.changed():
            return
        try:
            strangers = self._strangers()
        except OSError as failure:
            raise unseen_descriptors(self.path, failure, "using") from failure
        if strangers:
            self._capture_if_lost(committed=committed)
            what = "left as it is, committed" if committed else "left as it is, nothing committed"
            error = second_sqlite(self.path, strangers, what)
            self._abandon(error)
            raise error

    def _strangers(self) -> tuple[int, ...]:
        """Which descriptors of this process others have on the files of this connection.

        They are listed unless the kernel says that nobody has opened the files since the last time, and their number is
        what it was.
        """
        if self._watch.opens_were_seen() and not REGISTRY.changed():
            return ()
        epoch = self._watch.epoch()
        strangers = REGISTRY.strangers(self.path, self.identities)
        self._watch.listed_descriptors(-1 if strangers else epoch)
        return strangers

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
        if not self._exclusive and all_shown(self._standing):
            return
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

    def refuse_lost(self) -> None:
        """Raise `GenerationLost` when files of this connection were replaced or unlinked. From any thread.

        What only this connection still sees is kept before, unless another thread is using it right now.
        """
        lost = self.lost_files()
        if not lost:
            return
        if self._lock.acquire(blocking=False):  # to wait here could be to wait for a thread that waits for this one
            try:
                if not self._closed:
                    self._check_generation(committed=False, contents=False)
            finally:
                self._lock.release()
        raise stale_here(self.path, lost)

    def _check_generation(self, *, committed: bool, contents: bool) -> None:
        """Raise `GenerationLost` (after a capture) when the files under this connection are no longer the path's."""
        lost = self._guard.lost()
        if not lost and contents:
            lost = self._guard.overwritten()
        if lost:
            self._generation_lost(lost, committed=committed)

    def _refuse_reading_lost(self) -> None:
        """Raise `GenerationLost`, and let this reader go, when its files are no longer those that it opened."""
        if self._watch.is_quiet():
            return  # nobody has opened the files or changed a name, and the last full look is less than a second old
        self._check_strangers(committed=False)
        lost = self._guard.lost_to_reader()
        if not lost:
            return
        if self.stands_for_writer:
            self._generation_lost(lost, committed=False)
        error = lost_to_reader(self.path, lost)
        self._abandon(error)
        raise error

    def has_seen_what(self, other: Guarded) -> None:
        """Expect the file to be no older than `other`, a connection to the same one, has seen it."""
        self._guard.has_seen_what(other._guard)

    def _capture_if_lost(self, *, committed: bool) -> None:
        """Before this connection is let go for another reason: nothing that only it still sees may go with it."""
        lost = self._guard.lost()
        if lost:
            self._generation_lost(lost, committed=committed)

    def _generation_lost(self, lost: Lost, *, committed: bool) -> NoReturn:
        capture, failure = keep(
            self.path, lost, self.descriptors, self.identities, self._connection, self._copy_whole,
            may_roll_back=self.may_roll_back, clock=self._clock,
        )
        detail = operator_detail(self.path, lost, capture, committed=committed) + failure
        sentence = user_sentence()
        problem = GenerationLost(
            f"{sentence} {detail}", path=self.path, lost=lost, capture=capture, committed=committed,
            hint="Stop all Hermes processes of this profile, then run `hermes-state doctor --db "
            f"{shell_word(self.path)}`.",
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
        try:
            seen = self._watch.opens_were_seen()
            self._watch.close()
            with REGISTRY.lock:
                try:
                    quiet = seen and not REGISTRY.changed()
                    strangers = () if quiet else REGISTRY.strangers(self.path, self.identities)
                except OSError:  # no descriptor is left to look with: another library may have the files open
                    park(self)
                    return ()
                if strangers or not self.may_roll_back():
                    park(self)
                    return strangers
                roll_back_and_close(self._connection, self.path)
                REGISTRY.leave(self.token)
        except Exception:
            raise
        except BaseException:
            self._closed = False  # interrupted: `close` may be called again
            LIVE.add(self)
            raise
        return ()

    def may_roll_back(self) -> bool:
        """True when a rollback can harm nobody: it writes nothing, or the write lock is there or taken back."""
        if self._connection.txn_state() != apsw.SQLITE_TXN_WRITE:
            return True  # a reader's transaction, too: to take a lock for that would keep all others from writing
        wal = self.descriptors.shm is not None
        descriptor = self.descriptors.shm if wal else self.descriptors.main
        byte = WAL_WRITE_BYTE if wal else RESERVED_BYTE
        if descriptor is None or self._exclusive or own_lock(descriptor, byte) in ("write", None):
            return True
        return take_back(descriptor, byte)

    def forget_locks(self, fresh: threading.RLock) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._lock = fresh

    def _adopt(self, fresh: Guarded) -> None:
        """Take over the connection of `fresh`, which may not close it any more."""
        fresh._closed = True
        LIVE.discard(fresh)
        LIVE.add(self)

    def refuse_close_inside(self) -> None:
        """Raise when it is the function given to `write` that wants to close; readers have none."""

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
            self.refuse_close_inside()
            try:
                if self._stopped is None and not self._strangers():
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
