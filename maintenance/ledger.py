"""The record of deletes: one JSON line a batch in `<db>.hermes-state.ledger.jsonl`, beside a foreign store.

Invariant: lines are only ever appended, whole, synced, by one writer at a time; nothing here shortens or rewrites the
file. A line cut short by a crash is closed by the next append and skipped by readers. A ledger that cannot be written
stops the delete it should record: append before the rows go, in the same step of the run.

Not for: undoing. A table inside the foreign database was rejected: a restore of that database would lose it.
"""

from __future__ import annotations

import getpass
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_state.errors import LedgerDamaged
from hermes_state.file_lock import BINARY, CLOSE_ON_EXEC, NO_LINK, lock_alone
from hermes_state.flushing import sync_folder
from maintenance.beside import share_like_store, why_no_file


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One batch of deleted sessions."""

    at: str  # when, RFC 3339 UTC
    verb: str  # which command, "sessions prune"
    user: str  # who, by name when the system knows one
    uid: int  # who, by number
    pid: int  # the process
    command: tuple[str, ...]  # its command line
    filters: Mapping[str, Any]  # why: the filters as given
    reason: str  # why, in words
    sessions: tuple[str, ...]  # ids, all of them
    messages: int  # message rows of the batch
    run: str  # the same for all batches of one run


def ledger_path(db: Path) -> Path:
    """The ledger of a store; one store has one, whatever link names it."""
    real = db.resolve()
    return real.with_name(f"{real.name}.hermes-state.ledger.jsonl")


def new_entry(
    *,
    verb: str,
    reason: str,
    filters: Mapping[str, Any],
    sessions: Sequence[str],
    messages: int,
    run: str,
    now: float,
) -> LedgerEntry:
    """An entry by this process, now."""
    return LedgerEntry(
        at=datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        verb=verb,
        user=_user_name(),
        uid=os.getuid() if hasattr(os, "getuid") else -1,
        pid=os.getpid(),
        command=tuple(sys.argv),
        filters=dict(filters),
        reason=reason,
        sessions=tuple(sessions),
        messages=messages,
        run=run,
    )


def append(db: Path, entry: LedgerEntry) -> Path:
    """Add one line and wait until it is on the disk; returns the ledger's path."""
    path = ledger_path(db)
    record = {
        "at": entry.at,
        "verb": entry.verb,
        "user": entry.user,
        "uid": entry.uid,
        "pid": entry.pid,
        "command": list(entry.command),
        "reason": entry.reason,
        "filters": dict(entry.filters),
        "run": entry.run,
        "session_count": len(entry.sessions),
        "message_count": entry.messages,
        "sessions": list(entry.sessions),
    }
    line = json.dumps(record).encode() + b"\n"
    _require_file(path)
    try:
        existed = path.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY | CLOSE_ON_EXEC | NO_LINK
        descriptor = os.open(path, flags, 0o600)
        try:
            if not existed:
                share_like_store(descriptor, db)
            _append_line(descriptor, line, path)
        finally:
            os.close(descriptor)
        if not existed:
            sync_folder(path.parent)
    except OSError as error:
        raise LedgerDamaged(
            f"The delete ledger {path} cannot be written: {error.strerror}.",
            hint="Make it a writable file again; nothing is deleted without a record of it.",
            path=str(path),
        ) from error
    return path


def read(db: Path) -> Iterator[dict[str, Any]]:
    """The records, oldest first. Lines that a crash cut short are left out."""
    path = ledger_path(db)
    _require_file(path)
    try:
        with path.open("rb") as lines:
            for line in lines:
                record = _record(line)
                if record is not None:
                    yield record
    except FileNotFoundError:
        return
    except OSError as error:
        raise LedgerDamaged(
            f"The delete ledger {path} cannot be read: {error.strerror}.", hint="", path=str(path)
        ) from error


def deleted_at(db: Path) -> dict[str, str]:
    """Every session that a line names, with the time of the newest such line. One that is still there was kept."""
    return {
        str(key): str(record.get("at", "")) for record in read(db) for key in record.get("sessions") or () if key
    }


def _require_file(path: Path) -> None:
    problem = why_no_file(path)
    if problem:
        raise LedgerDamaged(
            f"The delete ledger {path} {problem}.",
            hint="Move it away; nothing is deleted without a record of it.",
            path=str(path),
        )


def _append_line(descriptor: int, line: bytes, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise LedgerDamaged(f"The delete ledger {path} is not a file.", hint="Move it away.", path=str(path))
    lock_alone(descriptor)
    size = os.fstat(descriptor).st_size
    if size and _last_byte(descriptor, size) != b"\n":
        line = b"\n" + line
    written = os.write(descriptor, line)
    while written < len(line):
        written += os.write(descriptor, line[written:])
    os.fsync(descriptor)


def _last_byte(descriptor: int, size: int) -> bytes:
    # Appending writes go to the end wherever the position is; `os.pread` does not exist on Windows.
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # No name in the environment and none for the number: containers run like that. The number is in the entry.
        return ""
