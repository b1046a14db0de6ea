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
from hermes_state.shell_words import shell_word

SQLITE_CORRUPT_VTAB = 267
SQLITE_READONLY_DBMOVED = 1032

# SQLITE_READONLY_CANTINIT and _DIRECTORY: a reader that may not create the -shm file that WAL needs.
_NO_SIDECAR = {1288, 1544}

# SQLITE_IOERR_SHMOPEN, _SHMSIZE, _SHMLOCK, _SHMMAP: it was the WAL index that failed.
_WAL_INDEX = {4618, 4874, 5130, 5386}

# SQLITE_IOERR_WRITE, _TRUNCATE, _SHMSIZE: what a full disk makes fail, whether SQLite keeps the number or not.
_WRITING = {778, 1546, 4874}

# SQLITE_IOERR_FSYNC, _DIR_FSYNC: an alarm whatever the reason, since nobody knows what the system has dropped.
_SYNCING = {1034, 1290}

_NO_DESCRIPTOR = {errno_names.EMFILE, errno_names.ENFILE}
_NO_SPACE = {errno_names.ENOSPC, errno_names.EDQUOT, errno_names.EFBIG}
_TELLING = {
    errno_names.EMFILE, errno_names.ENFILE, errno_names.EACCES, errno_names.EPERM, errno_names.EROFS,
    errno_names.ENOSPC, errno_names.EDQUOT, errno_names.EFBIG, errno_names.ENOMEM, errno_names.ELOOP,
}

_DOCTOR = "Run `hermes-state doctor --db {path}`; it names the damaged object and changes nothing."


def codes(error: apsw.Error) -> tuple[int, int]:
    """Primary and extended result code of an APSW error; (1, 1) when the error is APSW's own."""
    extended = int(getattr(error, "extendedresult", 0) or getattr(error, "result", 0) or 1)
    return extended & 0xFF, extended


