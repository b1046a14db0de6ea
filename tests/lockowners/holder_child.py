"""The child side of `holding`: brings itself into one state on a store, says "ready", waits for its input to end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import apsw


def gate() -> None:
    """Report the state and stay in it."""
    print("ready", flush=True)
    sys.stdin.read()


def opened(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(10_000)
    return connection


def run(connection: apsw.Connection, sql: str) -> list[tuple[object, ...]]:
    return connection.execute(sql).fetchall()


def make(path: str, mode: str) -> None:
    connection = opened(path)
    run(connection, f"PRAGMA journal_mode={mode}")
    run(connection, "CREATE TABLE t(x)")
    run(connection, "INSERT INTO t VALUES (1)")
    connection.close()


def never_read(path: str) -> None:
    connection = opened(path)
    gate()
    connection.close()


def idle(path: str) -> None:
    connection = opened(path)
    run(connection, "SELECT * FROM t")
    gate()
    connection.close()


def reading(path: str) -> None:
    connection = opened(path)
    run(connection, "BEGIN")
    run(connection, "SELECT * FROM t")
    gate()
    run(connection, "COMMIT")
    connection.close()


def writing(path: str) -> None:
    connection = opened(path)
    run(connection, "BEGIN IMMEDIATE")
    run(connection, "INSERT INTO t VALUES (2)")
    gate()
    run(connection, "ROLLBACK")
    connection.close()


class _GatedFile(apsw.VFSFile):
    """Stops once, at the first write to the main file after it was armed, or at the first read of the WAL."""

    armed = ""

    def __init__(self, name: str, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        wal = flags[0] & apsw.SQLITE_OPEN_WAL
        self.role = "wal" if wal else "main" if flags[0] & apsw.SQLITE_OPEN_MAIN_DB else ""

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.role == "main" and _GatedFile.armed == "main":
            _GatedFile.armed = ""
            gate()
        super().xWrite(data, offset)

    def xRead(self, amount: int, offset: int) -> bytes:
        if self.role == "wal" and _GatedFile.armed == "wal":
            _GatedFile.armed = ""
            gate()
        return super().xRead(amount, offset)


class _GatedVFS(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("gated", "unix")

    def xOpen(self, name: str, flags: list[int]) -> _GatedFile:
        return _GatedFile(name, flags)


def checkpointing(path: str) -> None:
    vfs = _GatedVFS()
    connection = apsw.Connection(path, vfs="gated")
    run(connection, "INSERT INTO t VALUES (3)")
    _GatedFile.armed = "main"
    run(connection, "PRAGMA wal_checkpoint(PASSIVE)")
    connection.close()
    del vfs


def checkpointing_full(path: str) -> None:
    reader, writer = opened(path), opened(path)
    run(reader, "BEGIN")
    run(reader, "SELECT * FROM t")
    run(writer, "INSERT INTO t VALUES (4)")
    waits = []

    def busy(_tries: int) -> bool:
        if not waits:
            waits.append(1)
            gate()
        return False

    writer.set_busy_handler(busy)
    run(writer, "PRAGMA wal_checkpoint(FULL)")
    run(reader, "COMMIT")
    writer.close()
    reader.close()


def recovering(path: str) -> None:
    """Needs a WAL that a killed process left behind."""
    vfs = _GatedVFS()
    _GatedFile.armed = "wal"
    connection = apsw.Connection(path, vfs="gated")
    run(connection, "SELECT * FROM t")
    connection.close()
    del vfs


def leave_wal(path: str) -> None:
    connection = opened(path)
    run(connection, "INSERT INTO t VALUES (5)")
    os._exit(0)


def unlinked(path: str) -> None:
    connection = opened(path)
    run(connection, "SELECT * FROM t")
    os.unlink(path + "-wal")
    os.unlink(path + "-shm")
    gate()
    os._exit(0)


def unlinked_writing(path: str) -> None:
    connection = opened(path)
    run(connection, "SELECT * FROM t")
    os.unlink(path + "-wal")
    os.unlink(path + "-shm")
    run(connection, "BEGIN IMMEDIATE")
    gate()
    os._exit(0)


def forked(path: str) -> None:
    """The process that opened the store is gone; its child has the descriptors and owns no lock."""
    connection = opened(path)
    run(connection, "SELECT * FROM t")
    reading_end, writing_end = os.pipe()
    if os.fork():
        os.close(writing_end)
        os._exit(0)
    os.close(writing_end)
    # End of file: the parent is gone, and with it its locks.
    os.read(reading_end, 1)
    print("pid", os.getpid(), flush=True)
    gate()
    os._exit(0)


def exclusive_unread(path: str) -> None:
    connection = opened(path)
    run(connection, "PRAGMA locking_mode=EXCLUSIVE")
    run(connection, "SELECT * FROM t")
    gate()
    connection.close()


def exclusive_read(path: str) -> None:
    connection = opened(path)
    run(connection, "SELECT * FROM t")
    run(connection, "PRAGMA locking_mode=EXCLUSIVE")
    run(connection, "BEGIN EXCLUSIVE")
    run(connection, "COMMIT")
    gate()
    connection.close()


def begin_exclusive(path: str) -> None:
    connection = opened(path)
    run(connection, "BEGIN EXCLUSIVE")
    gate()
    run(connection, "ROLLBACK")
    connection.close()


def pending(path: str) -> None:
    """A rollback-mode commit that waits for a reader."""
    reader, writer = opened(path), opened(path)
    run(reader, "BEGIN")
    run(reader, "SELECT * FROM t")
    run(writer, "BEGIN IMMEDIATE")
    run(writer, "INSERT INTO t VALUES (6)")
    waits = []

    def busy(_tries: int) -> bool:
        if not waits:
            waits.append(1)
            gate()
        return False

    writer.set_busy_handler(busy)
    try:
        run(writer, "COMMIT")
    except apsw.BusyError:
        run(writer, "ROLLBACK")
    writer.close()
    reader.close()


def bare_descriptor(path: str) -> None:
    """No SQLite: a program that has the main file open for reading."""
    descriptor = os.open(path, os.O_RDONLY)
    gate()
    os.close(descriptor)


def unreadable_idle(path: str) -> None:
    """A process that its own user cannot look into, as after a change of user without exec."""
    import ctypes

    connection = opened(path)
    run(connection, "SELECT * FROM t")
    assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
    gate()
    connection.close()


def ofd_lock(path: str) -> None:
    """An OFD read lock on the SHARED range, through a descriptor of its own."""
    import fcntl
    import struct

    descriptor = os.open(path, os.O_RDONLY)
    request = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, 0x40000002, 510, 0)
    fcntl.fcntl(descriptor, 37, request)  # F_OFD_SETLK
    gate()
    os.close(descriptor)


def leader_ended(path: str) -> None:
    """The first thread is gone, another one goes on with the store open."""
    import ctypes
    import threading

    connection = opened(path)

    def stay() -> None:
        gate()
        connection.close()
        os._exit(0)

    threading.Thread(target=stay).start()
    ctypes.CDLL(None).syscall(60, 0)  # exit of this thread only


STATES: dict[str, Callable[[str], None]] = {
    "make-wal": lambda path: make(path, "wal"),
    "make-delete": lambda path: make(path, "delete"),
    "never-read": never_read,
    "idle": idle,
    "reading": reading,
    "writing": writing,
    "checkpointing": checkpointing,
    "checkpointing-full": checkpointing_full,
    "recovering": recovering,
    "leave-wal": leave_wal,
    "unlinked": unlinked,
    "unlinked-writing": unlinked_writing,
    "forked": forked,
    "exclusive-unread": exclusive_unread,
    "exclusive-read": exclusive_read,
    "begin-exclusive": begin_exclusive,
    "pending": pending,
    "bare-descriptor": bare_descriptor,
    "unreadable-idle": unreadable_idle,
    "ofd-lock": ofd_lock,
    "leader-ended": leader_ended,
}

if __name__ == "__main__":
    STATES[sys.argv[1]](sys.argv[2])
