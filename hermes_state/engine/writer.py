"""Writing through one connection: transactions and checkpoints.

Invariant: one write transaction at a time per store object, one deadline per wait; the guards run inside the write
lock, before COMMIT, after it, before each checkpoint and before close. The first I/O error or damage of canonical
pages stops all further writing through the object until it is opened again.

Not for: rewriting the whole file or reopening (`store.py`), nor for what rows mean.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import apsw

from hermes_state.engine.busy import BusyWait
from hermes_state.engine.descriptors import REGISTRY
from hermes_state.engine.own_lock import WAL_WRITE_BYTE, all_shown, known_lock, own_lock
from hermes_state.engine.parking import second_sqlite
from hermes_state.engine.pragmas import DURABILITIES, SYNCHRONOUS, read_pragma, set_pragma, unknown_durability
from hermes_state.engine.transaction import Transaction
from hermes_state.engine.translate import translate
from hermes_state.engine.turn import Turn
from hermes_state.engine.undo import Undo
from hermes_state.engine.waiting import lock_timeout
from hermes_state.errors import StateError

Durability = Literal["process", "power"]
Result = TypeVar("Result")
CHECKPOINT_TRIES = 2
LONG_WAL_FRAMES = 8_000  # 32 MB: from here on writers are kept out while the rest is copied
LONG_WAL_SECONDS = 0.05  # how long that may wait for the write lock and for readers of an older state
# How many frames later it is tried again when the end was not reached. Each of several writers tries: after 100 frames
# eight of them called it at every eleventh append, after 400 at every thirtieth.
CHECKPOINT_AGAIN_FRAMES = 400
CHECKPOINT_FRAMES = 1000  # a passive checkpoint is tried when a commit leaves this many frames; SQLite's own default
_MODES = {
    "passive": apsw.SQLITE_CHECKPOINT_PASSIVE,
    "full": apsw.SQLITE_CHECKPOINT_FULL,
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


class Writer(Undo):
    """The part of `Store` that writes rows."""

    def _start_writing(self) -> None:
        # An object of its own: a method of the store would keep a forgotten store alive through its connection.
        self._frames = _FrameCount()
        self._checkpointed_at = 0
        self._wrote = False
        self._synchronous: int | None = None
        self._turn = Turn(self._clock)
        self._working = 0
        shm = self.descriptors.shm
        self._write_lock_free = () if shm is None else (known_lock(shm, WAL_WRITE_BYTE, "none"),)
        self._write_lock_ours = () if shm is None else (known_lock(shm, WAL_WRITE_BYTE, "write"),)
        self._locks_at_commit = (*self._write_lock_ours, *self._standing)
        self._is_wal_in_normal_locking = shm is not None and not self._exclusive
        self._connection.wal_autocheckpoint(0)
        self._connection.set_wal_hook(self._frames)

    # --- transactions ----------------------------------------------------------------------------------------

    def write(
        self, work: Callable[[Transaction], Result], *, durability: Durability = "process",
        deadline_seconds: float | None = None,
    ) -> Result:
        """Run `work(transaction)` once between BEGIN IMMEDIATE and COMMIT, and return what it returned.

        For work of a few statements. `durability` and errors as those of `transaction`; a commit that is reported as
        done went through the same checks. `work` may have read from lost files before its result is thrown away with
        the error that says so. Costs about 10 microseconds more than SQLite's own work.
        """
        # Left out here, of what `transaction` checks, is only what the checks before COMMIT imply. Pages of an open
        # transaction stay in memory (cache_spill is off), so up to COMMIT nothing has been written anywhere:
        # - standing locks before BEGIN, generation after it, and the write lock before each statement are all asked
        #   for again before COMMIT, and when `work` fails before its error is believed;
        # - other libraries' descriptors and byte 120 before BEGIN are not implied and stay: from BEGIN on the kernel
        #   would take their locks for ours, and SQLite would move or drop them.
        turn, me = self._turn, threading.get_ident()
        if turn.owner == me:
            raise self._nested()
        transaction, committing = None, False
        # An exception may come between any two steps (Ctrl-C, the handler of a signal), and again while the first one
        # is seen to: so all steps are inside both of these, and seeing to it twice does no harm.
        try:
            try:
                late = self._take_turn(me, deadline_seconds)
                with self._lock:
                    self._set_deadline(late, deadline_seconds)
                    if os.getpid() != self._pid or self._closed or self._stopped is not None or REGISTRY.changed():
                        self._ready()
                    try:
                        self._begin(durability)
                        transaction = Transaction(self.path, self._connection, self._run, None)
                        if self.journal_mode != "wal":
                            self._check_begun()
                        self._working = me
                        result = work(transaction)
                        self._working = 0
                        transaction.end()
                        self._check_before_commit()
                        committing = True
                        self._commit()
                    except BaseException as error:
                        if transaction is not None:
                            transaction.end()
                            self._give_up(error, committing)
                        raise
                    self._after_commit()
                REGISTRY.stop_writing(self.token)
                turn.give(me)
                return result
            except BaseException as error:
                self._let_go(me, error)
                raise
        except BaseException as error:
            self._let_go(me, error)
            raise

    @contextmanager
    def transaction(
        self, *, durability: Durability = "process", deadline_seconds: float | None = None
    ) -> Iterator[Transaction]:
        """One write transaction; commits when the block ends, rolls back when it raises.

        `durability`: "process" survives kill -9 of any process, "power" also a power cut. Raises `LockTimeout`
        (nothing was changed), `GenerationLost`, `WriteLockLost`, `Corrupt`, `DiskFull`, `IOFailure`.

        A KeyboardInterrupt that comes between the block and its end rolls back when Python lets go of this object,
        traceback included; `write` has no such moment.
        """
        me = threading.get_ident()
        if self._turn.owner == me:
            raise self._nested()
        transaction = None
        try:
            try:
                late = self._take_turn(me, deadline_seconds)
                with self._lock:
                    self._set_deadline(late, deadline_seconds)
                    self._ready()
                    try:
                        self._begin(durability)
                        self._check_begun()
                        transaction = Transaction(self.path, self._connection, self._run, self.check_transaction)
                        yield transaction
                        self._check_before_commit()
                        transaction.end()
                        self._commit()
                    except BaseException as error:
                        if transaction is not None:
                            transaction.end()
                            self._roll_back(error)
                        raise
                    self._after_commit()
                REGISTRY.stop_writing(self.token)
                self._turn.give(me)
            except BaseException as error:
                self._let_go(me, error)
                raise
        except BaseException as error:
            self._let_go(me, error)
            raise

    def _take_turn(self, me: int, deadline_seconds: float | None) -> BusyWait | None:
        """Wait until no other thread writes through this store; gives the wait that this took, if any."""
        turn = self._turn
        if turn.take_if_free(me):
            return None
        self._still_usable()  # a forked child does not wait for a thread that it does not have
        wait = BusyWait(self._clock, self._patience if deadline_seconds is None else deadline_seconds)
        if not turn.wait_for(me, wait):
            raise lock_timeout(self.path, self.descriptors, wait.waited, "another thread of this process")
        return wait

    def _set_deadline(self, late: BusyWait | None, deadline_seconds: float | None) -> None:
        """For the wait for the write lock. Only under `_lock`: until then it may be the wait of another thread."""
        if late is not None:
            self._wait.follow(late)
        else:
            self._wait.arm(self._patience if deadline_seconds is None else deadline_seconds)

    def _begin(self, durability: Durability) -> None:
        if durability not in DURABILITIES:
            raise unknown_durability(durability, self.path)
        level = SYNCHRONOUS[durability]
        if self._connection.in_transaction:
            if self._snapshot_open:
                raise StateError(
                    f"A snapshot of {self.path} is open in this thread, so nothing can be written through it.",
                    hint="Write after the snapshot has ended.", path=self.path,
                )
            self._roll_back(None)  # nobody has this transaction: whoever began it was interrupted, twice at least
        self._refuse_foreign_writer()
        REGISTRY.start_writing(self.token)
        try:
            if self._synchronous != level:
                set_pragma(self._connection, self.path, "synchronous", level)
                self._synchronous = level
            self._run("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            raise lock_timeout(self.path, self.descriptors, self._wait.waited, cause=error) from error
        except apsw.Error as error:
            problem = translate(error, self.path, "starting a write on", system_errno=self._connection.system_errno)
            self._stop_on(problem)
            raise problem from error
        self._wrote = True  # frames of a transaction that fails are in the WAL as well

    def _check_begun(self) -> None:
        """Before the block of a long transaction: that it is not spent on files that are lost already."""
        self._still_usable()
        self._check_generation(committed=False, contents=False)
        if self.journal_mode != "wal" and read_pragma(self._connection, "journal_mode") == "wal":
            raise StateError(
                f"{self.path} was switched to WAL while it was open here.", hint="Open the store again.", path=self.path
            )

    def _refuse_foreign_writer(self) -> None:
        """Raise when this process already holds the write lock, but through another library.

        The kernel would grant us the lock that the other one has, since both belong to this process.
        """
        if all_shown(self._write_lock_free):
            return
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

    def _check_before_commit(self) -> None:
        """All guards, inside the write lock."""
        if (
            os.getpid() == self._pid and self._stopped is None and not self._closed and self._is_wal_in_normal_locking
            and self._guard.is_intact() and all_shown(self._locks_at_commit)
        ):
            return  # what follows asks the same in more words, to say what is wrong
        self._still_usable()
        self._check_generation(committed=False, contents=True)
        self._check_strangers(committed=False)
        if not self._exclusive:
            self._check_write_lock()
        self._check_standing_lock(committed=False)

    def _commit(self) -> None:
        try:
            self._run("COMMIT")
        except apsw.Error as error:
            raise translate(
                error, self.path, "committing to", system_errno=self._connection.system_errno
            ) from error

    def _after_commit(self) -> None:
        # A rename of a folder further up, which only `lost` sees, takes the commit along with the store: the next use
        # says so.
        if not self._watch.is_quiet():
            self._check_strangers(committed=True)
            self._check_generation(committed=True, contents=False)
        if self._exclusive or not all_shown(self._standing):
            self._check_standing_lock(committed=True)
        frames = self._frames.count
        if frames < self._checkpointed_at:
            self._checkpointed_at = 0  # the WAL was started again from its beginning
        if frames - self._checkpointed_at >= CHECKPOINT_FRAMES:
            self._copy_back(frames)

    def mark_identity(self, store_id: str) -> None:
        """From now on a commit also asks whether the database file still holds the row with this id."""
        row = self.row("SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = 'store'")
        if row is not None and self.journal_mode == "wal":
            self._guard.mark_identity(int(row[0]), store_id.encode())

    def _copy_back(self, frames: int) -> None:
        """Copy the WAL into the file, so that it can start again from its beginning.

        It does so only when it was copied to its very end, and while a long WAL is copied others add to it: one try
        for each thousand frames let it grow without end beside eight busy writers. A try right after another has next
        to nothing to copy.
        """
        for _ in range(CHECKPOINT_TRIES):
            done = self._checkpoint("passive")
            state = self.wal_state()
            if state is None or state.pending_frames == 0:
                self._checkpointed_at = frames
                return
            if done.busy and done.moved_frames == 0:
                break  # another process is at it
        self._checkpointed_at = frames - CHECKPOINT_FRAMES + CHECKPOINT_AGAIN_FRAMES
        # Beside writers that never pause the end is reached only by keeping them out while the rest is copied.
        if frames >= LONG_WAL_FRAMES and not self._is_replicated():
            self._wait.arm(LONG_WAL_SECONDS)
            if not self._checkpoint("full").busy:
                self._checkpointed_at = frames

    def _is_replicated(self) -> bool:
        """Whether Litestream follows this store: it reads the WAL, so beside it all checkpoints are passive."""
        return self.path.with_name(f".{self.path.name}-litestream").exists()

    # --- checkpoints -----------------------------------------------------------------------------------------

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
