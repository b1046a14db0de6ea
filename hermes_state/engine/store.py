"""A store open for writing, and one open under SQLite's exclusive lock.

Invariant: one write transaction at a time per store object, one deadline per wait; the guards run inside the write
lock, before COMMIT, after it, before each checkpoint and before close. The first I/O error or damage of canonical
pages stops all further writing through the object until it is opened again.

Not for: deciding who may write (the command line's gate) or what rows mean.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw

from hermes_state.engine.busy import BusyWait
from hermes_state.engine.descriptors import REGISTRY
from hermes_state.engine.link import Link
from hermes_state.engine.own_lock import RESERVED_BYTE, WAL_WRITE_BYTE, own_lock
from hermes_state.engine.parking import second_sqlite
from hermes_state.engine.pragmas import SYNCHRONOUS, read_pragma, set_pragma
from hermes_state.engine.transaction import Transaction
from hermes_state.engine.translate import translate, translated
from hermes_state.engine.waiting import lock_timeout
from hermes_state.errors import Corrupt, IOFailure, NotAStore, StateError, WriteLockLost

Durability = Literal["process", "power"]
Result = TypeVar("Result")
CHECKPOINT_FRAMES = 1000  # a passive checkpoint is tried when a commit leaves this many frames; SQLite's own default
_MODES = {
    "passive": apsw.SQLITE_CHECKPOINT_PASSIVE,
    "truncate": apsw.SQLITE_CHECKPOINT_TRUNCATE,
}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a checkpoint did."""

    # True when a reader or writer kept it from finishing
    busy: bool
    # frames in the WAL, and how many of them are now in the database file
    wal_frames: int
    moved_frames: int


class _FrameCount:
    """SQLite's WAL hook: remembers how many frames the WAL had after the last commit."""

    count = 0

    def __call__(self, _connection: object, _name: str, frames: int) -> int:
        self.count = frames
        return 0


