"""Does the kernel still show the locks that SQLite believes this process has?

Invariant: `F_OFD_GETLK` on SQLite's own descriptor reports this process's own POSIX locks as a conflict, so the
answer comes from the kernel and costs about 1.5 microseconds. When another library in the process closes any
descriptor of the same file, the kernel drops our locks without a word; SQLite cannot see it, this can.

Not for: other processes' locks (see `lockowners`). Without OFD locks (macOS, Windows) the answer is None, "unknown".
"""

from __future__ import annotations

import errno
import struct
import sys

try:
    import fcntl
except ImportError:  # Windows: SQLite uses other locks there
    fcntl = None  # type: ignore[assignment]

_F_OFD_GETLK = 36  # include/uapi/asm-generic/fcntl.h
_FLOCK = struct.Struct("hhqqi4x")
_QUERIES: dict[int, bytes] = {}

WAL_WRITE_BYTE = 120
WAL_ALIVE_BYTE = 128  # SQLite's dead-man switch: every connection that uses the WAL index keeps it for reading
PENDING_BYTE = 0x40000000
RESERVED_BYTE = PENDING_BYTE + 1
SHARED_FIRST = PENDING_BYTE + 2
SHARED_BYTES = 510


def own_lock(descriptor: int, byte: int) -> str | None:
    """ "write", "read" or "none" for the lock of this process on `byte`; None where the kernel cannot tell."""
    if fcntl is None or not sys.platform.startswith("linux"):
        return None
    query = _QUERIES.get(byte)
    if query is None:
        query = _QUERIES[byte] = _FLOCK.pack(fcntl.F_WRLCK, 0, byte, 1, 0)
    try:
        kind = _FLOCK.unpack(fcntl.fcntl(descriptor, _F_OFD_GETLK, query))[0]
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None  # a kernel or sandbox without OFD locks
        raise
    if kind == fcntl.F_UNLCK:
        return "none"
    return "write" if kind == fcntl.F_WRLCK else "read"


def others_lock(descriptor: int, byte: int) -> bool | None:
    """True when another process has a lock on `byte`, False when none has, None where the kernel cannot tell."""
    if fcntl is None:
        return None
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, byte, 1, 0))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
