"""The generation guard: are the files under this connection still the files that the path names?

Invariant: no commit is reported as done while the database, its -wal or its -shm has been replaced or unlinked under
the connection. SQLite itself notices none of these in time (measured: every write "succeeded"), and a connection that
is closed the ordinary way then destroys what others committed meanwhile.

What is compared: SQLite's HAS_MOVED for the database file, device and inode of each sidecar's path against SQLite's
own descriptor as it was at open. What inodes cannot show is looked for in the contents: the WAL's salt and length
against the WAL index, the database's first bytes, page size and length, whether the file went back to an older state
(see `older_state.py`), and in a native store the page with the identity row (see `identity_mark.py`). Not detectable: a
copy so young that it lacks no page and nothing that was copied back, or another store put there while the identity
row's page is in the WAL and not yet copied into the file.

The first writer of a `Core` goes on from what the reader that opened the store has seen (`has_seen_what`).

The readers of a `Core` look as well, before each read outside a snapshot (`lost_to_reader`), without any lock: at names
and inodes, and at whether the file went back; whenever the kernel reports an open or a change of names, and once a
second. Nothing is captured for it but for the one that stands for a writer (see `core.py`).

Not for: other processes' generations (see `stale.py`), nor for keeping anything (see `capture.py`). Link counts alone
were rejected: a sidecar that is renamed away keeps its link, and some file systems report them late.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import apsw

from hermes_state.engine.descriptors import Identity, StoreDescriptors, identity_of, sidecars
from hermes_state.engine.identity_mark import IdentityMark
from hermes_state.engine.inotify import Watch
from hermes_state.engine.older_state import HEAD_BYTES, OlderState
from hermes_state.engine.wal_index import FRAME_HEADER_BYTES, WAL_HEADER_BYTES, GuardNumbers, read_guard_numbers
from hermes_state.shell_words import shell_word

_MAGIC = b"SQLite format 3\x00"
_TICK_NS = 20_000_000  # Linux counts file times in ticks of 1 to 10 ms, or finer

Lost = tuple[str, ...]  # which of "main", "wal", "shm" were replaced, unlinked or overwritten


class GenerationGuard:
    """Remembers what a connection opened; `lost()` says what is no longer the same."""

    def __init__(
        self, connection: apsw.Connection, path: Path, descriptors: StoreDescriptors, watch: Watch
    ) -> None:
        self._file_control = connection.file_control
        self._watch = watch
        self.path = path
        self._main, self._wal, self._shm = descriptors.main, descriptors.wal, descriptors.shm
        _main, self._wal_path, self._shm_path = map(str, sidecars(path))
        self._main_identity = identity_of(path)
        self._wal_identity = _own_identity(descriptors.wal)
        self._shm_identity = _own_identity(descriptors.shm)
        self._moved = ctypes.c_int(0)
        self._moved_at = ctypes.addressof(self._moved)
        self._page_size = _page_size(descriptors.main)
        self._head = _MAGIC + (1 if self._page_size == 65536 else self._page_size).to_bytes(2, "big")
        self._execute = connection.execute
        self._mark: IdentityMark | None = None
        self._older: OlderState | None = None
        if descriptors.main is not None and self._page_size:
            self._older = OlderState(descriptors.main, descriptors.wal, descriptors.shm, self._page_size)
        self._looked_at = (-1, -1)  # size and time of change of the database file whose contents were found right

    def mark_identity(self, root: int, store_id: bytes) -> None:
        """`root`: the page of the database file that holds the row with `store_id` now."""
        if self._main is not None and self._wal is not None and self._shm is not None and self._page_size:
            files = self._main, self._wal, self._shm
            self._mark = IdentityMark(self.path, files, self._execute, self._page_size, root, store_id)
            self._looked_at = (-1, -1)

    def has_seen_what(self, other: GenerationGuard) -> None:
        """From now on the file is expected to be no older than `other` has seen it. From any thread."""
        if self._older is not None and other._older is not None:
            self._older.expect(other._older)
            self._looked_at = (-1, -1)

    def lost(self) -> Lost:
        """The files that were replaced or unlinked; empty when all is as it was.

        About 1.6 microseconds while the kernel reports nothing of the folder, 4 otherwise.
        """
        self._file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, self._moved_at)
        watch = self._watch
        if not self._moved.value and watch.names_are_quiet():
            return ()
        epoch = watch.epoch()
        lost = (("main",) if self._moved.value else ()) + self._lost_sidecars()
        if not lost:
            watch.compared_names(epoch)
        return lost

    def is_intact(self) -> bool:
        """True when neither `lost` nor `overwritten` would find anything, nor a list of descriptors anything new."""
        self._file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, self._moved_at)
        return not self._moved.value and self._watch.is_quiet() and not self.overwritten()

    def lost_by_name(self) -> Lost:
        """The same by names and inodes alone: for a look from another thread, which may not touch the connection."""
        moved = self._main_identity is not None and not _same(str(self.path), self._main_identity)
        return (("main",) if moved else ()) + self._lost_sidecars()

    def _lost_sidecars(self) -> Lost:
        lost: Lost = ()
        if self._wal_identity is not None and not _same(self._wal_path, self._wal_identity):
            lost += ("wal",)
        if self._shm_identity is not None and not _same(self._shm_path, self._shm_identity):
            lost += ("shm",)
        return lost

    def lost_to_reader(self) -> Lost:
        """What `lost` finds, and whether the database file went back to an older state."""
        lost, main = self.lost(), self._main
        if lost or main is None or self._older is None:
            return lost
        state = os.fstat(main)
        if (state.st_size, state.st_ctime_ns) != self._looked_at:
            if self._older.is_there(size=state.st_size):
                return ("main",)
            self._note(state)
        return ()

    def overwritten(self) -> Lost:
        """The files whose content was exchanged in place, as far as counters can tell.

        Only meaningful while no other process can be writing, that is inside the write lock.
        """
        lost: Lost = ()
        main, shm, wal = self._main, self._shm, self._wal
        numbers = None if shm is None or wal is None else read_guard_numbers(shm)
        if main is not None and self._page_size:
            state = os.fstat(main)
            if (state.st_size, state.st_ctime_ns) != self._looked_at and self._exchanged(main, state, numbers):
                lost = ("main",)
        if wal is None or numbers is None:
            return lost
        frames, pages, salt, backfilled, page_size = numbers
        if frames == 0:
            return lost
        # To read the last byte says whether a file is that long, in half the time of fstat.
        needed = WAL_HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_size)
        if os.pread(wal, 8, 16) != salt or not os.pread(wal, 1, needed - 1):
            lost += ("wal",)
        if backfilled >= frames and main is not None and not lost and not os.pread(main, 1, pages * page_size - 1):
            lost += ("main",)
        return lost

    def _exchanged(self, main: int, state: os.stat_result, numbers: GuardNumbers | None) -> bool:
        """True when the database file, which has changed since the last look, is not the store that it was.

        A file system counts time in ticks: a change so young that another one could bear the same time is looked at
        again. The system's own clock, because it is the file system's.
        """
        head = os.pread(main, HEAD_BYTES, 0)
        if not head.startswith(self._head) or (self._mark is not None and self._mark.is_lost()):
            return True
        if self._older is not None and self._older.is_there(head, state.st_size, numbers):
            return True
        self._note(state)
        return False

    def _note(self, state: os.stat_result) -> None:
        if time.time_ns() - state.st_ctime_ns > _TICK_NS:
            self._looked_at = (state.st_size, state.st_ctime_ns)

    @property
    def identities(self) -> tuple[Identity, ...]:
        """Device and inode of main, -wal and -shm as they were at open."""
        return tuple(i for i in (self._main_identity, self._wal_identity, self._shm_identity) if i is not None)


def _own_identity(descriptor: int | None) -> Identity | None:
    if descriptor is None:
        return None
    state = os.fstat(descriptor)
    return state.st_dev, state.st_ino


def _same(path: str, identity: Identity) -> bool:
    try:
        state = os.stat(path)
    except OSError:
        return False
    return state.st_ino == identity[1] and state.st_dev == identity[0]


def _page_size(descriptor: int | None) -> int:
    """Page size from the file header, 0 when the database file is still empty (all of it is in the WAL)."""
    if descriptor is None:
        return 0
    head = os.pread(descriptor, 18, 0)
    return _decode_page_size(head) if head.startswith(_MAGIC) else 0


def _decode_page_size(head: bytes) -> int:
    size = int.from_bytes(head[16:18], "big")
    return 65536 if size == 1 else size


def user_sentence() -> str:
    """What a person in a chat should read: what happened, that nothing was thrown away, one safe next step."""
    return (
        "Hermes paused saving because another program replaced the files of its session store while it was running. "
        "What was saved is kept; please quit every Hermes program of this profile and start it again, "
        "and do not delete any file."
    )


def operator_detail(path: Path, lost: Lost, capture: Path | None, *, committed: bool) -> str:
    """What an operator needs: which files, where the captured rows are, and the command that names the holders."""
    names = {"main": path.name, "wal": f"{path.name}-wal", "shm": f"{path.name}-shm"}
    files = " and ".join(names[item] for item in lost)
    state = (
        "The last change was committed to the replaced generation only."
        if committed
        else "The last change was not committed."
    )
    where = f"The generation was captured in {capture}." if capture else "The generation could not be captured."
    return (
        f"{files} of {path} was replaced or unlinked under an open connection. {state} {where} "
        f"Stop every process that still has the old files open (`hermes-state doctor --db {shell_word(path)}` and "
        f"`hermes-state locks --db {shell_word(path)}` name them). Never delete -wal or -shm while one of them runs."
    )