class Store(Link):
    """A store open for writing, in SQLite's normal locking mode."""

    _reopen: Callable[[], Store]

    def _start(self, reopen: Callable[[], Store]) -> None:
        self._reopen = reopen
        # An object of its own: a method of the store would keep a forgotten store alive through its connection.
        self._frames = _FrameCount()
        self._checkpointed_at = 0
        self._wrote = False
        self._synchronous: int | None = None
        self._turn = threading.Lock()
        self._turn_of: int | None = None  # the thread whose transaction is open
        self._connection.wal_autocheckpoint(0)
        self._connection.set_wal_hook(self._frames)

    # --- transactions ----------------------------------------------------------------------------------------

    @contextmanager
    def transaction(
        self, *, durability: Durability = "process", deadline_seconds: float | None = None
    ) -> Iterator[Transaction]:
        """One write transaction; commits when the block ends, rolls back when it raises.

        `durability`: "process" survives kill -9 of any process, "power" also a power cut. Raises `LockTimeout`
        (nothing was changed), `GenerationLost`, `WriteLockLost`, `Corrupt`, `DiskFull`, `IOFailure`.
        """
        if self._turn_of == threading.get_ident():
            raise StateError(
                f"A transaction on {self.path} is already open in this thread.",
                hint="Pass the open transaction on to functions that take part in it.", path=self.path,
            )
        # A wait of its own until the turn comes: the connection's handler may be waiting for another thread meanwhile.
        wait = BusyWait(self._clock, self._patience if deadline_seconds is None else deadline_seconds)
        if not self._take_turn(wait):
            raise lock_timeout(self.path, self.descriptors, wait.waited, "another thread of this process")
        self._turn_of = threading.get_ident()
        try:
            with self._lock:
                self._ready()
                self._wait.follow(wait)
                self._begin(durability)
                transaction = Transaction(self)
                try:
                    yield transaction
                    self._check_inside(last=True)
                except BaseException as error:
                    transaction.end()
                    self._roll_back(error)
                    raise
                transaction.end()
                self._commit()
                self._after_commit()
        finally:
            REGISTRY.stop_writing(self.token)
            self._turn_of = None
            self._turn.release()

    def run(
        self, work: Callable[[Transaction], Result], *, durability: Durability = "process", idempotent: bool = False
    ) -> Result:
        """Run `work` in a transaction. When our lock was lost, reopen, and repeat only what is idempotent."""
        try:
            with self.transaction(durability=durability) as transaction:
                return work(transaction)
        except WriteLockLost:
            self.reopen()
            if not idempotent:
                raise
        with self.transaction(durability=durability) as transaction:
            return work(transaction)

    def _take_turn(self, wait: BusyWait) -> bool:
        tries = 0
        while not self._turn.acquire(blocking=False):
            if not wait.nap(tries):
                return False
            tries += 1
        return True

    def _begin(self, durability: Durability) -> None:
        level = SYNCHRONOUS[durability]
        self._refuse_foreign_writer()
        REGISTRY.start_writing(self.token)
        try:
            if self._synchronous != level:
                set_pragma(self._connection, self.path, "synchronous", level)
                self._synchronous = level
            self._connection.execute("BEGIN IMMEDIATE").fetchall()
            self._wrote = True  # frames of a transaction that fails are in the WAL as well
        except apsw.BusyError as error:
            raise lock_timeout(self.path, self.descriptors, self._wait.waited, cause=error) from error
        except apsw.Error as error:
            problem = translate(error, self.path, "starting a write on", system_errno=self._connection.system_errno)
            self._stop_on(problem)
            raise problem from error
        try:
            self._check_inside(last=False)
            if self.journal_mode != "wal" and read_pragma(self._connection, "journal_mode") == "wal":
                raise StateError(
                    f"{self.path} was switched to WAL while it was open here.", hint="Open the store again.",
                    path=self.path,
                )
        except BaseException as error:
            self._roll_back(error)
            raise

    def _refuse_foreign_writer(self) -> None:
        """Raise when this process already holds the write lock, but through another library.

        The kernel would grant us the lock that the other one has, since both belong to this process.
        """
        shm, identities, writes = self.descriptors.shm, self.identities, REGISTRY.writes
        if shm is None or REGISTRY.writing(identities) or own_lock(shm, WAL_WRITE_BYTE) != "write":
            return
        if REGISTRY.writing(identities) or REGISTRY.writes != writes:
            return  # it was another store of ours that began, or began and ended, meanwhile
        strangers = REGISTRY.strangers(self.path, identities)
        if strangers:
            error = second_sqlite(self.path, strangers, "not written to")
            self._abandon(error)
            raise error

    def check_transaction(self) -> None:
        """For `Transaction` only: before each statement, so that a lost lock ends the work at once."""
        self._still_usable()
        if self._exclusive:
            self._check_standing_lock(committed=False)
        else:
            self._check_write_lock()

    def _check_inside(self, *, last: bool) -> None:
        """The guards, inside the write lock: the generation at once, everything just before COMMIT (`last`)."""
        self._still_usable()
        self._check_generation(committed=False, contents=last)
        if not last:
            return
        self._check_strangers(committed=False)
        if not self._exclusive:
            self._check_write_lock()
        self._check_standing_lock(committed=False)

    def _check_write_lock(self) -> None:
        shm, main = self.descriptors.shm, self.descriptors.main
        if shm is not None:
            if own_lock(shm, WAL_WRITE_BYTE) in ("read", "none"):
                self._lock_lost("the WAL write lock of this process (byte 120)", committed=False)
        elif self.journal_mode != "wal" and main is not None and own_lock(main, RESERVED_BYTE) in ("read", "none"):
            self._lock_lost("the RESERVED lock of this process", committed=False)

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT").fetchall()
        except apsw.Error as error:
            problem = translate(error, self.path, "committing to", system_errno=self._connection.system_errno)
            self._roll_back(problem)
            raise problem from error

    def _after_commit(self) -> None:
        self._check_strangers(committed=True)
        self._check_generation(committed=True, contents=False)
        self._check_standing_lock(committed=True)
        frames = self._frames.count
        if frames < self._checkpointed_at:
            self._checkpointed_at = 0  # the WAL was started again from its beginning
        if frames - self._checkpointed_at >= CHECKPOINT_FRAMES:
            self._checkpointed_at = frames
            self._checkpoint("passive")

    def _roll_back(self, cause: BaseException) -> None:
        """Roll back, and stop this store when the cause says that the file or the disk cannot be trusted."""
        if isinstance(cause, StateError):
            self._stop_on(cause)
        if self._closed or os.getpid() != self._pid:
            return
        self._check_strangers(committed=False)
        if not self.may_roll_back():
            self._lock_lost("the write lock of this process", committed=False)
        with translated(self.path, "rolling back", self._connection):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK").fetchall()

    def _stop_on(self, problem: StateError) -> None:
        """The first I/O error or damaged canonical page is an alarm: no write follows it through this object."""
        damaged = isinstance(problem, Corrupt) and not getattr(problem, "search_index", False)
        if self._stopped is None and (damaged or isinstance(problem, (IOFailure, NotAStore))):
            self._stopped = problem

    # --- other work on the whole file ------------------------------------------------------------------------

    def checkpoint(self, mode: Literal["passive"] = "passive") -> Checkpoint:
        """Copy frames into the database file without waiting for anybody."""
        with self._lock:
            self._ready()
            return self._checkpoint(mode)

    def _checkpoint(self, mode: str) -> Checkpoint:
        self._check_generation(committed=False, contents=False)
        if self.journal_mode != "wal":
            return Checkpoint(busy=False, wal_frames=0, moved_frames=0)
        try:
            frames, moved = self._connection.wal_checkpoint("main", _MODES[mode])
            busy = False
        except apsw.BusyError:
            state = self.wal_state()
            frames, moved = (state.frames, state.backfilled_frames) if state else (0, 0)
            busy = True
        except apsw.Error as error:
            raise translate(error, self.path, "checkpointing", system_errno=self._connection.system_errno) from error
        return Checkpoint(busy=busy or moved < frames, wal_frames=max(frames, 0), moved_frames=max(moved, 0))

    def incremental_vacuum(self, pages: int, *, deadline_seconds: float | None = None) -> int:
        """Return up to `pages` free pages to the file system in one short transaction; returns how many."""
        with self.transaction(deadline_seconds=deadline_seconds) as transaction:
            before = transaction.rows("PRAGMA freelist_count")[0][0]
            transaction.rows(f"PRAGMA incremental_vacuum({int(pages)})")
            return int(before - transaction.rows("PRAGMA freelist_count")[0][0])

    def vacuum(self, *, on_progress: Callable[[int], None] | None = None) -> None:
        """Rewrite the whole file in place. `on_progress` receives a rising count of steps, not a share."""
        self._whole_file("VACUUM", (), "vacuuming", on_progress)

    def vacuum_into(self, target: Path, *, on_progress: Callable[[int], None] | None = None) -> None:
        """Write a compact copy of the store to the new file `target`."""
        self._whole_file("VACUUM INTO ?", (str(target),), "copying", on_progress)

    def statement(self, sql: str, *, doing: str, on_progress: Callable[[int], None] | None = None) -> None:
        """Run one statement that makes its own transaction, under the guards, with full durability."""
        self._whole_file(sql, (), doing, on_progress)

    def _whole_file(
        self, sql: str, params: tuple[Any, ...], doing: str, on_progress: Callable[[int], None] | None
    ) -> None:
        with self._lock:
            self._ready()
            self._check_generation(committed=False, contents=False)
            self._wait.arm(self._patience)
            steps = 0

            def step() -> bool:
                nonlocal steps
                steps += 1
                if on_progress is not None:
                    on_progress(steps)
                return False

            self._refuse_foreign_writer()
            REGISTRY.start_writing(self.token)
            try:
                set_pragma(self._connection, self.path, "synchronous", SYNCHRONOUS["power"])
                self._synchronous = SYNCHRONOUS["power"]
                if not self._exclusive:  # a whole file does not fit into memory
                    self._connection.execute("PRAGMA cache_spill = on").fetchall()
                if on_progress is not None:
                    self._connection.set_progress_handler(step, 20_000)
                self._connection.execute(sql, params).fetchall()
            except apsw.BusyError as error:
                raise lock_timeout(self.path, self.descriptors, self._wait.waited, cause=error) from error
            except apsw.Error as error:
                problem = translate(error, self.path, doing, system_errno=self._connection.system_errno)
                self._stop_on(problem)
                raise problem from error
            finally:
                REGISTRY.stop_writing(self.token)
                if not self._exclusive:
                    self._connection.execute("PRAGMA cache_spill = off").fetchall()
                if on_progress is not None:
                    self._connection.set_progress_handler(None)
            self._check_strangers(committed=True)
            self._wrote = True
            self._check_generation(committed=True, contents=False)
            self._check_standing_lock(committed=True)

    # --- closing and reopening -------------------------------------------------------------------------------

    def _before_close(self) -> None:
        self._check_generation(committed=False, contents=False)
        if self._wrote:
            self._checkpoint("passive")

    def reopen(self) -> None:
        """Close and open again after a lost generation or lock; refused while a stale holder remains."""
        with self._lock:
            if not self._closed:
                if self._stopped is None:
                    self._check_generation(committed=False, contents=False)
                self._release()
            fresh = self._reopen()
            self.__dict__.update(fresh.__dict__)
            self._adopt(fresh)


