"""Was the database file overwritten in place by an older copy of the same store?

Invariant: an alarm is raised only for what no checkpoint can leave behind. Three things never go backwards in a file
that SQLite alone writes: the change counter of its header; the page that the newest copied-back frame of the WAL holds,
which must be in the file as the frame has it, unless a later frame holds the page as well (its copy may have been put
off, or be under way) or the store became shorter; and the pages that the WAL index counts, each of which is in the file
or in a frame that was not copied back yet. The numbers are read before and after; where they moved meanwhile nothing is
concluded. So this may be asked without any lock.

Seen: a copy of before the newest transaction that was copied back from the WAL as it is now, and one that lacks a page.
Not seen: one of the moment before a change that is in the WAL alone, which hides nothing from anybody: the WAL is laid
over it. Nor, while nothing was copied back since the WAL was last started again, a copy of before that which lacks no
page: the frames that would show it are gone, and the counter moves only when a connection reads page 1 anew
(measured: it stayed through 50 appends and two checkpoints of one writer).

Not for: another store, which is told by its id (`identity_mark.py`). A hash of the whole file was rejected: each
checkpoint of anybody changes it.
"""

from __future__ import annotations

import os

from hermes_state.engine.cut_file import missing_page
from hermes_state.engine.wal_index import (
    FRAME_HEADER_BYTES,
    WAL_HEADER_BYTES,
    GuardNumbers,
    last_frame_of,
    read_guard_numbers,
)

_COUNTER_AT = 24  # "file change counter" of the database header, 4 bytes, big-endian
HEAD_BYTES = _COUNTER_AT + 4
_MOST_SEARCHED = 20_000  # frames looked through for a later one of the same page; beyond it nothing is concluded


class OlderState:
    """What was seen in the file; `is_there()` says that an older copy lies over it."""

    def __init__(self, main: int, wal: int | None, shm: int | None, page_size: int) -> None:
        """SQLite's own descriptors of the database file, the WAL and the WAL index."""
        self._main, self._wal, self._shm = main, wal, shm
        self._page_size = page_size
        self._counter = self._counter_now()
        # The copied frame that was compared last, which stays as it is until the WAL is started again: its number and
        # salt, its page, and what that page holds.
        self._frame: tuple[int, bytes, int, bytes] = (0, b"", 0, b"")

    def is_there(self, head: bytes = b"", size: int = -1, numbers: GuardNumbers | None = None) -> bool:
        """True when the file went back. About 4 microseconds; asked only when the file has changed since the last.

        What the caller has read already may be given: the first `HEAD_BYTES` of the file, its size, the guard numbers
        of the WAL index. They may be a moment old: an alarm is raised only by what is read here, in order.
        """
        counter = self._counter_now() if len(head) < HEAD_BYTES else int.from_bytes(head[_COUNTER_AT:HEAD_BYTES], "big")
        if counter < self._counter:
            return True
        self._counter = counter
        if self._wal is None or self._shm is None:
            return False
        if self._is_plainly_whole(self._wal, size, numbers or read_guard_numbers(self._shm)):
            return False
        if missing_page(self._main, self._shm, self._page_size):
            return True
        return self._lacks_copied_frame() and self._lacks_copied_frame()

    def expect(self, seen: OlderState) -> None:
        """What another connection has seen in the same file counts here as well."""
        self._counter = max(self._counter, seen._counter)

    def _counter_now(self) -> int:
        return int.from_bytes(os.pread(self._main, 4, _COUNTER_AT), "big")

    def _is_plainly_whole(self, wal: int, size: int, numbers: GuardNumbers) -> bool:
        """False when a closer look is needed: a page lies behind the end, or the newest copied frame is not there."""
        frames, pages, salt, copied, wal_page_size = numbers
        page_size = self._page_size
        if size < 0:
            size = os.fstat(self._main).st_size
        if frames and wal_page_size == page_size and size // page_size < pages:
            return False
        if not 0 < copied <= frames or wal_page_size != page_size or frames - copied > _MOST_SEARCHED:
            return True
        number, of_salt, page, content = self._frame
        if number != copied or of_salt != salt:
            raw = os.pread(
                wal, FRAME_HEADER_BYTES + page_size, WAL_HEADER_BYTES + (copied - 1) * (FRAME_HEADER_BYTES + page_size)
            )
            if len(raw) < FRAME_HEADER_BYTES + page_size or raw[8:16] != salt:
                return True  # the WAL itself was exchanged, or was started again: looked for elsewhere
            page, content = int.from_bytes(raw[:4], "big"), raw[FRAME_HEADER_BYTES:]
            self._frame = (copied, salt, page, content)
        return not 0 < page <= pages or os.pread(self._main, page_size, (page - 1) * page_size) == content

    def _lacks_copied_frame(self) -> bool:
        """The newest frame that was copied into the file is not in it."""
        wal, shm, size = self._wal, self._shm, self._page_size
        if wal is None or shm is None:
            return False
        before = read_guard_numbers(shm)
        frames, pages, salt, copied, wal_page_size = before
        if not 0 < copied <= frames or wal_page_size != size or frames - copied > _MOST_SEARCHED:
            return False
        raw = os.pread(wal, FRAME_HEADER_BYTES + size, WAL_HEADER_BYTES + (copied - 1) * (FRAME_HEADER_BYTES + size))
        if len(raw) < FRAME_HEADER_BYTES + size or raw[8:16] != salt:
            return False  # the WAL itself was exchanged, or was started again: looked for elsewhere
        page = int.from_bytes(raw[:4], "big")
        if not 0 < page <= pages or os.pread(self._main, size, (page - 1) * size) == raw[FRAME_HEADER_BYTES:]:
            return False
        return last_frame_of(wal, page, frames, size) == copied and read_guard_numbers(shm) == before
