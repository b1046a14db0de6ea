"""Proof that a process of another user cannot open the files of a store.

Invariant: "cannot reach" is only said when every file of the store is closed to every user and group the process has,
by the file's own mode and access list or by those of a folder above it. Every doubt (an access list of another kind,
an id that our user namespace does not map, a capability that overrides modes, another container, a second name of the
file) leaves the process among those that may reach it.

Not for: processes of root, which reach everything, nor for descriptors that were passed or inherited: the proof is
about the path as it is now. Rejected: os.access, which answers for this process only.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lockowners.process import Credentials

_ACL_NAME = "system.posix_acl_access"
_ACL_VERSION = 2
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_READ, _SEARCH = 4, 1
# Capabilities that open a file whatever its mode, or let a process become somebody who can: CHOWN, DAC_OVERRIDE,
# DAC_READ_SEARCH, FOWNER, SETGID, SETUID, SYS_PTRACE, SYS_ADMIN.
_STRONG = sum(1 << bit for bit in (0, 1, 2, 3, 6, 7, 19, 21))
_OVERFLOW_ID = 65534

Grant = Literal["yes", "no", "doubt"]


@dataclass(frozen=True, kw_only=True)
class AclEntry:
    """One entry of a POSIX access list."""

    # ACL_USER_OBJ and so on.
    tag: int
    # rwx as in a mode digit.
    bits: int
    # User or group id of a named entry.
    who: int


@dataclass(frozen=True, kw_only=True)
class Gatekeeper:
    """What decides about one file or folder."""

    # Owner.
    uid: int
    # Owning group.
    gid: int
    # Permission bits.
    mode: int
    # Its access list; None when it has none; "doubt" when there is one that is not understood.
    acl: tuple[AclEntry, ...] | Literal["doubt"] | None


def parse_acl(data: bytes) -> tuple[AclEntry, ...] | None:
    """The value of system.posix_acl_access; None when it is not of the known form."""
    if len(data) < 4 or (len(data) - 4) % 8 or struct.unpack_from("<I", data)[0] != _ACL_VERSION:
        return None
    entries = [AclEntry(tag=tag, bits=bits, who=who) for tag, bits, who in struct.iter_unpack("<HHI", data[4:])]
    known = {_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER}
    return tuple(entries) if all(entry.tag in known for entry in entries) else None


def _acl_of(path: str) -> tuple[AclEntry, ...] | Literal["doubt"] | None:
    if not hasattr(os, "getxattr"):
        return None
    try:
        names = os.listxattr(path)
    except OSError as error:
        return None if error.errno in (errno.ENOTSUP, errno.ENODATA) else "doubt"
    if any("acl" in name.lower() and not name.startswith("system.posix_acl_") for name in names):
        return "doubt"
    try:
        data = os.getxattr(path, _ACL_NAME)
    except OSError as error:
        return None if error.errno in (errno.ENOTSUP, errno.ENODATA) else "doubt"
    parsed = parse_acl(data)
    return "doubt" if parsed is None else parsed


def gatekeeper(path: str) -> Gatekeeper:
    """What decides about one path. OSError when it cannot be examined."""
    found = os.stat(path)
    return Gatekeeper(uid=found.st_uid, gid=found.st_gid, mode=stat.S_IMODE(found.st_mode), acl=_acl_of(path))


def grants(keeper: Gatekeeper, wanted: int, uid: int, gids: frozenset[int]) -> Grant:
    """Whether a user with these groups gets `wanted` (one rwx bit), in the kernel's order of entries."""
    if keeper.acl == "doubt":
        return "doubt"
    # The kernel looks at the list only when the group bits (the list's mask) are not all clear (measured: with
    # an empty mask a named user gets what others get).
    if keeper.acl is None or uid == keeper.uid or not keeper.mode & 0o070:
        shift = 6 if uid == keeper.uid else 3 if keeper.gid in gids else 0
        return "yes" if keeper.mode >> shift & wanted else "no"
    return "yes" if _acl_grants(keeper, keeper.acl, wanted, uid, gids) else "no"


def _acl_grants(keeper: Gatekeeper, acl: tuple[AclEntry, ...], wanted: int, uid: int, gids: frozenset[int]) -> bool:
    mask = next((entry.bits for entry in acl if entry.tag == _MASK), 7)
    for entry in acl:
        if entry.tag == _USER and entry.who == uid:
            return bool(entry.bits & mask & wanted)
    in_a_group = False
    for entry in acl:
        if (entry.tag == _GROUP_OBJ and keeper.gid in gids) or (entry.tag == _GROUP and entry.who in gids):
            in_a_group = True
            if entry.bits & mask & wanted:
                return True
    return not in_a_group and any(entry.tag == _OTHER and entry.bits & wanted for entry in acl)


def _folders(path: str) -> list[str]:
    found = []
    while (parent := os.path.dirname(path)) != path:
        found.append(parent)
        path = parent
    return found


class Reach:
    """The files of one store and everything above them, examined once for a whole scan."""

    def __init__(self, paths: Iterable[str], proc_root: Path = Path("/proc")) -> None:
        self.doubt = not _ids_are_plain(proc_root)
        self.files: list[Gatekeeper] = []
        self.folders: list[Gatekeeper] = []
        self.one_name = True
        paths = tuple(paths)
        try:
            for path in paths:
                self.files.append(gatekeeper(path))
                self.one_name = self.one_name and os.stat(path).st_nlink == 1
            for folder in _folders(paths[0]) if paths else ():
                self.folders.append(gatekeeper(folder))
        except OSError:
            self.doubt = True

    def is_excluded(self, who: Credentials, *, same_view: bool = True) -> bool:
        """Whether the process provably cannot open any of the files.

        `same_view` false: it may see the files under other folders than ours (another container), so only the files'
        own modes count. A second hard link has the same effect.
        """
        if self.doubt or not self.files or 0 in who.uids or who.capabilities & _STRONG:
            return False
        if _OVERFLOW_ID in who.uids or _OVERFLOW_ID in who.gids:
            # "nobody", and also whoever has no name in this user namespace.
            return False
        persons = [(uid, who.groups | {gid}) for uid in set(who.uids) for gid in set(who.gids)]
        return all(self._is_closed(uid, gids, same_view and self.one_name) for uid, gids in persons)

    def _is_closed(self, uid: int, gids: frozenset[int], folders_count: bool) -> bool:
        # The owner of a file or folder can change its mode, so it is never closed to its owner.
        if folders_count and any(
            folder.uid != uid and grants(folder, _SEARCH, uid, gids) == "no" for folder in self.folders
        ):
            return True
        return all(keeper.uid != uid and grants(keeper, _READ, uid, gids) == "no" for keeper in self.files)

    def is_private(self) -> bool:
        """Whether only the owner and root can reach the files, whoever else there is: for users that are not listed."""
        if self.doubt or not self.files:
            return False
        owner = self.files[0].uid
        if self.one_name and any(folder.uid in (owner, 0) and _is_private(folder, _SEARCH) for folder in self.folders):
            return True
        return all(keeper.uid == owner and _is_private(keeper, _READ) for keeper in self.files)


def _is_private(keeper: Gatekeeper, wanted: int) -> bool:
    return keeper.acl is None and not keeper.mode & (wanted << 3 | wanted)


def _ids_are_plain(proc_root: Path) -> bool:
    """Whether user ids here are the machine's own; in a user namespace several users may share one id."""
    try:
        text = (proc_root / "self" / "uid_map").read_text("ascii", "replace")
    except OSError:
        return False
    return text.split() == ["0", "0", "4294967295"]
