"""Making a new native store.

Invariant: the file appears at its path whole and only where nothing was: it is built under a private name, synced, and
moved there without replacing anything, so two processes that create at once end with one store, and a killed one leaves
none. Leftovers of an earlier store (a WAL without its database, an empty file) are never built over.

Not for: adopting a file of hermes-agent. Creating in place was rejected: an opener could meet half a schema.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import stat
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from hermes_state.clock import SYSTEM, Clock
from hermes_state.engine.files import new_private_file, real_path
from hermes_state.engine.filesystem import check_wal_allowed
from hermes_state.engine.pragmas import set_pragma
from hermes_state.engine.schema import STATE, Layout
from hermes_state.engine.translate import system_error, translated
from hermes_state.engine.whole_file import copy_back
from hermes_state.errors import Refused
from hermes_state.flushing import sync_folder
from hermes_state.shell_words import shell_word

_RENAME_NOREPLACE = 1  # linux/fs.h
_AT_FDCWD = -100


def create_store(
    path: Path | str, *, clock: Clock = SYSTEM, adopted_from: Mapping[str, Any] | None = None, folder: bool = True,
    layout: Layout = STATE,
) -> bool:
    """Make an empty native store at `path`; False when another process made one there meanwhile.

    `folder` makes a missing folder with mode 0700; an existing one is left as it is. Raises `Refused` over leftovers
    and on file systems where WAL is unsafe, `CannotOpen`, `DiskFull`.
    """
    target = real_path(path)
    if folder:
        _make_folder(target.parent)
    refuse_leftovers(target)
    if target.exists():
        return False
    check_wal_allowed(target.parent)
    staged = target.with_name(f".{target.name}.{secrets.token_hex(6)}.new")
    new_private_file(staged, named=target)
    try:
        fill_new_store(staged, clock=clock, adopted_from=adopted_from, named=target, layout=layout)
        _sync(staged)
        return publish(staged, target)
    finally:
        for name in (staged, Path(f"{staged}-wal"), Path(f"{staged}-shm")):
            name.unlink(missing_ok=True)


def fill_new_store(
    path: Path, *, clock: Clock = SYSTEM, adopted_from: Mapping[str, Any] | None = None, page_size: int = 4096,
    journal_mode: str = "wal", named: Path | None = None, layout: Layout = STATE,
) -> None:
    """Put schema, identity and ledger into the new private file `path`, which nobody else knows.

    `page_size` and `journal_mode`: those of the store whose content it will replace; the backup API changes neither.
    `named`: what an error calls the file.
    """
    from hermes_state import __version__

    now = clock.now()
    with translated(named or path, "creating"):
        connection = apsw.Connection(str(path))
    try:
        with translated(named or path, "creating", connection):  # while it is open, it can say what the system said
            pragmas = ("auto_vacuum = incremental", f"application_id = {layout.application_id}")
            for pragma in (f"page_size = {page_size}", *pragmas, f"journal_mode = {journal_mode}"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("BEGIN IMMEDIATE").fetchall()
            connection.execute(layout.sql).fetchall()
            connection.execute(
                "INSERT INTO store (one, store_id, incarnation, created_at, adopted_from) VALUES (1, ?, ?, ?, ?)",
                (uuid.uuid4().hex, uuid.uuid4().hex, now, None if adopted_from is None else json.dumps(adopted_from)),
            ).fetchall()
            connection.executemany(
                "INSERT INTO migrations (number, name, sha256, applied_at, applied_by) VALUES (?, ?, ?, ?, ?)",
                [(step.number, step.name, step.sha256, now, __version__) for step in layout.steps],
            ).fetchall()
            connection.execute("COMMIT").fetchall()
            # The file is used without its WAL from here on, and a close whose own checkpoint fails says nothing.
            copy_back(connection, named or path)
    finally:
        connection.close()


def fill_empty_database(path: Path, *, page_size: int = 4096) -> None:
    """Make the new private file `path` a database without any table, in WAL mode, for another program's schema."""
    with translated(path, "creating"):
        connection = apsw.Connection(str(path))
        try:
            connection.execute(f"PRAGMA page_size = {page_size}").fetchall()
            set_pragma(connection, path, "journal_mode", "wal")
            copy_back(connection, path)
        finally:
            connection.close()


def refuse_leftovers(target: Path) -> None:
    """Raise `Refused` when something of an earlier store lies at `target`."""
    try:
        found = target.stat()
    except FileNotFoundError:
        size = -1
    else:
        size = found.st_size if stat.S_ISREG(found.st_mode) else 1  # an open says what else it is
    wal = Path(f"{target}-wal")
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    if size == 0 and wal_bytes == 0:
        raise Refused(
            f"{target} is empty (0 bytes); a store that was there may have been cut off.",
            hint=f"Look for its content first (`hermes-state doctor --db {shell_word(target)}`), then move the empty "
            "file away.",
            path=target,
        )
    if size < 0 and wal_bytes > 0:
        raise Refused(
            f"{wal} holds {wal_bytes} bytes of a store whose database file is gone.",
            hint="Bring the database file back, or move the WAL away for recovery; nothing was created over it.",
            path=target,
        )


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise system_error(folder, error, "creating") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(staged: Path, target: Path) -> bool:
    """Give the finished private file `staged` the name `target`; False when something has that name already."""
    try:
        _rename_without_replacing(staged, target)
    except FileExistsError:
        return False
    if os.name == "posix":
        sync_folder(target.parent)
    return True


def _rename_without_replacing(source: Path, target: Path) -> None:
    if os.name == "nt":
        os.rename(source, target)  # never replaces there
        return
    if sys.platform.startswith("linux"):
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if rename is not None:
            arguments = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE)
            if rename(*arguments) == 0:
                return
            number = ctypes.get_errno()
            if number not in (errno.EINVAL, errno.ENOSYS):
                raise OSError(number, os.strerror(number), str(source), None, str(target))
    # Between these two calls the file has two names; an opener then is told so and may try again.
    os.link(source, target)
    with suppress(FileNotFoundError):
        source.unlink()
