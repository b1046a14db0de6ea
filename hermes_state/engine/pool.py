"""A bounded pool of reading connections to one store. Not for: writers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hermes_state.engine.connection import ReadStore


class ReaderPool:
    """Readers of one store, at most `size` at a time."""

    def __init__(self, open_one: Callable[[], ReadStore], size: int = 4) -> None:
        self._open_one = open_one
        self._idle: list[ReadStore] = []
        self._free = threading.Semaphore(size)
        self._lock = threading.Lock()

    @contextmanager
    def reader(self) -> Iterator[ReadStore]:
        """A reader of the caller's own until the block ends."""
        with self._free:
            with self._lock:
                reader = self._idle.pop() if self._idle else None
            reader = reader or self._open_one()
            try:
                yield reader
            finally:
                with self._lock:
                    self._idle.append(reader)

    def close(self) -> None:
        """Close every idle reader."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()
