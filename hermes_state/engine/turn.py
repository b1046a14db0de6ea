"""Whose turn it is among the threads of one process that write through one store object.

Invariant: first come, first served. Whoever lets go hands the turn to the thread that has waited longest, so a thread
that writes in a loop starves nobody, and a waiter sleeps in the kernel until it is woken or its deadline has passed.
An exception may come at any moment, as a KeyboardInterrupt does: `owner` says who has the turn before anybody acts on
it, and `give` may be called by a thread that has nothing, and again after it was interrupted itself.

Not for: other processes (SQLite's write lock, see `busy.py`). A plain `threading.Lock` was rejected: the thread that
just released it takes it again before the one that was woken has run, and it does not say which thread has it.
"""

from __future__ import annotations

import threading

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine.busy import BusyWait


class Turn:
    """One turn. `owner` is the identity of the thread that has it, 0 while nobody has."""

    def __init__(self, clock: Clock) -> None:
        self.owner = 0
        self._clock = clock
        # Held for some steps only. Of the kind that its own thread may take again: a signal's handler may write.
        self._lock = threading.RLock()
        # each waiting thread, and the gate that is opened for it when the turn is its own
        self._queue: list[tuple[int, threading.Lock]] = []

    def take_if_free(self, thread: int) -> bool:
        """Take the turn unless another thread has it or waits for it."""
        with self._lock:
            if self.owner or self._queue:
                return False
            self.owner = thread
            return True

    def wait_for(self, thread: int, wait: BusyWait) -> bool:
        """Take the turn when it comes; False when the deadline of `wait` passes first."""
        gate = threading.Lock()
        gate.acquire()
        try:
            while True:
                with self._lock:
                    # Not there, or not any more: the handler of a signal may have written while this thread waited.
                    if not any(waiting is gate for _thread, waiting in self._queue):
                        self._queue.append((thread, gate))
                    if not self.owner:  # let go before this thread was in the queue
                        self._hand_over()
                came = self._opened(gate, wait)
                with self._lock:
                    if self.owner == thread:  # also when it was handed over in the moment the deadline passed
                        return True
                    if not came:
                        self._queue = [one for one in self._queue if one[1] is not gate]
                        return False
        except BaseException:
            self.give(thread)
            raise

    def give(self, thread: int) -> None:
        """Let the turn go, to the thread that has waited longest; without it, stop waiting for it."""
        with self._lock:
            if not self._queue:
                if self.owner == thread:
                    self.owner = 0
                return
            self._wake(thread)
            self._leave_queue(thread)
            if self.owner == thread:
                self._hand_over()

    def _hand_over(self) -> None:
        """To the first in the queue, who is woken first: only once `owner` names it, the turn is its own."""
        if not self._queue:
            self.owner = 0
            return
        first = self._queue[0][0]
        self._wake(first)
        self.owner = first
        self._leave_queue(first)

    def _wake(self, thread: int) -> None:
        for waiting, gate in self._queue:
            if waiting == thread and gate.locked():
                gate.release()

    def _leave_queue(self, thread: int) -> None:
        self._queue = [one for one in self._queue if one[0] != thread]

    def _opened(self, gate: threading.Lock, wait: BusyWait) -> bool:
        if self._clock is SYSTEM:
            return gate.acquire(timeout=min(wait.begin(), threading.TIMEOUT_MAX))
        tries = 0  # a clock that tests move by hand: time passes only in naps
        while not gate.acquire(blocking=False):
            if not wait.nap(tries):
                return False
            tries += 1
        return True
