"""Pages of an open store as SQLite sees them now, read through SQLite's own descriptors.

Invariant: only `os.pread` on descriptors that SQLite has open, so no lock is cancelled; a page is taken from the newest
frame of the WAL that is valid, else from the file. Meant to be used inside a snapshot of the same reader, which keeps
both from changing under it.

Not for: files that SQLite refuses, and not for whole trees (`dbstat` walks those). SQLite's own page table was
rejected: the build at hand does not have it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore

WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24


class StorePages:
    """Pages by number, from 1."""

    def __init__(self, store: ReadStore) -> None:
        self.page_size = store.page_size
        self.page_count = store.page_count
        self._main = store.descriptors.main
        self._wal = store.descriptors.wal
        self._frames = self._newest_frames(store)

    @property
    def readable(self) -> bool:
        """Whether this system shows SQLite's descriptors at all."""
        return self._main is not None

    def page(self, number: int) -> bytes:
        """The bytes of a page; shorter than a page where the file ends before it."""
        frame = self._frames.get(number)
        if frame is not None and self._wal is not None:
            size = FRAME_HEADER_BYTES + self.page_size
            return os.pread(self._wal, self.page_size, WAL_HEADER_BYTES + frame * size + FRAME_HEADER_BYTES)
        return os.pread(self._main or 0, self.page_size, (number - 1) * self.page_size)

    def _newest_frames(self, store: ReadStore) -> dict[int, int]:
        """Page number -> number from 0 of the last valid frame that holds it."""
        state = store.wal_state()
        if state is None or self._wal is None or not state.frames:
            return {}
        size = FRAME_HEADER_BYTES + state.page_size
        newest: dict[int, int] = {}
        for frame in range(state.frames):
            head = os.pread(self._wal, FRAME_HEADER_BYTES, WAL_HEADER_BYTES + frame * size)
            if len(head) == FRAME_HEADER_BYTES and head[8:16] == state.salt:
                newest[int.from_bytes(head[:4], "big")] = frame
        return newest
