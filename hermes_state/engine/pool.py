"""A bounded pool of reading connections to one store.

Invariant: at most `size` connections are open at a time, whatever the number of threads; a thread has one to itself
until its block ends, and it comes back with no read transaction open, so an idle reader never keeps the WAL from being
started again. One that can no longer be trusted (closed, stopped, lost locks or files) is let go, never lent again.
A loan is an object: what counts is which loans exist, so one that an interrupt cuts off anywhere ends at the latest
when Python drops it, and no number can be wrong.

A block inside another block of the same thread gets the same reader again, its snapshot included. Had it to wait for a
reader of its own, as many threads as there are readers could wait for each other, each inside a block.

Not for: writers (`store.py`), nor long streams, which would keep a reader from everybody else (`Core.new_reader`).
A connection for each thread was rejected: threads end and their connections stay (measured with 300 threads).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine.busy import BusyWait
from hermes_state.engine.connection import ReadStore
from hermes_state.errors import LockTimeout, StateError

PATIENCE_SECONDS = 20.0
_LOOK_SECONDS = 0.05  # a waiter that missed its call looks again after that long


class Loan:
    """One reader in the hands of one thread, for as long as this object is used or referred to.

    When Python drops a loan that was not ended, it drops the reader with it, which closes.
    """

    __slots__ = ("__weakref__", "_pool", "reader", "users")

    def __init__(self, pool: ReaderPool) -> None:
        self._pool = pool
        self.reader: ReadStore | None = None
        self.users = 0  # blocks, one inside the other

    def end(self) -> None:
        """Give the reader back. Safe to call twice."""
        self._pool.give_back(self)


class _Threads(threading.local):
    """The loan of the thread that asks."""

    loan: weakref.ref[Loan] | None = None


class ReaderPool:
    """Readers of one store, at most `size` at a time, each opened by `open_one` when it is first needed.

    `patience_seconds`: how long a caller waits while all are in use before `LockTimeout` is raised.
    """

    def __init__(
        self, open_one: Callable[[], ReadStore], size: int = 4, *, patience_seconds: float = PATIENCE_SECONDS,
        clock: Clock = SYSTEM,
    ) -> None:
        self._open_one = open_one
        self._size = size
        self._patience = patience_seconds
        self._clock = clock
        self._path: Path | None = None  # known once a reader was opened
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()  # for a moment only, so that two threads do not take the last place
        self._idle: list[ReadStore] = []  # the one that was used last is lent first
        self._loans: set[weakref.ref[Loan]] = set()
        self._threads = _Threads()
        self._calls: SimpleQueue[None] = SimpleQueue()  # wakes a waiter; a call too many or too few does no harm
        self._waiting = 0

    def reader(self) -> Lent:
        """A reader for the `with` block; waits while all are in use by other threads.

        Raises `LockTimeout` when none comes free, and what opening raises.
        """
        return Lent(self)

    def borrow(self) -> Loan:
        """For `Lent` only: the loan that this thread has, or a new one."""
        if self._pid != os.getpid():
            self._start()  # a forked child has the parent's readers and the locks of its threads: it begins anew
        mine = self._threads.loan
        loan = mine() if mine is not None else None
        if loan is not None and loan.reader is not None:
            return loan
        loan = Loan(self)
        if not self._enter(loan):
            self._wait(loan)
        try:
            loan.reader = self._usable()
        except BaseException:
            loan.end()
            raise
        self._threads.loan = weakref.ref(loan)
        return loan

    def _enter(self, loan: Loan) -> bool:
        """Count the loan, when there is a place for it."""
        with self._lock:
            if len(self._loans) >= self._size:
                return False
            self._loans.add(weakref.ref(loan, self._loans.discard))
            return True

    def _usable(self) -> ReadStore:
        if self._closed:
            where = "" if self._path is None else f" to {self._path}"
            raise StateError(f"The connections{where} are closed.", hint="Open the store again.", path=self._path)
        while self._idle:
            try:
                reader = self._idle.pop()
            except IndexError:
                break  # another thread was faster
            if reader.stopped is None and not reader.closed:
                return reader
        reader = self._open_one()
        self._path = reader.path
        return reader

    def _wait(self, loan: Loan) -> None:
        wait, tries = BusyWait(self._clock, self._patience), 0
        self._waiting += 1
        try:
            while not self._enter(loan):
                if self._clock is SYSTEM and wait.begin() > 0:
                    with suppress(Empty):
                        self._calls.get(timeout=min(wait.remaining, _LOOK_SECONDS))
                elif not wait.nap(tries):  # a clock that tests move by hand: time passes only in naps
                    break
                tries += 1
            else:
                return
        finally:
            self._waiting -= 1
        raise LockTimeout(
            f"No reader of {self._path or 'the store'} came free within {wait.waited:.1f} s; all {self._size} are in "
            "use by other threads of this process.",
            hint="Keep reads short, or take a reader of your own for a long one.",
            path=self._path, holders=(), waited_seconds=wait.waited,
        )

    def give_back(self, loan: Loan) -> None:
        """For `Loan` only: it has ended."""
        reader, loan.reader = loan.reader, None  # from here on an interrupt loses the reader, which Python then closes
        if reader is not None and reader.opened_by != os.getpid():
            return  # this is a forked child, and the reader its parent's
        try:
            if reader is not None:
                if self._closed or not reader.is_idle():
                    reader.close()  # a loop over rows was left in the middle, or it was stopped and is closed already
                else:
                    self._idle.append(reader)
        finally:
            self._loans.discard(weakref.ref(loan))
            if self._waiting > 0 and self._calls.qsize() < self._size:
                self._calls.put(None)
        if self._closed:  # by another thread, just now
            self.close()

    def close(self) -> None:
        """Close all readers that are not in use; those that are, when their blocks end. Safe to call twice."""
        self._closed = True
        if self._pid != os.getpid():
            return
        with ExitStack() as closing:  # each of them, whatever the others raise
            while self._idle:
                try:
                    closing.callback(self._idle.pop().close)
                except IndexError:
                    break


class Lent:
    """One block with a reader, as a context manager."""

    __slots__ = ("_loan", "_pool")

    def __init__(self, pool: ReaderPool) -> None:
        self._pool = pool
        self._loan: Loan | None = None

    def __enter__(self) -> ReadStore:
        loan = self._loan = self._pool.borrow()
        loan.users += 1
        reader = loan.reader
        assert reader is not None, "a loan with users keeps its reader"
        return reader

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loan, self._loan = self._loan, None
        if loan is not None:
            loan.users -= 1
            if loan.users == 0:
                loan.end()
