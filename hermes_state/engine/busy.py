"""Waiting for a lock: one deadline, and a handler that asks about twice a millisecond.

Invariant: a wait ends at the caller's deadline and at no other number; a connection has this handler before its
first statement, because even the first `PRAGMA` can meet a lock. The deadline counts from the moment when the wait
begins: a lock that is free costs no look at the clock. Not for: retries after an error.
SQLite's own busy timeout was rejected: its growing naps starve a waiter behind many writers (measured p99 with eight
writers 0.16 to 0.70 of it with naps of one millisecond). Ten shorter naps come first, since most transactions last less
than a tenth of a millisecond: with eight writers that pause between writes p99 was 0.8 to 1.9 ms, and 2.3 to 3.1 ms
without them. Then half a millisecond rather than a whole one: a waiter that finds the lock taken again and again waits
so many naps, whatever their length (eight writers that never pause, on a busy machine: p99 0.73 of that with whole
ones, median of twelve rounds side by side). Nobody is first in line for SQLite's lock.
"""

from __future__ import annotations

from hermes_state.clock import Clock

_NAPS = (  # how many tries, and the seconds before each
    (10, 0.0001),
    (40, 0.0005),
)
_SLOW_SECONDS = 0.004  # after these tries the lock is held long; 2 to 5 ms keeps the CPU low (measured at 20 ms holds)


def nap_seconds(tries: int) -> float:
    """How long to sleep before try number `tries`, from 0."""
    for count, seconds in _NAPS:
        if tries < count:
            return seconds
        tries -= count
    return _SLOW_SECONDS


class BusyWait:
    """The busy handler of one connection. `arm` sets how long the next wait may take, in seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._started: float | None = None

    def arm(self, seconds: float) -> None:
        """The next wait, whenever it begins, may take at most `seconds`."""
        self._seconds = seconds
        self._started = None

    def begin(self) -> float:
        """The wait begins now, unless it has begun; returns the seconds that are left."""
        if self._started is None:
            self._started = self._clock.monotonic()
        return self.remaining

    def follow(self, other: BusyWait) -> None:
        """Go on with the wait of `other`: its start and its deadline."""
        self._started, self._seconds = other._started, other._seconds

    @property
    def waited(self) -> float:
        """Seconds since the wait began."""
        return 0.0 if self._started is None else self._clock.monotonic() - self._started

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self._seconds - self.waited)

    def nap(self, tries: int) -> bool:
        """Sleep before try number `tries`; False when the deadline has passed."""
        left = self.begin()
        if left <= 0:
            return False
        self._clock.sleep(min(left, nap_seconds(tries)))
        return True

    def __call__(self, tries: int) -> bool:
        return self.nap(tries)
