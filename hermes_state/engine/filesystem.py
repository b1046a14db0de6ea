"""What file system a store lies on, and whether WAL may be used there.

Invariant: looking never changes anything. WAL needs memory shared by every process that has the store open; a file
system that reaches across a network or a virtual machine's border cannot give that, so there WAL is `unsafe` whatever
SQLite's own probe says. Where the answer is not known it is `unknown` or `advice` with the reason, never `safe`.

Not for: switching a journal mode. A caller that is about to switch asks `check_wal_allowed` first and is refused or
gets the facts to show; nothing here or there is ever switched on its own account.

`statfs` was rejected: its magic numbers do not tell sshfs from a local FUSE disk, nor a Docker Desktop share from a
plain volume; the mount table names both.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hermes_state.errors import Refused

WalVerdict = Literal["safe", "unsafe", "advice", "unknown"]

PROC = Path("/proc")

_LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "f2fs", "jfs", "nilfs2", "reiserfs", "bcachefs", "ecryptfs", "hfsplus"}
)
_NETWORK = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "davfs"}
    | {"ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2", "ocfs2", "gfs2", "fuse.ceph-fuse"}
    | {"fuse.sshfs", "sshfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2"}
    | {"fuse.glusterfs", "fuse.davfs", "fuse.davfs2", "fuse.juicefs", "fuse.curlftpfs", "fuse.mount.s3fs"}
    | {"fuse.gvfsd-fuse", "fuse.smbnetfs", "fuse.gpfs", "fuse.moosefs", "fuse.mfs", "fuse.lizardfs", "fuse.seaweedfs"}
)
_CROSS_VM = frozenset(
    {"virtiofs", "9p", "drvfs", "vboxsf", "vmhgfs", "prl_fs", "fakeowner"}
    | {"fuse.vmhgfs-fuse", "fuse.grpcfuse", "fuse.osxfs", "osxfs", "grpcfuse"}
)
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})

_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """The mount that a path lies on, and what that means for WAL."""

    # The kernel's name of the type ("ext4", "fuse.sshfs"), or "unknown".
    type: str
    # Where it is mounted, or "" when that is not known.
    mount_point: str
    # What is mounted there: a device, a host and path, a share.
    source: str
    # safe: use it. unsafe: refused. advice: works, with something to know. unknown: this system does not tell.
    wal: WalVerdict
    # One sentence that says why.
    reason: str


@dataclass(frozen=True, kw_only=True)
class _Mount:
    # One row of the mount table, with escapes undone.
    mount_point: str
    type: str
    source: str


def file_system_of(path: Path, *, proc_root: Path = PROC, platform: str = sys.platform) -> FileSystem:
    """The file system of `path`, which need not exist yet."""
    if not platform.startswith("linux"):
        reason = f"The mount table is not read on {platform}; check by hand that this is a local disk."
        return FileSystem(type="unknown", mount_point="", source="", wal="unknown", reason=reason)
    try:
        table = (proc_root / "self" / "mountinfo").read_bytes()
    except OSError as error:
        reason = f"The mount table cannot be read ({error.strerror}); check by hand that this is a local disk."
        return FileSystem(type="unknown", mount_point="", source="", wal="unknown", reason=reason)
    mount = _longest_prefix(_mounts(table), os.path.realpath(path))
    if mount is None:
        reason = "No row of the mount table covers this path; check by hand that this is a local disk."
        return FileSystem(type="unknown", mount_point="", source="", wal="unknown", reason=reason)
    wal, reason = _judge(mount.type, mount.source)
    return FileSystem(type=mount.type, mount_point=mount.mount_point, source=mount.source, wal=wal, reason=reason)


def check_wal_allowed(path: Path, *, proc_root: Path = PROC, platform: str = sys.platform) -> FileSystem:
    """Ask before a store is switched to WAL: raises `Refused` where WAL is unsafe, else the facts to show."""
    found = file_system_of(path, proc_root=proc_root, platform=platform)
    if found.wal == "unsafe":
        raise Refused(
            f"{path} lies on {found.type} ({found.source} on {found.mount_point}), where WAL cannot be used safely.",
            hint=f"{found.reason} Keep the store on a local disk or a named volume, or in rollback-journal mode.",
            path=str(path),
            file_system=found,
        )
    return found


def _mounts(table: bytes) -> list[_Mount]:
    """The rows of a mountinfo text. A row that does not have its fields is left out: it can name no mount."""
    mounts = []
    for line in table.splitlines():
        fields, dash, rest = line.partition(b" - ")
        left, right = fields.split(), rest.split(b" ")
        if not dash or len(left) < 5 or len(right) < 2:
            continue
        mounts.append(_Mount(mount_point=_plain(left[4]), type=_plain(right[0]), source=_plain(right[1])))
    return mounts


def _plain(field: bytes) -> str:
    return os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match.group(1), 8) & 0xFF]), field))


def _longest_prefix(mounts: list[_Mount], path: str) -> _Mount | None:
    """The mount that covers `path`: the longest mount point that is a whole prefix; of equals the one mounted last."""
    best: _Mount | None = None
    for mount in mounts:
        base = mount.mount_point.rstrip("/")
        covers = path == base or path.startswith(base + "/")
        if covers and (best is None or len(base) >= len(best.mount_point.rstrip("/"))):
            best = mount
    return best


def _judge(kind: str, source: str) -> tuple[WalVerdict, str]:
    if kind in _CROSS_VM:
        return "unsafe", f"{kind} crosses a virtual machine's border, so processes on both sides share no memory."
    if kind in _NETWORK:
        return "unsafe", f"{kind} reaches other machines, so its users share no memory and its locks may not hold."
    if kind == "zfs":
        return "advice", "Under many opens at once ZFS has answered with I/O errors until a restart; keep opens few."
    if kind == "btrfs":
        return "advice", "I/O errors under WAL were reported on btrfs; set the folder to no copy-on-write (chattr +C)."
    if kind == "overlay":
        return "advice", "This is a container's own layer: the store is lost with the container; use a named volume."
    if kind in _IN_MEMORY:
        return "advice", f"{kind} is memory: the store is lost when this machine or container stops."
    if kind.startswith("fuse") and not source.startswith("/dev/"):
        return "advice", f"{kind} is served by a program; whether it shares memory between processes is not known here."
    if kind in _LOCAL or source.startswith("/dev/"):
        return "safe", f"{kind} is a local disk."
    return "advice", f"{kind} is not a type this program knows; check that it is a local disk."