class ExclusiveStore(Store):
    """A store under SQLite's own exclusive lock, from open to close: nobody else can open it, read or write."""

    # True beside a replica: it reads the -wal file, so no checkpoint empties that, the one at close included.
    keep_wal = False

    def checkpoint(self, mode: Literal["passive", "truncate"] = "truncate") -> Checkpoint:
        """Copy all frames; "truncate" also empties the -wal file, unless `keep_wal`."""
        with self._lock:
            self._ready()
            return self._checkpoint("passive" if self.keep_wal else mode)

    def promote(self, copy: Path) -> None:
        """Replace the content of the store by that of the verified private file `copy`, in place, through the pager.

        One transaction of SQLite's backup API: it is either wholly there or not at all. The inode stays.
        """
        from hermes_state.engine.connection import copy_onto

        with self._lock:
            self._ready()
            self._check_generation(committed=False, contents=False)
            set_pragma(self._connection, self.path, "synchronous", SYNCHRONOUS["power"])
            self._synchronous = SYNCHRONOUS["power"]
            copy_onto(copy, self._connection, self.path)
            self._wrote = True
            self._check_generation(committed=True, contents=False)
            self._check_standing_lock(committed=True)

    def tune(self, **pragmas: int) -> None:
        """Set pragmas of this connection only, such as `cache_size` or `temp_store`, each read back."""
        with self._lock:
            self._ready()
            for name, value in pragmas.items():
                set_pragma(self._connection, self.path, name, value)

    def _before_close(self) -> None:
        self._check_generation(committed=False, contents=False)
        if self._wrote:
            self._checkpoint("passive" if self.keep_wal else "truncate")
