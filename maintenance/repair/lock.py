"""One repair of a store at a time, by a lock of the kernel.

Invariant: the lock is the kernel's on `<db>.hermes-state.repair.lock`, never the presence of that file, which stays
behind on purpose: a kill leaves nothing that anybody would have to wait for. The PID inside is only who to name.

Not for: keeping other programs out of the store; that is SQLite's exclusive lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_state.errors import LockTimeout
from hermes_state.file_lock import CLOSE_ON_EXEC, NO_LINK, try_lock_alone
from hermes_state.shell_words import shell_word
from maintenance.beside import share_like_store


def lock_path(db: Path) -> Path:
    """The lock file of a store's repairs."""
    real = Path(os.path.realpath(db))
    return real.with_name(f"{real.name}.hermes-state.repair.lock")


@contextmanager
def repair_lock(db: Path) -> Iterator[None]:
    """Be the one repair of this store. Raises `LockTimeout` at once, naming who is, when there is another."""
    path = lock_path(db)
    existed = path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC | NO_LINK, 0o600)
    try:
        if not existed:
            share_like_store(descriptor, db)
        if not try_lock_alone(descriptor):
            raise _busy(db, descriptor)
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps({"pid": os.getpid()}).encode() + b"\n")
        yield
    finally:
        os.close(descriptor)


def running_repair(db: Path) -> int | None:
    """PID of the repair that has the lock now, 0 when it has not said; None when there is none."""
    try:
        descriptor = os.open(lock_path(db), os.O_RDWR | CLOSE_ON_EXEC | NO_LINK)
    except OSError:
        return None  # no such file, or not ours to lock: then nobody of this user repairs
    try:
        return None if try_lock_alone(descriptor) else _pid(descriptor)
    finally:
        os.close(descriptor)


def _pid(descriptor: int) -> int:
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        return int(json.loads(os.read(descriptor, 200) or b"{}").get("pid", 0))
    except (ValueError, AttributeError):
        return 0


def _busy(db: Path, descriptor: int) -> LockTimeout:
    pid = _pid(descriptor)
    who = "Another process" if not pid else f"PID {pid} ({_command(pid)})"
    return LockTimeout(
        f"{who} is repairing {db} now, and two repairs at once would undo each other. Nothing was changed.",
        hint=f"Wait for it, then run `hermes-state doctor --db {shell_word(db)}`.",
        path=db, holders=(), waited_seconds=0.0, pid=pid or None,
    )


def _command(pid: int) -> str:
    from lockowners.process import read_process

    found = read_process(Path("/proc"), pid)
    return "unknown command" if found is None else found.command
