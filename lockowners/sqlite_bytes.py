"""Which SQLite lock a byte range of the main file or of the WAL index is.

Invariant: one process' rows are read together, because the kernel merges them and because the same byte means different
things beside others (a write lock on read mark 0 is a reader's only when no checkpoint is running in that process).

Not for: locks of other programs on other bytes; they make their process a holder but have no SQLite name.
Rejected: reporting every byte. SHARED under RESERVED, or the open-marker under a writer, says nothing new.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lockowners.lock_table import LockLine
from lockowners.records import LockMode, LockName

PENDING = 0x40000000
RESERVED = PENDING + 1
SHARED_FIRST = PENDING + 2
SHARED_LAST = SHARED_FIRST + 509

SHM_WRITE = 120
SHM_CHECKPOINT = 121
SHM_RECOVER = 122
SHM_READ_FIRST = 123
SHM_READ_LAST = 127
SHM_OPEN = 128

# Order in which owners are listed: who blocks writers first.
RANK: dict[LockName, int] = {
    "exclusive": 0,
    "pending": 1,
    "wal-writer": 2,
    "reserved": 3,
    "recovery": 4,
    "checkpointer": 5,
    "reader": 6,
    "shared": 7,
    "open": 8,
}


@dataclass(frozen=True, kw_only=True)
class NamedLock:
    """One SQLite lock."""

    # SQLite's name.
    lock: LockName
    # How it is held.
    mode: LockMode
    # Read mark for "reader".
    slot: int | None = None


def _held(lines: Iterable[LockLine], first: int, last: int | None = None) -> LockMode | None:
    modes = {line.mode for line in lines if line.overlaps(first, first if last is None else last)}
    return "write" if "write" in modes else "read" if modes else None


def name_locks(main: Iterable[LockLine], shm: Iterable[LockLine]) -> tuple[NamedLock, ...]:
    """The SQLite locks that one process holds, from its rows on the main file and on the WAL index."""
    main, shm = tuple(main), tuple(shm)
    found = _wal_locks(shm)
    shared = _held(main, SHARED_FIRST, SHARED_LAST)
    if shared == "write":
        # Rollback EXCLUSIVE and locking_mode=EXCLUSIVE look the same here, and shut others out alike. In exclusive
        # locking mode the WAL write lock is not shown, so the process may be writing or not.
        found.append(NamedLock(lock="exclusive", mode="write"))
    elif _held(main, PENDING) == "write":
        found.append(NamedLock(lock="pending", mode="write"))
    elif _held(main, RESERVED) == "write":
        found.append(NamedLock(lock="reserved", mode="write"))
    elif shared == "read" and not shm:
        found.append(NamedLock(lock="shared", mode="read"))
    elif (main or shm) and not found:
        found.append(NamedLock(lock="open", mode="read"))
    return tuple(sorted(found, key=lambda named: (RANK[named.lock], named.slot or 0)))


def _wal_locks(shm: tuple[LockLine, ...]) -> list[NamedLock]:
    found: list[NamedLock] = []
    single: tuple[tuple[int, LockName], ...] = (
        (SHM_WRITE, "wal-writer"), (SHM_CHECKPOINT, "checkpointer"), (SHM_RECOVER, "recovery")
    )  # fmt: skip
    for byte, name in single:
        mode = _held(shm, byte)
        if mode is not None:
            found.append(NamedLock(lock=name, mode=mode))
    working = any(named.lock in ("checkpointer", "wal-writer", "recovery") for named in found)
    for byte in range(SHM_READ_FIRST, SHM_READ_LAST + 1):
        mode = _held(shm, byte)
        # A checkpoint takes read marks for writing to keep readers off them, and a writer that restarts the WAL too.
        if mode == "read" or (mode == "write" and not working):
            found.append(NamedLock(lock="reader", mode=mode, slot=byte - SHM_READ_FIRST))
    return found


def name_range(kind: str, line: LockLine) -> NamedLock | None:
    """The SQLite name of one row taken alone, for a request that waits; None when it is not one of SQLite's bytes."""
    if kind == "shm":
        found = _wal_locks((line,))
        if found:
            return found[0]
        return NamedLock(lock="open", mode=line.mode) if line.overlaps(SHM_OPEN, SHM_OPEN) else None
    if kind != "main":
        return None
    if line.overlaps(SHARED_FIRST, SHARED_LAST):
        return NamedLock(lock="exclusive" if line.mode == "write" else "shared", mode=line.mode)
    if line.overlaps(PENDING, PENDING):
        return NamedLock(lock="pending", mode=line.mode)
    if line.overlaps(RESERVED, RESERVED):
        return NamedLock(lock="reserved", mode=line.mode)
    return None
