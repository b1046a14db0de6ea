"""Is the database file still the store with our id, or was another one written over it on the same inode?

Invariant: an alarm is raised only for what cannot be otherwise. The page of the database file that holds the identity
row was seen there with our id. Ids never change while anybody has the store open, so each later state of that page has
the id too, wherever the row lives. A missing id is therefore an alarm only after SQLite was asked where the table lives
now (a VACUUM by another process moves it), and only when no frame of the WAL is still to be copied to that place (a
checkpoint that is under way or was killed leaves the file half old, half new, which is sound).

Asked only inside the write lock, so no frame and no move can come between; a checkpoint can, and it only copies frames
that are looked for. A page that a checkpoint is writing right now is read more than once.

Not for: another state of the same store, whose id is right. A checksum of the file was rejected: every checkpoint of
anybody changes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import apsw

from hermes_state.engine.translate import named
from hermes_state.engine.wal_index import last_frame_of, read_guard_numbers

_READS = 3
_ROOT = "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = 'store'"


class IdentityMark:
    """Where the id was seen in the database file; `is_lost()` says that it is gone for good."""

    def __init__(
        self, path: Path, files: tuple[int, int, int], execute: Callable[[str], apsw.Cursor], page_size: int, root: int,
        store_id: bytes,
    ) -> None:
        """`files`: SQLite's descriptors of main, -wal and -shm; `root`: the page where the table is now."""
        self._path = path
        self._main, self._wal, self._shm = files
        self._execute = execute
        self._page_size = page_size
        self._root = root
        self._id = store_id
        # False right after a creation, or while it is not known: the row may still be in the WAL alone
        self._seen = self._is_there(root)

    def is_lost(self) -> bool:
        """True when another store was written over the file. About 1.5 microseconds while it is there."""
        if self._is_there(self._root):
            self._seen = True
            return False
        root = self._root_now()
        frames, _pages, _salt, backfilled, _size = read_guard_numbers(self._shm)
        pending = root > 0 and last_frame_of(self._wal, root, frames, self._page_size) > backfilled
        there = root > 0 and any(self._is_there(root) for _ in range(_READS))
        if self._seen and not pending and not there:
            return True
        self._root, self._seen = root or self._root, there and not pending
        return False

    def _is_there(self, root: int) -> bool:
        return self._id in os.pread(self._main, self._page_size, (root - 1) * self._page_size)

    def _root_now(self) -> int:
        """The table's root page as SQLite sees it; 0 when what it reads is no longer the store that it knows."""
        try:
            found = self._execute(_ROOT).fetchall()
        except (apsw.CorruptError, apsw.NotADBError):
            return 0
        except apsw.Error as error:
            raise named(error, self._path, "looking for the identity row of") from error
        return int(str(found[0][0])) if found else 0
