"""One writer at a time for a file that this program keeps beside a store, on every system.

Invariant: `lock_alone` returns only when no other process holds the same file through this module; closing the
descriptor releases it, however the process ends. Flags that a system lacks are 0 there, so importing and opening work.

Not for: database files, whose locks are SQLite's. A lock file made with O_EXCL was rejected: a kill leaves it behind.
"""

from __future__ import annotations

import errno
import os
from types import ModuleType

try:
    import fcntl
except ImportError:  # Windows
    _posix: ModuleType | None = None
else:
    _posix = fcntl

CLOSE_ON_EXEC: int = getattr(os, "O_CLOEXEC", 0)
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
# Without it Windows would turn each line end into two bytes.
BINARY: int = getattr(os, "O_BINARY", 0)

# Far behind every content: locked bytes of Windows cannot be read by others.
_FAR_BYTE = 0x7FFF_FFF0
# What `msvcrt.locking` says when it has tried ten times.
_STILL_HELD = (errno.EACCES, errno.EDEADLK)


def lock_alone(descriptor: int) -> None:
    """Wait until this process alone holds the file behind `descriptor`; closing that releases it."""
    if _posix is not None:
        _posix.flock(descriptor, _posix.LOCK_EX)
    else:
        import msvcrt

        _lock_far_byte(descriptor, msvcrt)


def _lock_far_byte(descriptor: int, system: ModuleType) -> None:
    """Lock one byte by way of `msvcrt`, which gives up after about ten seconds; it is asked again until it is there."""
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
    try:
        while True:
            try:
                system.locking(descriptor, system.LK_LOCK, 1)
                return
            except OSError as error:
                if error.errno not in _STILL_HELD:
                    raise
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)


def try_lock_alone(descriptor: int) -> bool:
    """Lock the file behind `descriptor` if nobody has it; False at once when somebody does."""
    try:
        if _posix is not None:
            _posix.flock(descriptor, _posix.LOCK_EX | _posix.LOCK_NB)
        else:
            import msvcrt

            _try_far_byte(descriptor, msvcrt)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, *_STILL_HELD):
            return False
        raise
    return True


def _try_far_byte(descriptor: int, system: ModuleType) -> None:
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
    try:
        system.locking(descriptor, system.LK_NBLCK, 1)
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)