def translate(error: apsw.Error, path: Path, doing: str, *, system_errno: int = 0) -> errors.StateError:
    """The error of this project for `error`, which happened while `doing` (a phrase such as "reading") `path`."""
    primary, extended = codes(error)
    code = {"sqlite_code": primary, "sqlite_extended": extended}
    facts = {"path": path, **code}
    said = f"SQLite said: {error} (code {primary}, extended {extended})."
    doctor = _DOCTOR.format(path=shell_word(path))
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
    if primary in (apsw.SQLITE_IOERR, apsw.SQLITE_CANTOPEN) and extended not in _SYNCING and (
        system_errno in _NO_SPACE or (not system_errno and extended in _WRITING and has_no_room(path))
    ):
        return out_of_space(path, doing, system_errno or errno_names.ENOSPC, said, **code)
    if primary in (apsw.SQLITE_IOERR, apsw.SQLITE_PROTOCOL):
        failed = f"{path}-shm" if extended in _WAL_INDEX else path
        detail = _os_error(system_errno)
        return errors.IOFailure(
            f"The operating system failed {doing} {failed}{detail}. {said}",
            hint=f"Check the disk, the file system and the open-file limit first. {doctor}",
            errno=system_errno, **facts,
        )
    if primary == apsw.SQLITE_CANTOPEN and system_errno in _NO_DESCRIPTOR:
        return out_of_descriptors(path, doing, system_errno, said, **code)
    if primary == apsw.SQLITE_CANTOPEN or extended in _NO_SIDECAR:
        # SQLite looks for files that need not be there, so most numbers left behind are of no meaning.
        number = system_errno if system_errno in _TELLING else 0
        if is_mounted_read_only(path):
            return mounted_read_only(path, doing, said, **code)
        if has_no_room(path):
            return out_of_space(path, doing, number or errno_names.ENOSPC, said, **code)
        return errors.CannotOpen(
            f"{path} or a file beside it (-wal, -shm) cannot be opened{_os_error(number)}. {said}",
            hint="Check that the folder exists, that this user may write to it, and the open-file limit.",
            errno=number, **facts,
        )
    if primary in (apsw.SQLITE_READONLY, apsw.SQLITE_PERM, apsw.SQLITE_AUTH):
        if is_mounted_read_only(path):
            return mounted_read_only(path, doing, said, **code)
        return errors.ReadOnlyStore(
            f"{path} can only be read here: {doing} was refused. {said}",
            hint="Check the permissions of the file and of its folder.", **facts,
        )
    if primary in (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED):
        return errors.LockTimeout(
            f"{path} is locked by another connection: {doing} gave up. {said}",
            hint=f"Run `hermes-state locks --db {shell_word(path)}` to see who holds it, and try again.",
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


def out_of_space(path: Path, doing: str, number: int, said: str = "", **facts: Any) -> errors.DiskFull:
    """The error for a write that found no room. `number`: ENOSPC, EDQUOT, or EFBIG (this process's own limit)."""
    limits = {
        errno_names.EDQUOT: f"This user's quota on the disk of {path} is used up",
        errno_names.EFBIG: f"This process may make no file as large as {path} or its WAL would have become",
    }
    hint = "Free some space on that file system and repeat."
    if number == errno_names.EFBIG:
        hint = "Raise the limit on the size of a file (`ulimit -f`, LimitFSIZE= of a service) and repeat."
    return errors.DiskFull(
        f"{limits.get(number, f'The disk of {path} is full')}, so {doing} it failed{_os_error(number)}."
        f"{said and f' {said}'}",
        hint=hint, path=path, errno=number, **facts,
    )


def mounted_read_only(path: Path, doing: str, said: str = "", **facts: Any) -> errors.ReadOnlyStore:
    """The error for a write, or for a file that SQLite needs beside a store, on a read-only file system."""
    return errors.ReadOnlyStore(
        f"{path} lies on a file system that is mounted read-only, so {doing} it failed.{said and f' {said}'}",
        hint="Mount it writable, or copy the file (with its -wal, if there is one) to another disk and use the copy.",
        path=path, **facts,
    )


def system_error(path: Path, error: OSError, doing: str) -> errors.StateError:
    """The error of this project for what the operating system said about `path`, or a file beside it, while `doing`."""
    number = error.errno or 0
    if number in _NO_DESCRIPTOR:
        return out_of_descriptors(path, doing, number)
    if number in _NO_SPACE:
        return out_of_space(path, doing, number)
    if number == errno_names.EROFS:
        return mounted_read_only(path, doing)
    if number == errno_names.EIO:
        return errors.IOFailure(
            f"The operating system failed {doing} {path}{_os_error(number)}.",
            hint="Check the disk and the file system first.", path=path, errno=number,
        )
    hints = {
        errno_names.ELOOP: "A link in it leads back to itself: see `namei -l` on the path.",
        errno_names.EACCES: "Run as the user who owns it.", errno_names.EPERM: "Run as the user who owns it.",
    }
    return errors.CannotOpen(
        f"{doing[0].upper()}{doing[1:]} {path} failed{_os_error(number) or f' ({error})'}.",
        hint=hints.get(number, "Check the path."), path=path, errno=number,
    )


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """Give what the system says against loading a module, which takes a descriptor, the name of an error of ours."""
    try:
        yield
    except OSError as error:
        raise system_error(path, error, "loading what is needed for a call on") from error


def has_no_room(path: Path) -> bool:
    """True when the file system of `path` has no block or no file left for this user."""
    try:
        found = os.statvfs(path.parent)
    except (AttributeError, OSError):  # Windows has no such call
        return False
    return found.f_bavail == 0 or (found.f_files > 0 and found.f_favail == 0)


def is_mounted_read_only(path: Path) -> bool:
    """True when the file system of `path` takes no writes from anybody."""
    try:
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    except (AttributeError, OSError):
        return False


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
    error: apsw.Error | UnicodeError, path: Path, doing: str, connection: apsw.Connection | None = None,
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
            hint=_DOCTOR.format(path=shell_word(path)), path=path, search_index=False,
        )
    if isinstance(error, UnicodeError):
        return errors.InvalidInput(
            f"A text with half a character (a lone surrogate) cannot be in {path}: {doing} failed.",
            hint="Decode what comes from outside with errors='replace'.", argument="text",
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
    except (apsw.Error, UnicodeError) as error:
        raise named(error, path, doing, connection, on_busy) from error
