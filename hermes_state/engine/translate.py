"""SQLite's errors as errors of this project, by result code only.

Invariant: the primary and the extended code of SQLite are kept on every error, and the message text of SQLite is
never looked at to decide anything; it is quoted. Not for: retrying. The alternative, matching phrases such as
"malformed", once took damage of canonical rows for damage of a search index.
"""

from __future__ import annotations

import errno as errno_names
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from hermes_state import errors

SQLITE_CORRUPT_VTAB = 267
SQLITE_READONLY_DBMOVED = 1032

# SQLITE_READONLY_CANTINIT and _DIRECTORY: a reader that may not create the -shm file that WAL needs.
_NO_SIDECAR = {1288, 1544}

# SQLITE_IOERR_SHMOPEN, _SHMSIZE, _SHMLOCK, _SHMMAP: it was the WAL index that failed.
_WAL_INDEX = {4618, 4874, 5130, 5386}

_NO_DESCRIPTOR = {errno_names.EMFILE, errno_names.ENFILE}
_TELLING = {
    errno_names.EMFILE, errno_names.ENFILE, errno_names.EACCES, errno_names.EPERM, errno_names.EROFS,
    errno_names.ENOSPC, errno_names.ENOMEM, errno_names.ELOOP,
}

_DOCTOR = "Run `hermes-state doctor --db {path}`; it names the damaged object and changes nothing."


def codes(error: apsw.Error) -> tuple[int, int]:
    """Primary and extended result code of an APSW error; (1, 1) when the error is APSW's own."""
    extended = int(getattr(error, "extendedresult", 0) or getattr(error, "result", 0) or 1)
    return extended & 0xFF, extended


def translate(error: apsw.Error, path: Path, doing: str, *, system_errno: int = 0) -> errors.StateError:
    """The error of this project for `error`, which happened while `doing` (a phrase such as "reading") `path`."""
    primary, extended = codes(error)
    facts = {"path": path, "sqlite_code": primary, "sqlite_extended": extended}
    said = f"SQLite said: {error} (code {primary}, extended {extended})."
    doctor = _DOCTOR.format(path=path)
    if extended == SQLITE_READONLY_DBMOVED:
        return errors.GenerationLost(
            f"{path} was moved or replaced while it was open for {doing}. {said}",
            hint=doctor, lost=("main",), capture=None, committed=False,
            user_sentence="The session store was moved while Hermes was using it.", operator_detail=said, **facts,
        )
    if primary == apsw.SQLITE_CORRUPT:
        index_only = extended == SQLITE_CORRUPT_VTAB
        what = "A search index of" if index_only else "The database file"
        return errors.Corrupt(
            f"{what} {path} is damaged: it failed while {doing}. {said}", hint=doctor, search_index=index_only, **facts
        )
    if primary == apsw.SQLITE_NOTADB:
        return errors.NotAStore(f"{path} is not an SQLite database. {said}", hint=doctor, **facts)
    if primary == apsw.SQLITE_FULL:
        return errors.DiskFull(
            f"The disk of {path} is full; the transaction was rolled back. {said}",
            hint="Free some space and repeat the command.", **facts,
        )
    if primary in (apsw.SQLITE_IOERR, apsw.SQLITE_PROTOCOL):
        failed = f"{path}-shm" if extended in _WAL_INDEX else path
        detail = _os_error(system_errno)
        return errors.IOFailure(
            f"The operating system failed {doing} {failed}{detail}. {said}",
            hint=f"Check the disk, the file system and the open-file limit first. {doctor}",
            errno=system_errno, **facts,
        )
    if primary == apsw.SQLITE_CANTOPEN and system_errno in _NO_DESCRIPTOR:
        return out_of_descriptors(path, doing, system_errno, said, sqlite_code=primary, sqlite_extended=extended)
    if primary == apsw.SQLITE_CANTOPEN or extended in _NO_SIDECAR:
        # SQLite looks for files that need not be there, so most numbers left behind are of no meaning.
        number = system_errno if system_errno in _TELLING else 0
        return errors.CannotOpen(
            f"{path} or a file beside it (-wal, -shm) cannot be opened{_os_error(number)}. {said}",
            hint="Check that the folder exists, that this user may write to it, and the open-file limit.",
            errno=number, **facts,
        )
    if primary in (apsw.SQLITE_READONLY, apsw.SQLITE_PERM, apsw.SQLITE_AUTH):
        return errors.ReadOnlyStore(
            f"{path} can only be read here: {doing} was refused. {said}",
            hint="Check the permissions of the file and of its folder.", **facts,
        )
    if primary in (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED):
        return errors.LockTimeout(
            f"{path} is locked by another connection: {doing} gave up. {said}",
            hint=f"Run `hermes-state locks --db {path}` to see who holds it, and try again.",
            holders=(), waited_seconds=0.0, **facts,
        )
    return errors.StatementFailed(f"SQLite refused a statement while {doing} {path}. {said}", hint="", **facts)


