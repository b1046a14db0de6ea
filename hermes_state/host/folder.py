"""Where the state of one OS user's host lies, and that it is that user's.

Invariant: found anew at every call, from the environment given. Nothing of another uid is opened or believed: not the
folder, not its parent, not a file in it. What is ours is made private (0700, files 0600) each time it is looked at.

Not for: homes (see `location`). A folder below a home was rejected: homes of one user must find the same one.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from hermes_state.errors import CannotOpen, HostNotOurs
from hermes_state.host.layout import HOST_NAME

LOCK_NAME = "gateway.lock"
_FILES = (HOST_NAME, f"{HOST_NAME}-wal", f"{HOST_NAME}-shm", LOCK_NAME)
_FOLDERS = ("answers", "owners")  # sockets and lock files


def host_folder(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/hermes`; `~/.local/state/hermes` without it, `%LOCALAPPDATA%\\hermes-host` on Windows.

    Raises `CannotOpen` when there is no such place.
    """
    said = environ.get("XDG_STATE_HOME", "").strip()
    if said and os.path.isabs(said):
        return Path(said) / "hermes"
    if sys.platform == "win32":
        local = environ.get("LOCALAPPDATA", "").strip()
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hermes-host"
    home = environ.get("HOME", "").strip()
    return (Path(home) if os.path.isabs(home) else _home_of_user()) / ".local" / "state" / "hermes"


def _home_of_user() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise CannotOpen(
            f"There is no folder for the host of user {our_uid()}: neither XDG_STATE_HOME nor HOME is set, and the"
            " system knows no home of that user.",
            hint="Set XDG_STATE_HOME to a folder of this user.", path=Path("~"), errno=0,
        ) from error


def our_uid() -> int:
    """The user whose host this is; 0 where users have no number."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def prepare(folder: Path) -> tuple[str, ...]:
    """Make the folder where it is missing, and private where it is not; says what was repaired, a sentence each.

    Raises `HostNotOurs` when it, its parent or a file in it belongs to another user, `CannotOpen` when it cannot be
    made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CannotOpen(
            f"{folder} cannot be made ({error.strerror}).",
            hint="Check who owns its parent, or set XDG_STATE_HOME to a folder of this user.",
            path=folder, errno=error.errno or 0,
        ) from error
    refuse_foreign(folder)
    repaired = tuple(_repaired(folder))
    if repaired:
        refuse_foreign(folder)  # while others could enter, they could put something there
    return repaired


def refuse_foreign(folder: Path) -> None:
    """Raise `HostNotOurs` when the folder, its parent or a file of the host belongs to another user; a root's may be.

    A parent of root is everybody's; a folder or file of root is root's alone.
    """
    uid = our_uid()
    for path in (folder.parent, folder, *(folder / name for name in (*_FILES, *_FOLDERS))):
        # A link and what it leads to: a link of ours may lead to somebody else's.
        for look in (os.lstat, os.stat):
            try:
                owner = look(path).st_uid
            except OSError:
                continue  # not there, or whoever opens it is told why that fails
            if owner != uid and not (path == folder.parent and owner == 0):
                raise HostNotOurs(
                    f"{path} belongs to user {owner}, so nothing that it says is believed by user {uid}.",
                    hint="Set XDG_STATE_HOME to a folder of this user, or have that one removed by its owner.",
                    path=path, owner_uid=owner,
                )


def _repaired(folder: Path) -> list[str]:
    if os.name != "posix":
        return []
    said = []
    folders = [(folder, 0o700), *((folder / name, 0o700) for name in _FOLDERS)]
    for path, mode in (*folders, *((folder / name, 0o600) for name in _FILES)):
        try:
            # The folder may be a link of ours to another place; nothing in it is.
            found = stat.S_IMODE((os.stat if path == folder else os.lstat)(path).st_mode)
        except OSError:
            continue
        if found & 0o077 and (path == folder or not path.is_symlink()):
            try:
                os.chmod(path, mode)
            except OSError as error:
                raise CannotOpen(
                    f"{path} has mode {found:04o} and cannot be made private ({error.strerror}).",
                    hint=f"chmod {mode:o} {path}, or set XDG_STATE_HOME to a folder of this user.",
                    path=path, errno=error.errno or 0,
                ) from error
            said.append(f"{path} had mode {found:04o}; it is {mode:04o} now")
    return said
