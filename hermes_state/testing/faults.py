"""Failing file operations: the n-th read, write, sync, truncate, open or delete of a database's files goes wrong.

Invariant: for the `with` block SQLite's default VFS answers for the system, so every connection that opens a file by
its path gets the planned result: those of the engine too, and nothing in the engine knows. Files opened before the
block are not reached. What is not planned is passed on as it is, and the file descriptors stay SQLite's own. Of the
WAL index (-shm), which is memory, its mappings and locks can fail.

Not for: files written without SQLite (see `power_loss`). An argument of the engine that names a VFS was rejected:
production code would carry it for tests only.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import apsw

from hermes_state.errors import InvalidInput
from hermes_state.testing.file_hooks import Answer, FileHooks, Hooks, hooked

__all__ = [
    "OPERATIONS", "ROLES", "Action", "Fault", "Injection", "Operation", "Role", "command", "dumps", "inject", "loads",
]

Operation = Literal[
    "open", "read", "write", "sync", "truncate", "size", "delete", "lock", "map_index", "lock_index"
]
Role = Literal["main", "wal", "journal", "other"]
Action = Literal["error", "full", "torn", "short", "kill", "torn_kill"]
ROLES: tuple[Role, ...] = get_args(Role)
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

_CODES: dict[str, int] = {
    "open": apsw.SQLITE_CANTOPEN, "read": apsw.SQLITE_IOERR_READ, "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC, "truncate": apsw.SQLITE_IOERR_TRUNCATE, "size": apsw.SQLITE_IOERR_FSTAT,
    "delete": apsw.SQLITE_IOERR_DELETE, "lock": apsw.SQLITE_IOERR_LOCK,
    "map_index": apsw.SQLITE_IOERR_SHMMAP, "lock_index": apsw.SQLITE_IOERR_SHMLOCK,
}
_ROLE_FLAGS: tuple[tuple[int, Role], ...] = (
    (apsw.SQLITE_OPEN_MAIN_DB, "main"), (apsw.SQLITE_OPEN_WAL, "wal"), (apsw.SQLITE_OPEN_MAIN_JOURNAL, "journal"),
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong: the `number`-th `operation` on a file of `role`, counted from 1 in each process."""

    operation: Operation
    number: int
    # None: any of the files
    role: Role | None = None
    # error: the I/O error of the operation · full: no space left · torn: half of a write is in the file, then an error
    # short: half of a write, then no space; a read that finds nothing · kill, torn_kill (after half a write): SIGKILL
    action: Action = "error"
    # how many operations fail from there on; None: every one until the block ends
    times: int | None = 1
    # pattern for the base name of the file, such as "state.db*"; None: every file
    name: str | None = None


class Injection:
    """What happens in a `with inject(...)` block: counts, and which faults came."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            _check(fault)
        self.faults = tuple(faults)
        # (role, operation) -> how many there were, failed ones included
        self.counts: Counter[tuple[str, str]] = Counter()
        # the faults that came, with the base name of the file, in order
        self.hits: list[tuple[Fault, str]] = []
        self._seen = [0] * len(self.faults)
        self._lock = threading.Lock()

    @property
    def errno(self) -> int:
        """What the system said at the last fault, 0 before the first one."""
        if not self.hits:
            return 0
        last = self.hits[-1][0]
        if last.action not in ("full", "short"):
            return errno.EIO
        return 0 if last.operation == "read" else errno.ENOSPC  # the end of a file is no error

    @property
    def hit(self) -> bool:
        """Whether anything went wrong yet."""
        return bool(self.hits)

    def met(self, fault: Fault) -> int:
        """How many operations were of the kind, role and name of one of the faults; its `number` may be up to that."""
        with self._lock:
            return self._seen[self.faults.index(fault)]

    def plan(self, operation: Operation, role: Role, path: str) -> Fault | None:
        """Count one operation and give the fault that is due, if any. For the shim."""
        name = os.path.basename(path)
        with self._lock:
            self.counts[role, operation] += 1
            due = None
            for place, fault in enumerate(self.faults):
                if fault.operation != operation or fault.role not in (None, role):
                    continue
                if fault.name is not None and not fnmatch.fnmatch(name, fault.name):
                    continue
                self._seen[place] += 1
                last = None if fault.times is None else fault.number + fault.times - 1
                if self._seen[place] >= fault.number and (last is None or self._seen[place] <= last):
                    due = due or fault
            if due is not None:
                self.hits.append((due, name))
            return due


@contextmanager
def inject(*faults: Fault) -> Iterator[Injection]:
    """Let the faults happen to every file that this process opens through SQLite within the block.

    Without a fault it only counts. Close what was opened in the block before it ends. Raises `InvalidInput`.

    >>> with inject(Fault(operation="sync", number=1, role="wal")) as injection:
    ...     pass
    >>> injection.hit
    False
    """
    injection = Injection(faults)
    with hooked(_FaultHooks(injection), lambda: injection.errno):
        yield injection


def command(faults: Sequence[Fault], *program: str) -> list[str]:
    """The command line that runs a Python program (`-m module …`, `-c code …` or `script.py …`) under the faults.

    Every process counts for itself, and processes that the program starts are not reached.
    """
    return [sys.executable, "-P", "-m", "hermes_state.testing.run_with_faults", dumps(faults), *program]


def dumps(faults: Sequence[Fault]) -> str:
    """The faults as JSON, for another process."""
    return json.dumps([asdict(fault) for fault in faults])


def loads(text: str) -> list[Fault]:
    """The faults that `dumps` wrote. Raises `InvalidInput`."""
    try:
        faults = [Fault(**entry) for entry in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{text!r} is no list of faults.", hint="Use `faults.dumps`.") from error
    for fault in faults:
        _check(fault)
    return faults


def role_of(flags: int) -> Role:
    """Which of a database's files is opened with these SQLITE_OPEN_ flags."""
    return next((role for flag, role in _ROLE_FLAGS if flags & flag), "other")