def out_of_descriptors(path: Path, doing: str, number: int, said: str = "", **facts: Any) -> errors.CannotOpen:
    """The error for a file that cannot be opened because there are too many open files, whatever they are.

    `number` is EMFILE (this process's limit) or ENFILE (the machine's).
    """
    who = "This machine" if number == errno_names.ENFILE else "This process"
    return errors.CannotOpen(
        f"{who} has run out of file descriptors, so {doing} {path} failed{_os_error(number)}.{said and f' {said}'}",
        hint="Nothing is wrong with the store. Find what keeps files open (`ls -l /proc/PID/fd`), or raise the "
        "open-file limit (`ulimit -n`, LimitNOFILE= of a service).",
        path=path, errno=number, **facts,
    )


def missing_descriptor() -> int:
    """EMFILE or ENFILE when no further file can be opened now, else 0."""
    try:
        os.close(os.open(os.sep, os.O_RDONLY))
    except OSError as error:
        return error.errno if error.errno in _NO_DESCRIPTOR else 0
    return 0


def _os_error(number: int) -> str:
    """ " (EMFILE: Too many open files)", or nothing when the system said nothing."""
    return f" ({errno_names.errorcode.get(number, number)}: {os.strerror(number)})" if number else ""


def named(
    error: apsw.Error | UnicodeDecodeError, path: Path, doing: str, connection: apsw.Connection | None = None,
    on_busy: Callable[[apsw.Error], errors.StateError] | None = None,
) -> errors.StateError:
    """The error of this project for what a statement raised. To be called at once: SQLite keeps one system errno.

    `on_busy` builds the error for a lock that did not come, with the names that only the caller can look up.
    """
    if isinstance(error, UnicodeDecodeError):
        # Cells that may hold any bytes are read as such; this is text that SQLite itself reads, the schema above all.
        return errors.Corrupt(
            f"{path} holds text that is not UTF-8 where it must be: {doing} failed at byte {error.start} of "
            f"{error.object[:40]!r}.",
            hint=_DOCTOR.format(path=path), path=path, search_index=False,
        )
    if on_busy is not None and isinstance(error, apsw.BusyError):
        return on_busy(error)
    # system_errno is only meaningful right after the failure of this connection.
    number = 0
    if connection is not None and not isinstance(error, apsw.ConnectionClosedError):
        number = int(connection.system_errno)
    elif isinstance(error, apsw.CantOpenError):
        number = missing_descriptor()  # there is no connection to ask what the system said
    return translate(error, path, doing, system_errno=number)


@contextmanager
def translated(
    path: Path, doing: str, connection: apsw.Connection | None = None,
    on_busy: Callable[[apsw.Error], errors.StateError] | None = None,
) -> Iterator[None]:
    """Turn any APSW error inside the block into one of this project, the cause kept; see `named`."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise named(error, path, doing, connection, on_busy) from error
