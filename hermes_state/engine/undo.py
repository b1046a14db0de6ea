"""Ending a write that does not commit: because its work failed, an interrupt came, or nobody has it any more.

Invariant: after any exception no transaction of the thread stays open and its turn goes on. All of it may be done
twice, since a second interrupt may come while the first one is seen to. Nothing is rolled back without the guards: a
lock that is lost, or that another library believes to have, is not let go here. Once COMMIT was under way SQLite alone
knows whether it was done, and nothing else is said.

Not for: what a write does when all goes well (`writer.py`).
"""

from __future__ import annotations

import os
import threading

from hermes_state.engine.descriptors import REGISTRY
from hermes_state.engine.link import Link
from hermes_state.engine.own_lock import RESERVED_BYTE, WAL_WRITE_BYTE, KnownLock, all_shown, own_lock
from hermes_state.engine.translate import translated
from hermes_state.engine.turn import Turn
from hermes_state.errors import Corrupt, IOFailure, NotAStore, StateError


class Undo(Link):
    """The part of `Writer` that undoes."""

    _turn: Turn
    _working: int  # the thread in which the function given to `write` runs, 0 while none does
    _write_lock_ours: tuple[KnownLock, ...]

    def _let_go(self, me: int, cause: BaseException | None) -> None:
        """After an exception: no transaction of this thread stays open and the turn goes on. May be repeated."""
        turn = self._turn
        try:
            if turn.owner == me and self._in_transaction():
                with self._lock:
                    self._roll_back(cause)
        finally:
            if self._working == me:
                self._working = 0
            REGISTRY.stop_writing(self.token)
            turn.give(me)

    def _in_transaction(self) -> bool:
        """True while SQLite has a transaction open here that is no snapshot of this thread."""
        return (
            not self._closed and os.getpid() == self._pid and not self._snapshot_open
            and self._connection.in_transaction
        )

    def _give_up(self, cause: BaseException, committing: bool) -> None:
        """Roll back a short transaction. Lost files or locks are the error then, not what `work` made of its reads.

        Unless COMMIT was under way: then SQLite knows whether it was done, and an interrupt after it changes nothing.
        """
        if not committing and self._stopped is None and not self._closed and os.getpid() == self._pid:
            self._check_generation(committed=False, contents=False)
            self._check_strangers(committed=False)
            if self._connection.in_transaction and not self._exclusive:
                self._check_write_lock()
            self._check_standing_lock(committed=False)
        self._roll_back(cause)

    def _roll_back(self, cause: BaseException | None) -> None:
        """Roll back, and stop this store when the cause says that the file or the disk cannot be trusted."""
        if isinstance(cause, StateError):
            self._stop_on(cause)
        if not self._in_transaction():
            return
        self._check_strangers(committed=False)
        if not self.may_roll_back():
            self._lock_lost("the write lock of this process", committed=False)
        with translated(self.path, "rolling back", self._connection):
            self._connection.execute("ROLLBACK").fetchall()

    def _stop_on(self, problem: StateError) -> None:
        """The first I/O error or damaged canonical page is an alarm: no write follows it through this object.

        Damage that SQLite has met, that is. A row whose content is wrong is found by whoever reads it, and concerns
        nobody else.
        """
        damaged = (
            isinstance(problem, Corrupt) and problem.sqlite_code is not None
            and not getattr(problem, "search_index", False)
        )
        if self._stopped is None and (damaged or isinstance(problem, (IOFailure, NotAStore))):
            self._stopped = problem

    def _end_forgotten(self) -> None:
        if self._turn.owner == threading.get_ident():
            raise self._nested()
        self._roll_back(None)

    def forget_locks(self, fresh: threading.RLock) -> None:
        """In a forked child: neither the lock nor the turn is any thread's."""
        super().forget_locks(fresh)
        self._turn = Turn(self._clock)

    def refuse_close_inside(self) -> None:
        """Raise in the function that was given to `write`: what it does could neither be committed nor be undone."""
        if self._working == threading.get_ident() and os.getpid() == self._pid:
            raise StateError(
                f"{self.path} cannot be closed by the function that is writing to it.",
                hint="Close it after the transaction has ended.", path=self.path,
            )

    def _check_write_lock(self) -> None:
        if self._write_lock_ours and all_shown(self._write_lock_ours):
            return
        if not self._connection.in_transaction:
            raise StateError(
                f"SQLite has already rolled back the transaction on {self.path}, after an earlier error.",
                hint="Let the error of a statement that failed end the transaction.", path=self.path,
            )
        shm, main = self.descriptors.shm, self.descriptors.main
        if shm is not None:
            if own_lock(shm, WAL_WRITE_BYTE) in ("read", "none"):
                self._lock_lost("the WAL write lock of this process (byte 120)", committed=False)
        elif self.journal_mode != "wal" and main is not None and own_lock(main, RESERVED_BYTE) in ("read", "none"):
            self._lock_lost("the RESERVED lock of this process", committed=False)

    def _nested(self) -> StateError:
        if os.getpid() != self._pid:
            self._still_usable()  # the child forked inside the block: the transaction is its parent's
        return StateError(
            f"A transaction on {self.path} is already open in this thread.",
            hint="Pass the open transaction on to functions that take part in it.", path=self.path,
        )
