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

from hermes_state.engine.translate import is_mounted_read_only, mounted_read_only, out_of_descriptors, system_error
from hermes_state.errors import (
    CannotOpen,
    ForeignStore,
    ForkedConnection,
    InvalidInput,
    IOFailure,
    NotAStore,
    NotFound,
    ReadOnlyStore,
    Refused,
    StateError,
)
from hermes_state.shell_words import shell_word


def real_path(path: Path | str) -> Path:
    """`path` with every link in it followed. Raises `InvalidInput` for what no file can be named."""
    if "\0" in str(path):
        raise InvalidInput(f"A file cannot be named {str(path)!r}: there is a NUL in it.", path=Path(path))
    return Path(os.path.realpath(path))


def existing_file(path: Path | str, *, is_real: bool = False) -> Path:
    """The real path of an existing, regular, non-empty file. `is_real`: `path` is what `real_path` gave."""
    given = path if isinstance(path, Path) else Path(path)
    real = given if is_real else real_path(given)
    _state_of(real, given)
    return real


def _state_of(real: Path, given: Path) -> os.stat_result:
    """What `existing_file` looks at, `given` being how the caller named it."""
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
    except OSError as error:
        raise system_error(given, error, "reaching") from error
    if not stat.S_ISREG(state.st_mode):
        raise InvalidInput(f"{given} is not a regular file.", hint="Name the state.db file itself.", path=given)
    if state.st_size < 2:  # one byte is no file to SQLite either
        wal, empty = _bytes_of_wal(real), "0 bytes" if state.st_size == 0 else "1 byte"
        raise NotAStore(
            f"{given} is empty ({empty})." if not wal else f"{given} is empty ({empty}), but the WAL beside it is not "
            f"({wal} bytes): SQLite would delete that when it opens the file.",
            hint=f"Run `hermes-state doctor --db {shell_word(given)}`; do not start Hermes on it before its content "
            "is found.",
            path=given,
        )
    return state


def writable_file(path: Path | str, *, is_real: bool = False) -> Path:
    """The real path of a file that may be written here without harm to another name of it. `is_real` as above."""
    given = path if isinstance(path, Path) else Path(path)
    real = given if is_real else real_path(given)
    names = _state_of(real, given).st_nlink
    if names > 1:
        raise Refused(
            f"{real} has {names} names (hard links). Each name would get a WAL of its own over the same file, which "
            "destroys it.",
            hint="Make the other name a copy of its own (`cp --reflink=auto` and `mv`), then try again.",
            path=real, names=names,
        )
    if not os.access(real, os.W_OK) or not os.access(real.parent, os.W_OK):
        if is_mounted_read_only(real):
            raise mounted_read_only(real, "opening")
        raise ReadOnlyStore(
            f"{real} or its folder cannot be written by this user.",
            hint="Run as the user who owns the store, or work on a copy.", path=real,
        )
    return real


def _bytes_of_wal(path: Path) -> int:
    """Size of the WAL beside an empty database file. No SQLite leaves them so: page 1 is written before any WAL is."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0  # there is none, or it cannot be reached either


def new_private_file(target: Path, *, named: Path | None = None) -> None:
    """Create `target` empty with mode 0600, so that a copy of private rows is never readable by others.

    `named`: what an error calls it, where `target` is a name that nobody knows.
    """
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError as error:
        raise InvalidInput(f"{target} exists already.", hint="Name a new file.", path=target) from error
    except OSError as error:
        raise system_error(named or target, error, "creating") from error


def no_room_for_sidecars(path: Path, problem: StateError) -> StateError:
    """The error for a WAL store that nobody has open, in a folder where this user may create nothing."""
    if is_mounted_read_only(path):
        return problem  # says so already
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


def closed_here(path: Path) -> StateError:
    """The error for work through a store that was closed."""
    return StateError(f"The store {path} is closed here.", hint="Open it again.", path=path)


def forked(path: Path, opened_by: int) -> ForkedConnection:
    """The error for a connection of process `opened_by` in a child that was forked from it."""
    return ForkedConnection(
        f"The connection to {path} was opened by process {opened_by} and used by process {os.getpid()}, "
        "which was forked from it.",
        hint="Start the child with exec (spawn), or fork before the store is opened.",
        path=path, opened_by_pid=opened_by,
    )


def foreign_store(path: Path) -> ForeignStore:
    """The error for a file without this library's mark."""
    return ForeignStore(
        f"{path} was written by hermes-agent or another program, not by this library.",
        hint=f"`hermes-state sessions adopt --db {shell_word(path)}` turns a hermes-agent file into a native store; "
        "the maintenance commands (`hermes-state sessions --help`) work on it in place.",
        path=path,
    )
