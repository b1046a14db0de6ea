"""Which files a store consists of, and by which device number the kernel's lock table names them.

Invariant: no file of the store is opened for reading or writing here. Closing such a descriptor would cancel SQLite's
locks in this process; stat and O_PATH do not. `/proc/locks` prints the device of the superblock, which on btrfs and on
overlays differs from st_dev, so it is taken from the mount table; where the two differ a lock row is only a possible
match (btrfs numbers inodes per subvolume) and `exact` is false.

Not for: deciding who holds. Rejected: st_dev alone, wrong on btrfs and overlay (measured).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from lockowners.errors import StoreUnreachable
from lockowners.lock_table import FileKey
from lockowners.records import KINDS, SUFFIXES, FileKind

# File systems whose open files may belong to a process of another machine.
NETWORK_TYPES = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "afs", "virtiofs", "ocfs2", "gfs2"})
# File systems on which every open file is counted by this kernel, so that a lease is a proof.
LOCAL_TYPES = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs"})


@dataclass(frozen=True, kw_only=True)
class MountRow:
    """One row of mountinfo."""

    # Mount id.
    mount_id: int
    # Device of the superblock.
    device: tuple[int, int]
    # Where it is mounted.
    point: str
    # File system type.
    fs_type: str
    # Superblock and mount options together.
    options: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class WatchedFile:
    """One existing file of the store."""

    # Which file.
    kind: FileKind
    # st_dev.
    device: int
    # Inode number.
    inode: int
    # Names that the file has (hard links).
    links: int


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A store's files at one moment."""

    # The main file, links resolved as SQLite resolves them.
    path: str
    # Existing files by kind.
    files: dict[FileKind, WatchedFile]
    # Device numbers that the lock table may print for files of this directory.
    devices: frozenset[tuple[int, int]]
    # A lock row with the right device and inode is certainly ours.
    exact: bool
    # File system type, "" when unknown.
    fs_type: str
    # Mount points of network file systems other than the store's own: nothing below them is asked for its identity.
    distant: tuple[str, ...] = ()
    # (device, inode) to kind.
    by_identity: dict[tuple[int, int], FileKind] = field(default_factory=dict)

    def keys(self, inode: int) -> tuple[FileKey, ...]:
        """Names the lock table may use for an inode of this directory."""
        return tuple((major, minor, inode) for major, minor in self.devices)

    def keys_of(self, kind: FileKind) -> tuple[FileKey, ...]:
        """Names the lock table may use for a current file of the store."""
        found = self.files.get(kind)
        return () if found is None else self.keys(found.inode)

    @property
    def is_network(self) -> bool:
        """Other machines may have the file open."""
        return self.fs_type in NETWORK_TYPES or self.fs_type.startswith("fuse.sshfs")


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def parse_mountinfo(text: str) -> tuple[MountRow, ...]:
    """Rows of /proc/PID/mountinfo; rows of an unknown form are left out (a mount is then found by st_dev)."""
    rows = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if not separator or len(fields) < 6 or not tail:
            continue
        major, _, minor = fields[2].partition(":")
        if not (fields[0].isdigit() and major.isdigit() and minor.isdigit()):
            continue
        options = frozenset(fields[5].split(",")) | frozenset(tail[2].split(",") if len(tail) > 2 else ())
        rows.append(
            MountRow(
                mount_id=int(fields[0]),
                device=(int(major), int(minor)),
                point=_unescape(fields[4]),
                fs_type=tail[0],
                options=options,
            )
        )
    return tuple(rows)


def read_mounts(proc_root: Path) -> tuple[MountRow, ...]:
    """The mounts of this process, empty when they cannot be read."""
    try:
        return parse_mountinfo((proc_root / "self" / "mountinfo").read_text("utf-8", "surrogateescape"))
    except OSError:
        return ()


def mount_id_of(path: str, proc_root: Path) -> int | None:
    """The mount a path is on, asked through an O_PATH descriptor."""
    if not hasattr(os, "O_PATH"):
        return None
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        text = (proc_root / "self" / "fdinfo" / str(descriptor)).read_text("ascii", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "mnt_id" and value.strip().isdigit():
            return int(value)
    return None


def _below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")


def mount_of(path: str, proc_root: Path, mounts: tuple[MountRow, ...]) -> MountRow | None:
    """The mount row of an existing path: by mount id, else the longest mount point above it."""
    mount_id = mount_id_of(path, proc_root)
    if mount_id is not None:
        for row in mounts:
            if row.mount_id == mount_id:
                return row
    above = [row for row in mounts if _below(path, row.point)]
    return max(above, key=lambda row: len(row.point), default=None)


def device_numbers(device: int) -> tuple[int, int]:
    """Major and minor of st_dev. Windows has no such split, and no lock table to match either."""
    return (os.major(device), os.minor(device)) if hasattr(os, "major") else (0, device)


def watch(path: str | os.PathLike[str], proc_root: Path = Path("/proc")) -> Watched:
    """The store's files as they are now. A file that does not exist is not in `files`."""
    main = os.path.realpath(os.fspath(path))
    files: dict[FileKind, WatchedFile] = {}
    for kind in KINDS:
        try:
            found = os.stat(main + SUFFIXES[kind])
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                continue
            raise StoreUnreachable(
                f"{main + SUFFIXES[kind]} cannot be examined: {error.strerror}", path=main
            ) from error
        files[kind] = WatchedFile(kind=kind, device=found.st_dev, inode=found.st_ino, links=found.st_nlink)
    place = main if "main" in files else os.path.dirname(main)
    mounts = read_mounts(proc_root)
    row = mount_of(place, proc_root, mounts) if os.path.exists(place) else None
    devices = {device_numbers(found.device) for found in files.values()}
    exact = row is None or not devices or devices == {row.device}
    if row is not None:
        devices.add(row.device)
    return Watched(
        path=main,
        files=files,
        devices=frozenset(devices),
        exact=exact,
        fs_type=row.fs_type if row else "",
        distant=tuple(
            mount.point.rstrip("/") + "/"
            for mount in mounts
            if mount.fs_type in NETWORK_TYPES and mount.point != "/" and (row is None or mount.point != row.point)
        ),
        by_identity={(found.device, found.inode): kind for kind, found in files.items()},
    )
