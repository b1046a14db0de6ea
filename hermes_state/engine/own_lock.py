"""Does the kernel still show the locks that SQLite believes this process has?

Invariant: `F_OFD_GETLK` on SQLite's own descriptor reports this process's own POSIX locks with its pid, so the answer
comes from the kernel and costs about a microsecond. When other code in the process closes any descriptor of the same
file, the kernel drops our locks without a word; SQLite cannot see it, this can.

A read lock that others have as well (SQLite's standing lock, byte 128) cannot be asked for that way: the kernel names
one holder, which may be another process. So a *canary* is planted through SQLite's own descriptors of the database
and of the WAL index: a read lock on one byte at a random offset far above SQLite's bytes. Whatever drops our locks
drops the canary.

Not for: other processes' locks (see `lockowners`). Without OFD locks (macOS, Windows) the answer is None, "unknown".
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterable

try:
    import fcntl
except ImportError:  # Windows: SQLite uses other locks there
    fcntl = None  # type: ignore[assignment]
_fcntl = fcntl.fcntl if fcntl is not None else None

_F_OFD_GETLK = 36  # include/uapi/asm-generic/fcntl.h
_FLOCK = struct.Struct("hhqqi4x")
_QUERIES: dict[int, bytes] = {}

WAL_WRITE_BYTE = 120
WAL_ALIVE_BYTE = 128  # SQLite's dead-man switch: every connection that uses the WAL index keeps it for reading
PENDING_BYTE = 0x40000000
RESERVED_BYTE = PENDING_BYTE + 1
SHARED_FIRST = PENDING_BYTE + 2

_CANARY_FLOOR = 1 << 48
_canary: dict[int, int] = {}  # pid -> offset; a forked child must not look at its parent's


def own_lock(descriptor: int, byte: int) -> str | None:
    """ "write", "read" or "none" for the lock of this process on `byte`; None where the kernel cannot tell.

    Exact for a byte that only one process can have at a time, and for the canary.
    """
    if fcntl is None or not sys.platform.startswith("linux"):
        return None
    query = _QUERIES.get(byte)
    if query is None:
        query = _QUERIES[byte] = _FLOCK.pack(fcntl.F_WRLCK, 0, byte, 1, 0)
    try:
        kind, _whence, _start, _length, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, _F_OFD_GETLK, query))
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None  # a kernel or sandbox without OFD locks
        raise
    if kind == fcntl.F_UNLCK or pid != os.getpid():
        return "none"
    return "write" if kind == fcntl.F_WRLCK else "read"


KnownLock = tuple[int, bytes, bytes]  # descriptor, the question, and the answer while all is as it should be


def known_lock(descriptor: int, byte: int, state: str) -> KnownLock:
    """What `all_shown` asks about one byte; `state` as `own_lock` tells it."""
    if fcntl is None or not sys.platform.startswith("linux"):
        return descriptor, b"", b""
    kind = {"write": fcntl.F_WRLCK, "read": fcntl.F_RDLCK, "none": fcntl.F_UNLCK}[state]
    question = _FLOCK.pack(fcntl.F_WRLCK, 0, byte, 1, 0)
    return descriptor, question, _FLOCK.pack(kind, 0, byte, 1, 0 if state == "none" else os.getpid())


def all_shown(locks: Iterable[KnownLock]) -> bool:
    """True when the kernel gives exactly the expected answers; 0.45 microseconds each, half of `own_lock`.

    Another answer need not be bad (locks side by side are told as one): then `own_lock` decides.
    """
    try:
        for descriptor, question, answer in locks:
            if not question or _fcntl(descriptor, _F_OFD_GETLK, question) != answer:
                return False
    except OSError:
        return False  # a kernel that cannot be asked
    return True


def take_back(descriptor: int, byte: int) -> bool:
    """Take the write lock on `byte` through SQLite's own descriptor; False while another process has it."""
    if fcntl is None:
        return True
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, byte, 1, 0))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def others_lock(descriptor: int, byte: int) -> bool | None:
    """True when another process has a lock on `byte`, False when none has, None where the kernel cannot tell."""
    if fcntl is None:
        return None
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, byte, 1, 0))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def canary_byte() -> int:
    """The offset of this process's canary: random, so that no other process has the same."""
    pid = os.getpid()
    if pid not in _canary:
        _canary.clear()
        _canary[pid] = _CANARY_FLOOR + int.from_bytes(os.urandom(5), "big")
    return _canary[pid]


def plant_canary(descriptor: int) -> int | None:
    """Take the canary lock through SQLite's own descriptor; returns its offset, or None where it cannot be seen."""
    if fcntl is None or not sys.platform.startswith("linux"):
        return None
    byte = canary_byte()
    fcntl.fcntl(descriptor, fcntl.F_SETLK, _FLOCK.pack(fcntl.F_RDLCK, 0, byte, 1, 0))
    return byte if own_lock(descriptor, byte) == "read" else None
