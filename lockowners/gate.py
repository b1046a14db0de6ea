"""Questions to the kernel about one open file, answered atomically: F_GETLK, F_OFD_GETLK and a file lease.

Invariant: only descriptors given by the caller are used, SQLite's own; none is opened, duplicated or closed, for
closing any descriptor of the file would drop SQLite's locks in this process. Nothing is locked. `sole_opener` takes a
lease for a few microseconds: it conflicts with no lock, and an open by others meanwhile waits that long.

Not for: naming everybody. A probe names one conflicting owner; 0 is an owner outside our PID namespace, -1 an OFD
lock. Rejected: trying to take the lock, which would disturb the holder's next attempt.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from typing import Literal

from lockowners.errors import ProbeUnsupported

# struct flock of 64-bit Linux: type, whence, start, length, pid.
_LAYOUT = "hhqqi0q"
_SUPPORTED = sys.platform == "linux" and struct.calcsize("P") == 8
_F_OFD_GETLK = 36
_F_SETSIG = 10


def _probe(command: int, descriptor: int, kind: int, start: int, length: int) -> tuple[int, int]:
    """(type, pid) of the first lock that conflicts with a lock of `kind` on these bytes."""
    import fcntl

    request = struct.pack(_LAYOUT, kind, os.SEEK_SET, start, length, 0)
    found, _, _, _, pid = struct.unpack(_LAYOUT, fcntl.fcntl(descriptor, command, request))
    return found, pid


def conflicting_lock(descriptor: int, start: int, length: int = 1) -> int | None:
    """The pid of a process that holds any lock on these bytes, other than this one.

    None: nobody. 0: a process outside our PID namespace. -1: an OFD lock, which may also be one of this process.
    """
    if not _SUPPORTED:
        raise ProbeUnsupported("lock probes are only known for 64-bit Linux")
    import fcntl

    found, pid = _probe(fcntl.F_GETLK, descriptor, fcntl.F_WRLCK, start, length)
    return None if found == fcntl.F_UNLCK else pid


def own_lock(descriptor: int, byte: int) -> Literal["write", "read"] | None:
    """The POSIX lock that this process holds on one byte. The kernel is asked, not SQLite.

    F_OFD_GETLK reports our own POSIX locks as conflicts, in 1.5 us. Where others share the byte for reading it may name
    one of them; then the list of our own locks in fdinfo decides.
    """
    if not _SUPPORTED:
        raise ProbeUnsupported("lock probes are only known for 64-bit Linux")
    import fcntl

    found, pid = _probe(_F_OFD_GETLK, descriptor, fcntl.F_WRLCK, byte, 1)
    if found == fcntl.F_UNLCK:
        return None
    if pid == os.getpid():
        return "write" if found == fcntl.F_WRLCK else "read"
    if found == fcntl.F_WRLCK:
        return None
    return _listed_lock(descriptor, byte)


def _listed_lock(descriptor: int, byte: int) -> Literal["write", "read"] | None:
    from pathlib import Path

    from lockowners.descriptors import listed_locks

    # Rows of our own table are ours by construction, whatever PID namespace /proc counts in.
    rows = listed_locks(Path("/proc"), "self", [descriptor])
    modes = {line.mode for line in rows if line.kind == "POSIX" and line.overlaps(byte, byte)}
    return "write" if "write" in modes else "read" if modes else None


def sole_opener(descriptor: int) -> bool | None:
    """Whether this descriptor's open file is the only one of its inode on this machine.

    A write lease is granted only then, whoever the others are, in every PID and mount namespace, memory maps and
    descriptors in flight included. It says nothing about children of this process that inherited this very open file.
    None: the file system or our rights do not allow a lease.
    """
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        # Should another process open the file in these microseconds, the kernel signals us. The default signal, SIGIO,
        # ends a process; SIGURG is ignored by default.
        fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    except OSError:
        return None
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True
