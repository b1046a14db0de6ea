"""Which file a store is, and whether it may be opened as asked, before SQLite touches it.

Invariant: nothing is created, opened or locked here but a new private file. A file that cannot be used safely gets its
own error: missing, not regular, empty, with several names, or not writable.

Not for: what the file holds (SQLite decides) or who has it open (see `stale.py`).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from hermes_state.engine.translate import out_of_descriptors
from hermes_state.errors import (
    CannotOpen,
    ForeignStore,
    InvalidInput,
    IOFailure,
    NotAStore,
    NotFound,
    ReadOnlyStore,
    Refused,
    StateError,
)


def real_path(path: Path | str) -> Path:
    """`path` with every link in it followed. Raises `InvalidInput` for what no file can be named."""
    if "\0" in str(path):
        raise InvalidInput(f"A file cannot be named {str(path)!r}: there is a NUL in it.", path=Path(path))
    return Path(os.path.realpath(path))


def existing_file(path: Path | str) -> Path:
    """The real path of an existing, regular, non-empty file."""
    given = Path(path)
    real = real_path(given)
    try:
        state = os.stat(real)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(
            f"There is no store at {given}.", hint="Name the file with --db, or its folder with --home.", path=given
        ) from error
    except PermissionError as error:
        raise CannotOpen(
            f"{given} cannot be reached: {error.strerror}.", hint="Run as the user who owns the store.", path=given
        ) from error
    if not stat.S_ISREG(state.st_mode):
        raise InvalidInput(f"{given} is not a regular file.", hint="Name the state.db file itself.", path=given)
    if state.st_size == 0 and not _has_content(real):
        raise NotAStore(
            f"{given} is empty (0 bytes).",
            hint=f"Run `hermes-state doctor --db {given}`; do not start Hermes on it before its content is found.",
            path=given,
        )
    return real


def writable_file(path: Path | str) -> Path:
    """The real path of a file that may be written here without harm to another name of it."""
    real = existing_file(path)
    names = os.stat(real).st_nlink
    if names > 1:
        raise Refused(
            f"{real} has {names} names (hard links). Each name would get a WAL of its own over the same file, which "
            "destroys it.",
            hint="Make the other name a copy of its own (`cp --reflink=auto` and `mv`), then try again.",
            path=real, names=names,
        )
    if not os.access(real, os.W_OK) or not os.access(real.parent, os.W_OK):
        raise ReadOnlyStore(
            f"{real} or its folder cannot be written by this user, or the file system is read-only.",
            hint="Run as the user who owns the store, or work on a copy.", path=real,
        )
    return real


def _has_content(path: Path) -> bool:
    """True when the WAL beside an empty database file holds frames: all content of a new store may still be there."""
    found = os.stat(f"{path}-wal") if os.path.exists(f"{path}-wal") else None
    return found is not None and found.st_size > 0


def new_private_file(target: Path) -> None:
    """Create `target` empty with mode 0600, so that a copy of private rows is never readable by others."""
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError as error:
        raise InvalidInput(f"{target} exists already.", hint="Name a new file.", path=target) from error
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise out_of_descriptors(target, "creating", error.errno) from error


def no_room_for_sidecars(path: Path, problem: StateError) -> CannotOpen:
    return CannotOpen(
        f"{path} cannot be read where it is: it is in WAL mode, nobody has it open, and this user may not create the "
        "-wal and -shm files that SQLite needs beside it.",
        hint="Read it as the user who owns it, or copy the file (with its -wal, if there is one) and read the copy.",
        path=path, errno=getattr(problem, "errno", 0),
        sqlite_code=problem.sqlite_code, sqlite_extended=problem.sqlite_extended,
    )


def unseen_descriptors(path: Path, error: OSError, doing: str = "opening") -> StateError:
    """The error for a look at open files, of this process or of others, that failed."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return out_of_descriptors(path, doing, error.errno)
    return IOFailure(
        f"Open files cannot be listed ({error.strerror}), so it cannot be told whether {path} is open by other means.",
        hint="Check that /proc is mounted and can be read.",
        path=path, errno=error.errno,
    )


def foreign_store(path: Path) -> ForeignStore:
    """The error for a file without this library's mark."""
    return ForeignStore(
        f"{path} was written by hermes-agent or another program, not by this library.",
        hint=f"`hermes-state sessions adopt --db {path}` turns a hermes-agent file into a native store; "
        "the maintenance commands (`hermes-state sessions --help`) work on it in place.",
        path=path,
    )
