"""The scan on systems without /proc: psutil's open files, or an honest "unknown".

Invariant: `complete` is never true here. psutil sees neither locks nor deleted files, and processes of others are
mostly closed to it; what it does not see is said.

Not for: Linux, where psutil would add nothing. Rejected: claiming that nobody holds the store because nobody was
found.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

from lockowners.devices import Watched
from lockowners.process import has_psutil, portable_processes
from lockowners.records import KINDS, SUFFIXES, FileKind, HeldFile, Hidden, Holder, Method, Scan

NO_TABLE = "all other processes (this system has no process table that can be read)"
NO_LOCKS = "locks and deleted files (this system does not show them)"


def portable_scan(watched: Watched, *, started: float, include_self: bool, use_psutil: bool) -> Scan:
    """Look through psutil, where it is installed and wanted."""
    method: Method = "psutil" if use_psutil and has_psutil() else "none"
    found: list[Holder] = []
    hidden: list[Hidden] = []
    if method == "psutil":
        found, hidden = _look(watched, include_self)
    return Scan(
        path=Path(watched.path),
        holders=tuple(found),
        hidden=tuple(hidden),
        excluded_count=0,
        complete=False,
        method=method,
        namespace_note=NO_LOCKS if method == "psutil" else NO_TABLE,
        elapsed_seconds=time.perf_counter() - started,
    )


def _look(watched: Watched, include_self: bool) -> tuple[list[Holder], list[Hidden]]:
    paths: dict[str, FileKind] = {os.path.normcase(watched.path + SUFFIXES[kind]): kind for kind in KINDS}
    private = _is_private(watched)
    found: list[Holder] = []
    closed: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for entry in portable_processes():
        process = entry.process
        if process.pid == os.getpid() and not include_self:
            continue
        if entry.paths is None:
            closed[process.uid, process.user].append(process.pid)
            continue
        files = {_held(watched, path, paths) for path in entry.paths} - {None}
        if files:
            ordered = tuple(sorted((held for held in files if held), key=lambda held: KINDS.index(held.kind)))
            found.append(Holder(process=process, via=frozenset({"descriptor"}), files=ordered))
    hidden = [
        Hidden(user=user, count=len(pids), uid=uid, pids=tuple(pids), unlikely=private and uid != os_uid())
        for (uid, user), pids in sorted(closed.items(), key=lambda item: (item[0][0] != 0, item[0][1]))
    ]
    return found, hidden


def os_uid() -> int:
    """Our user id; -2, nobody's, where there is none."""
    return os.geteuid() if hasattr(os, "geteuid") else -2


def _held(watched: Watched, path: str, paths: dict[str, FileKind]) -> HeldFile | None:
    kind = paths.get(os.path.normcase(path))
    try:
        found = os.stat(path)
    except OSError:
        return HeldFile(kind=kind, deleted=True, device=0, inode=0) if kind else None
    kind = watched.by_identity.get((found.st_dev, found.st_ino), kind)
    return HeldFile(kind=kind, deleted=False, device=found.st_dev, inode=found.st_ino) if kind else None


def _is_private(watched: Watched) -> bool:
    """Whether mode bits close the main file to everybody but its owner; access lists are not read here."""
    try:
        found, folder = os.stat(watched.path), os.stat(os.path.dirname(watched.path))
    except OSError:
        return False
    return os.name == "posix" and (not found.st_mode & 0o044 or not folder.st_mode & 0o011)