def _check(fault: Fault) -> None:
    known = (
        (fault.operation, OPERATIONS), (fault.action, get_args(Action)), (fault.role, (None, *ROLES)),
    )
    for value, allowed in known:
        if value not in allowed:
            raise InvalidInput(f"{value!r} is none of {', '.join(map(str, allowed))}.", value=value)
    halves = fault.action in ("torn", "short", "torn_kill")
    if fault.number < 1 or (halves and fault.operation not in ("write", "read")):
        raise InvalidInput(f"A fault cannot be {fault}.", hint="Numbers begin at 1; only writes can be torn.")


def _code(fault: Fault) -> int:
    if fault.operation == "read" and fault.action == "short":
        return apsw.SQLITE_IOERR_SHORT_READ
    return apsw.SQLITE_FULL if fault.action in ("full", "short") else _CODES[fault.operation]


class _FaultFile(FileHooks):
    def __init__(self, injection: Injection, role: Role, path: str) -> None:
        self._injection, self._role, self._path = injection, role, path
        self._dying = False

    def _due(self, operation: Operation) -> Fault | None:
        fault = self._injection.plan(operation, self._role, self._path)
        if fault is not None and fault.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return fault

    def _answer(self, operation: Operation) -> Answer:
        fault = self._due(operation)
        return None if fault is None else _code(fault)

    def read(self) -> Answer:
        return self._answer("read")

    def write(self, size: int) -> tuple[int, int] | None:
        fault = self._due("write")
        if fault is None:
            return None
        self._dying = fault.action == "torn_kill"
        return (size // 2 if fault.action in ("torn", "short", "torn_kill") else 0, _code(fault))

    def cut(self) -> None:
        if self._dying:
            os.kill(os.getpid(), signal.SIGKILL)

    def truncate(self) -> Answer:
        return self._answer("truncate")

    def sync(self) -> Answer:
        return self._answer("sync")

    def size(self) -> Answer:
        return self._answer("size")

    def lock(self) -> Answer:
        return self._answer("lock")

    def map_index(self) -> Answer:
        return self._answer("map_index")

    def lock_index(self) -> Answer:
        return self._answer("lock_index")


class _FaultHooks(Hooks):
    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    def _answer(self, operation: Operation, role: Role, path: str) -> Answer:
        fault = self._injection.plan(operation, role, path)
        if fault is not None and fault.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return None if fault is None else _code(fault)

    def open(self, path: str, flags: int) -> Answer:
        return self._answer("open", role_of(flags), path)

    def opened(self, path: str, flags: int) -> FileHooks:
        return _FaultFile(self._injection, role_of(flags), path)

    def delete(self, path: str) -> Answer:
        return self._answer("delete", role_by_name(path), path)


def role_by_name(path: Path | str) -> Role:
    """Which of a database's files the name says it is."""
    text = str(path)
    return "wal" if text.endswith("-wal") else "journal" if text.endswith("-journal") else "main"
