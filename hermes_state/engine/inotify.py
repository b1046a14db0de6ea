"""Has anything happened to a store's files and the names beside them since they were last looked at?

Invariant: a watch is quiet only when, since the names were last compared and this process's descriptors last listed,
the kernel has reported no creation, removal or rename in the store's folder and no open of its three files by anybody,
and the last comparison is less than a second old. Everything else means: look again. The kernel queues a report before
the call that caused it returns, and for a name before it lets the folder go, so nobody can have put a new file there or
have a new descriptor in hand before the report is there. One system call of 0.3 microseconds answers for all; looking
at two names costs 3, counting descriptors 0.8.

Only on file systems of this machine, where nobody changes a folder behind the kernel's back; elsewhere, without inotify
or when the user's instances of it are used up, nothing is ever quiet and every look is a full one. Not reported, and
therefore asked for at every commit all the same: the rename of a folder further up (SQLite's HAS_MOVED), a descriptor
made by `dup` (the count, at every begin), and locks that its close cancels (the locks themselves).

Not for: waking anybody up (see `hermes_state.changes`). The folder's own modification time was rejected: two changes
within one tick of the clock look like one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
import threading
from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.engine.descriptors import StoreDescriptors

try:
    from fcntl import ioctl
except ImportError:  # Windows has neither ioctl nor inotify
    ioctl = None  # type: ignore[assignment]

RELOOK_SECONDS = 1.0
_FIONREAD = 0x541B  # asm-generic/ioctls.h
_NOTHING = b"\0\0\0\0"
_MASK_ADD = 0x20000000  # another store may watch the same folder
# IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF; IN_ONLYDIR
_NAMES = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x01000000 | _MASK_ADD
_OPENS = 0x20 | _MASK_ADD  # IN_OPEN
# f_type of statfs: ext2 to ext4, xfs, btrfs, f2fs, zfs, bcachefs, overlay, tmpfs, ramfs
_LOCAL = {0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x794C7630, 0x01021994, 0x858458F6}
_STATFS_BYTES = 256  # struct statfs is 120 bytes; f_type comes first


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


class Queue:
    """The process's one inotify descriptor, for all stores. `epoch` has risen once reports were taken out of it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a store that is collected while another is opened gives its watches back here
        self.epoch = 0
        self.taking = False
        self.descriptor = -1
        self._users: dict[int, int] = {}  # watch number -> how many connections have it

    def add(self, path: str, events: int) -> int | None:
        """Watch what `path` names now; the number for `remove`, or None where that cannot be."""
        with self.lock:
            if self.descriptor < 0:
                self.descriptor = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            number: int = _libc().inotify_add_watch(self.descriptor, os.fsencode(path), events)
            if number < 0:
                return None
            self._users[number] = self._users.get(number, 0) + 1
            return number

    def remove(self, number: int) -> None:
        """One connection less has that watch."""
        with self.lock:
            self._users[number] = self._users.get(number, 1) - 1
            if self._users[number] <= 0:
                del self._users[number]
                _libc().inotify_rm_watch(self.descriptor, number)  # fails when the file is gone, its watch with it

    def take_reports(self) -> None:
        """Empty the queue and raise the epoch. Whoever finds it empty meanwhile sees `taking` and waits here."""
        with self.lock:
            self.taking = True
            try:
                while os.read(self.descriptor, 65536):
                    pass
            except BlockingIOError:
                pass
            finally:
                self.epoch += 1
                self.taking = False

    def forget(self) -> None:
        """In a forked child: the queue is the parent's as well, so nothing may be read from it here."""
        inherited, self.descriptor = self.descriptor, -1
        self.lock = threading.RLock()
        self._users = {}
        if inherited >= 0:
            os.close(inherited)


QUEUE = Queue()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=QUEUE.forget)


class Watch:
    """One connection's watch; used by one thread at a time."""

    def __init__(self, path: Path, descriptors: StoreDescriptors, clock: Clock) -> None:
        self._clock = clock
        self._numbers: list[int] = []
        self._descriptor = -1
        self._waiting = bytearray(_NOTHING)  # bytes waiting in the queue
        self._names_at = self._opens_at = -1
        self._until = 0.0
        files = [number for number in (descriptors.main, descriptors.wal, descriptors.shm) if number is not None]
        if len(files) < 3 or ioctl is None or not sys.platform.startswith("linux") or not _is_local(path.parent):
            return
        # By descriptor, so that it is the file that SQLite has open whatever its name means now.
        wanted = [(str(path.parent), _NAMES), *((f"/proc/self/fd/{number}", _OPENS) for number in files)]
        got = [QUEUE.add(name, events) for name, events in wanted]
        self._numbers = [number for number in got if number is not None]
        if len(self._numbers) == len(wanted):
            self._descriptor = QUEUE.descriptor

    def epoch(self) -> int:
        """The number of reports taken out so far, to be asked for before a look; -1 where there is no watch."""
        if self._descriptor < 0:
            return -1
        try:
            ioctl(self._descriptor, _FIONREAD, self._waiting)
            if self._waiting != _NOTHING or QUEUE.taking:
                QUEUE.take_reports()
        except OSError:
            return -1  # other code of this process closed the descriptor
        return QUEUE.epoch

    def is_quiet(self) -> bool:
        """True when neither names nor descriptors need a look."""
        epoch = self.epoch()
        return epoch == self._names_at and epoch == self._opens_at and epoch >= 0 and self._is_recent()

    def names_are_quiet(self) -> bool:
        """True when the names need not be compared again."""
        epoch = self.epoch()
        return epoch == self._names_at and epoch >= 0 and self._is_recent()

    def opens_are_quiet(self) -> bool:
        """True when nobody has opened the files since the descriptors were last listed, as far as is reported."""
        epoch = self.epoch()
        return epoch in (self._opens_at, -1)

    def opens_were_seen(self) -> bool:
        """True when the kernel reports opens, and has reported none since the descriptors were last listed."""
        epoch = self.epoch()
        return epoch == self._opens_at and epoch >= 0

    def compared_names(self, epoch: int) -> None:
        """The names were compared since `epoch`, and all were right."""
        self._names_at = epoch
        self._until = self._clock.monotonic() + RELOOK_SECONDS

    def listed_descriptors(self, epoch: int) -> None:
        """The descriptors were listed since `epoch`, and none was strange."""
        self._opens_at = epoch

    def close(self) -> None:
        """Give the watches back; from then on nothing is quiet."""
        numbers, self._numbers, self._descriptor = self._numbers, [], -1
        for number in numbers:
            QUEUE.remove(number)

    def _is_recent(self) -> bool:
        return self._clock.monotonic() < self._until


def _is_local(folder: Path) -> bool:
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc().statfs(os.fsencode(folder), answer) != 0:
        return False
    kind: int = struct.unpack_from("=l" if ctypes.sizeof(ctypes.c_long) == 4 else "=q", answer)[0]
    return kind & 0xFFFFFFFF in _LOCAL
