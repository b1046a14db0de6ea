"""Files that this program keeps beside a store: used by exactly those who may use the store, and there after a crash.

Invariant: a new file gets the store's permission bits, and its owner and group as far as this process may give them, as
SQLite does for -wal and -shm. A store that two users share by a group keeps working for both after one of them set a
mark or deleted a session.

Not for: exports, copies and captures, which hold conversations and stay private to who made them. Mode 0600 for all was
rejected: the second user of a shared home could then list nothing, because marks that cannot be read stop a listing.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def share_like_store(descriptor: int, db: Path) -> None:
    """Set mode, owner and group of the new file behind `descriptor` (made with mode 0600) to those of the store."""
    try:
        store = os.stat(db)
    except FileNotFoundError:
        return  # no store to be like: it stays private
    if not hasattr(os, "fchown"):
        return  # Windows: a new file has the access rules of its folder, as SQLite's own files there
    own = os.fstat(descriptor)
    mode = 0o600 | (stat.S_IMODE(store.st_mode) & 0o666)
    if (own.st_uid, own.st_gid) != (store.st_uid, store.st_gid) and not _given(descriptor, store):
        mode &= ~0o060  # the bits of the store's group are not for the group of whoever ran this
    if stat.S_IMODE(own.st_mode) != mode:
        os.fchmod(descriptor, mode)


def why_no_file(path: Path) -> str:
    """Why what stands at `path` must not be opened as a file: "is a pipe, not a file". Empty for a file, or nothing.

    Looked at before opening: opening a pipe waits for its other end, and opening a device can do anything.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "is a link to something that is not there" if os.path.islink(path) else ""
    except OSError as error:
        return f"cannot be reached: {error.strerror or type(error).__name__}"
    if stat.S_ISREG(mode):
        return ""
    return f"is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file"


def _given(descriptor: int, store: os.stat_result) -> bool:
    """Whether the file could be given to the store's group, and by root also to its owner."""
    owner = store.st_uid if os.geteuid() == 0 else -1
    try:
        os.fchown(descriptor, owner, store.st_gid)
    except PermissionError:
        return False
    return True
