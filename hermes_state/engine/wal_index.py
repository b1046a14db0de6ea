"""What the WAL index of an open store says, read from SQLite's own descriptors.

Invariant: only `os.pread` and `os.fstat` on descriptors that SQLite has open; nothing is opened, so no lock is
cancelled, and nothing is locked, so no writer waits. The numbers are a glance: they may be a moment old.

Not for: repairing an index. The layout is the file format's (WAL-index header, then checkpoint info):
https://www.sqlite.org/walformat.html#the_wal_index_file_format
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from hermes_state.engine.descriptors import StoreDescriptors

# iVersion, unused, iChange, isInit, bigEndCksum, szPage, mxFrame, nPage, aFrameCksum[2], aSalt[8 bytes], aCksum[2]
_HEADER = struct.Struct("=IIIBBHIIII8sII")
_CHECKPOINT_AT = 96  # two copies of the header come first
_CHECKPOINT = struct.Struct("=I5I")  # nBackfill, aReadMark[5]
_UNUSED_MARK = 0xFFFFFFFF
# Blocks of the index: each begins with the page numbers of its frames, the first one after the header.
_BLOCK_BYTES = 32768
_BLOCK_FRAMES = 4096
_FIRST_LIST_AT = 136
_FIRST_BLOCK_FRAMES = _BLOCK_FRAMES - _FIRST_LIST_AT // 4
WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24


@dataclass(frozen=True, kw_only=True)
class WalState:
    """A glance at the WAL of an open store."""

    # frames in the WAL that are valid now
    frames: int
    # frames already copied into the database file
    backfilled_frames: int
    # size of the -wal file in bytes; it does not shrink when frames are copied
    wal_bytes: int
    page_size: int
    # pages of the database once all frames are copied
    database_pages: int
    # the eight salt bytes that every valid frame carries
    salt: bytes
    # frame that each read slot 0..4 is reading up to; None when the slot is not in use
    read_marks: tuple[int | None, ...]

    @property
    def pending_frames(self) -> int:
        """Frames that a checkpoint still has to copy."""
        return max(0, self.frames - self.backfilled_frames)


_GUARD = struct.Struct("=14xHII8x8s56xI")  # szPage, mxFrame, nPage, aSalt, nBackfill: what a guard compares


# Frames, database pages, salt, backfilled frames, page size.
GuardNumbers = tuple[int, int, bytes, int, int]


def read_guard_numbers(shm: int) -> GuardNumbers:
    """Frames, database pages, salt, backfilled frames and page size; all zero while there is no WAL content."""
    raw = os.pread(shm, _GUARD.size, 0)
    if len(raw) < _GUARD.size:
        return 0, 0, b"", 0, 0
    size, frames, pages, salt, backfilled = _GUARD.unpack(raw)
    return frames, pages, salt, backfilled, 65536 if size == 1 else size


def last_frame_of(wal: int, page: int, frames: int, page_size: int) -> int:
    """The number of the newest of the first `frames` frames that hold this page, from 1; 0 when none does.

    Reads 24 bytes a frame, newest first: only inside the write lock, and only when something is wrong already.
    """
    wanted = page.to_bytes(4, "big")
    for number in range(frames, 0, -1):
        if os.pread(wal, 4, WAL_HEADER_BYTES + (number - 1) * (FRAME_HEADER_BYTES + page_size)) == wanted:
            return number
    return 0


def has_frame_of(shm: int, page: int, above: int, frames: int) -> bool:
    """Whether one of the frames `above` + 1 to `frames` holds this page, by the index's own list of their pages.

    One read of at most 16 KB for 4096 frames, newest first.
    """
    end = frames
    while end > above:
        block = 0 if end <= _FIRST_BLOCK_FRAMES else 1 + (end - _FIRST_BLOCK_FRAMES - 1) // _BLOCK_FRAMES
        before = 0 if block == 0 else _FIRST_BLOCK_FRAMES + (block - 1) * _BLOCK_FRAMES  # frames of earlier blocks
        skipped = max(0, above - before)
        at = block * _BLOCK_BYTES + (_FIRST_LIST_AT if block == 0 else 0) + 4 * skipped
        raw = os.pread(shm, 4 * (end - before - skipped), at)
        if page in memoryview(raw[: len(raw) & ~3]).cast("I"):
            return True
        end = before
    return False


def header_is_settled(shm: int) -> bool:
    """False while a writer is between the two copies of the header that it writes at each commit."""
    raw = os.pread(shm, _CHECKPOINT_AT, 0)
    return raw[:_HEADER.size] == raw[_HEADER.size :]


def read_wal_state(descriptors: StoreDescriptors) -> WalState | None:
    """The state of the WAL, or None when the store has no WAL index file (rollback journal, or an exclusive owner)."""
    if descriptors.shm is None or descriptors.wal is None:
        return None
    raw = os.pread(descriptors.shm, _CHECKPOINT_AT + _CHECKPOINT.size, 0)
    if len(raw) < _CHECKPOINT_AT + _CHECKPOINT.size:
        return None
    header = _HEADER.unpack_from(raw)
    initialised, size, frames, pages, salt = header[3], header[5], header[6], header[7], header[10]
    if not initialised:
        return None
    backfilled, *marks = _CHECKPOINT.unpack_from(raw, _CHECKPOINT_AT)
    return WalState(
        frames=frames,
        backfilled_frames=min(backfilled, frames),
        wal_bytes=os.fstat(descriptors.wal).st_size,
        page_size=65536 if size == 1 else size,
        database_pages=pages,
        salt=salt,
        read_marks=tuple(None if mark == _UNUSED_MARK else mark for mark in marks),
    )
