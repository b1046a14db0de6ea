"""Which processes have a file of the store open, from the descriptor tables under `/proc/PID/fd`.

Invariant: a table is either read to its end or its pid is in `unreadable`; only a process or a descriptor that
vanished meanwhile is left out. Files are matched by device and inode, so hard links and bind mounts are found;
sidecars that were unlinked or replaced are matched by the name the kernel keeps for them, followed by ` (deleted)`.

Not for: descriptors on their way through a socket, memory maps whose descriptor is closed, and threads with a table
of their own; a file lease (`gate.sole_opener`) counts those too. Rejected: psutil, which drops deleted files silently
and takes three to four times as long.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lockowners.devices import Watched
from lockowners.lock_table import LockLine, parse
from lockowners.records import KINDS, SUFFIXES, FileKind

_DELETED = " (deleted)"
# Links of these forms never name a regular file of a store; asking for their identity would cost a third of the scan.
_NOT_FILES = ("/dev/null", "/dev/pts/", "/dev/tty", "/dev/urandom", "/dev/zero", "/dev/ptmx", "/dev/fuse", "/proc/")
_GONE = (errno.ENOENT, errno.ESRCH)


@dataclass(frozen=True, kw_only=True)
class OpenFile:
    """One descriptor of a process that is on a file of the store."""

    # Descriptor number.
    number: int
    # Which file.
    kind: FileKind
    # The path names another inode now, or none.
    deleted: bool
    # st_dev.
    device: int
    # Inode number.
    inode: int


@dataclass(kw_only=True)
class Tables:
    """What the descriptor tables of all processes showed."""

    # By pid, only processes that have a file of the store open.
    found: dict[int, list[OpenFile]] = field(default_factory=dict)
    # Processes whose table could not be read to the end.
    unreadable: list[int] = field(default_factory=list)


def list_pids(proc_root: Path) -> list[int]:
    """Every process the process table lists."""
    return sorted(int(name) for name in os.listdir(proc_root) if name.isdigit())


def own_pid(proc_root: Path) -> int:
    """This process' pid as that process table counts, which differs in a child PID namespace with an outer table."""
    try:
        text = os.readlink(proc_root / "self")
    except OSError:
        return os.getpid()
    return int(text) if text.isdigit() else os.getpid()


def scan_tables(proc_root: Path, watched: Watched, pids: Iterable[int], *, self_pid: int = -1) -> Tables:
    """Look through the descriptor tables of `pids`. `self_pid` is scanned without asking for foreign mounts."""
    tables = Tables()
    root = os.fspath(proc_root)
    search = _Search(root, watched, self_pid)
    for pid in pids:
        try:
            files = search.of(pid)
        except OSError:
            tables.unreadable.append(pid)
            continue
        if files:
            tables.found[pid] = files
    return tables


def listed_locks(proc_root: Path, pid: int | str, numbers: Iterable[int]) -> tuple[LockLine, ...]:
    """The lock rows in fdinfo of these descriptors: those held through them, OFD locks of that open file included.

    OSError when fdinfo may not be read; descriptors that were closed meanwhile are left out.
    """
    rows: list[str] = []
    for number in numbers:
        try:
            text = (proc_root / str(pid) / "fdinfo" / str(number)).read_text("ascii", "replace")
        except OSError as error:
            if error.errno in _GONE:
                continue
            raise
        rows.extend(line.partition(":")[2] for line in text.splitlines() if line.startswith("lock:"))
    return parse("\n".join(rows)).lines


def _listed(folder: str) -> list[str]:
    """Names in a folder of a process; none when it ended."""
    try:
        return os.listdir(folder)
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise


class _Search:
    """One scan's constants, looked up once. `of` is the hot loop: 300 processes in a few ten milliseconds."""

    def __init__(self, root: str, watched: Watched, self_pid: int) -> None:
        self.root = root
        self.folder = os.path.dirname(watched.path)
        self.identities = watched.by_identity
        self.paths: dict[str, FileKind] = {watched.path + SUFFIXES[kind]: kind for kind in KINDS}
        self.names: dict[str, FileKind] = {os.path.basename(path): kind for path, kind in self.paths.items()}
        self.devices = {found.device for found in watched.files.values()}
        self.skip = _NOT_FILES + watched.distant
        self.self_pid = self_pid

    def of(self, pid: int) -> list[OpenFile]:
        """The store's files among one process' descriptors. OSError: the table could not be read to its end."""
        denied = False
        try:
            files, any_open = self._among(pid, f"{self.root}/{pid}/fd")
            if any_open:
                return files
        except PermissionError:
            denied = True  # not the error itself: its own frame would hold it, and every caller's objects with it
        # A leader that ended before its threads has no table, or none that we may read; each of its threads shows it.
        found: dict[int, OpenFile] = {}
        for thread in _listed(f"{self.root}/{pid}/task"):
            if thread != str(pid):
                files, any_open = self._among(pid, f"{self.root}/{pid}/task/{thread}/fd")
                found.update((opened.number, opened) for opened in files)
                denied = denied and not any_open
        if denied:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), f"{self.root}/{pid}/fd")
        return list(found.values())

    def _among(self, pid: int, base: str) -> tuple[list[OpenFile], bool]:
        """The store's files in one table, and whether the table has any descriptor."""
        try:
            # Names relative to an open folder cost the kernel a sixth less than whole paths.
            folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _GONE:
                return [], False
            raise
        try:
            numbers = os.listdir(folder)
            return (self._ours(pid, folder, numbers) if numbers else []), bool(numbers)
        except OSError as error:
            if error.errno in _GONE:
                return [], False
            raise
        finally:
            os.close(folder)

    def _ours(self, pid: int, folder: int, numbers: list[str]) -> list[OpenFile]:
        readlink, stat, skip, identities = os.readlink, os.stat, self.skip, self.identities
        files: list[OpenFile] = []
        elsewhere: list[tuple[str, OpenFile]] = []
        for number in numbers:
            try:
                text = readlink(number, dir_fd=folder)
                if not text.startswith("/") or text.startswith(skip):
                    continue
                found = stat(number, dir_fd=folder)
            except OSError as error:
                if error.errno in _GONE:
                    continue
                raise
            device, inode = found.st_dev, found.st_ino
            kind = identities.get((device, inode))
            if kind is not None:
                files.append(OpenFile(number=int(number), kind=kind, deleted=False, device=device, inode=inode))
            elif text.endswith(_DELETED):
                name = text[: -len(_DELETED)]
                kind = self.paths.get(name)
                if kind is not None and (not self.devices or device in self.devices):
                    files.append(OpenFile(number=int(number), kind=kind, deleted=True, device=device, inode=inode))
                    continue
                kind = self.names.get(name[name.rfind("/") + 1 :])
                if kind is not None and device in self.devices:
                    opened = OpenFile(number=int(number), kind=kind, deleted=True, device=device, inode=inode)
                    elsewhere.append((name[: name.rfind("/")], opened))
        # The same name in another folder is another store, unless this process has our main file open too (a bind
        # mount) or sees other folders than we do. A folder that we see, and that is not ours, is another one for sure.
        if elsewhere and self._other_mounts(pid):
            files.extend(opened for _folder, opened in elsewhere)
        elif elsewhere and any(held.kind == "main" for held in files):
            files.extend(opened for where, opened in elsewhere if not self._is_another(where))
        return files

    def _is_another(self, folder: str) -> bool:
        try:
            return not os.path.samefile(folder, self.folder)
        except OSError:
            return False  # deleted as well, or out of reach: it may have been ours

    def _other_mounts(self, pid: int) -> bool:
        if pid == self.self_pid:
            return False
        try:
            return os.readlink(f"{self.root}/{pid}/ns/mnt") != os.readlink(f"{self.root}/self/ns/mnt")
        except OSError:
            # It cannot be told: count it.
            return True
