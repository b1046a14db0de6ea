"""The files of a leftover: how large, how old, whether two are the same, who has them open.

Invariant: a file that is a link, or the store's own file under another name, is never opened: reading and closing it
would end SQLite's locks on the store. Not for: what is in a database.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from maintenance.leftovers.names import MANIFEST, SIDECARS
from maintenance.leftovers.records import Budget, Found

# What says something about a leftover and is no part of what it keeps.
NOTES = frozenset({"manifest.json", "merged.json", MANIFEST})
_CHUNK = 1 << 20
_PID = re.compile(
    r"^\.(?:leftover|drill)-(\d{1,9})-|\.compact-copy-[^-]+-(\d{1,9})$"
    r"|\.adopting-.*-(\d{1,9})\.[a-z]+(?:-wal|-shm|-journal)?$|\.replacing-(\d{1,9})-"
    r"|-(\d{1,9})(?:-\d+)?\.partial$|\.(?:json|yml)\.(\d{1,9})(?:\.[0-9a-f]+)?$|\.(\d{1,9})\.[0-9a-f]+\.partial$"
)


@dataclass(frozen=True, kw_only=True)
class File:
    """One file of a leftover."""

    path: Path
    # its name within the leftover: "" and "-wal" for a file and its WAL, a relative path in a folder
    name: str
    bytes: int
    modified_at: float
    inode: tuple[int, int]
    # an ordinary file that may be opened
    plain: bool


def files_of(found: Found, store: Path) -> list[File]:
    """All files in it, links not followed. What vanished meanwhile is left out."""
    mine = set()
    for path in (store, *(Path(f"{store}{ending}") for ending in SIDECARS)):
        try:
            mine.add(_inode(path.stat()))
        except OSError:
            continue
    files = []
    for part in found.parts:
        if part.is_dir() and not part.is_symlink():
            walked = (Path(root) / name for root, _folders, names in os.walk(part) for name in names)
            named = [(path, os.path.relpath(path, part)) for path in walked]
        else:
            named = [(part, part.name.removeprefix(found.path.name))]
        for path, name in named:
            try:
                state = path.lstat()
            except FileNotFoundError:
                continue
            files.append(
                File(
                    path=path, name=name, bytes=state.st_size, modified_at=state.st_mtime, inode=_inode(state),
                    plain=stat.S_ISREG(state.st_mode) and _inode(state) not in mine,
                )
            )
    return sorted(files, key=lambda file: file.name)


def database_in(found: Found, files: Sequence[File], store: Path) -> Path | None:
    """The database file of a leftover, None when there is none or it may not be opened."""
    wanted = ("", store.name, "copy.db", "source.db")
    there = {file.name: file for file in files}
    named = next((there[name] for name in wanted if name in there), None)
    if named is None:
        ending_db = [file for file in files if file.name.endswith(".db")]
        named = ending_db[0] if len(ending_db) == 1 else None
    return named.path if named is not None and named.plain and named.bytes else None


def extras(files: Sequence[File], database: Path | None) -> list[File]:
    """Files of a leftover that are neither its database nor notes about it."""
    known = set() if database is None else {database, *(Path(f"{database}{ending}") for ending in SIDECARS)}
    return [file for file in files if file.path not in known and file.name not in NOTES and file.bytes]


def twins(every: Sequence[tuple[Found, Sequence[File]]], budget: Budget) -> dict[Path, Path]:
    """Leftover -> the newest one that is the same byte for byte. Reads only those of equal names and sizes."""
    groups: dict[tuple[tuple[str, int], ...], list[tuple[Found, Sequence[File]]]] = defaultdict(list)
    for found, files in every:
        content = _content(files)
        if content and all(file.plain for file in content):
            groups[tuple((file.name, file.bytes) for file in content)].append((found, content))
    same: dict[Path, Path] = {}
    for members in groups.values():
        size = sum(file.bytes for file in members[0][1])
        if len(members) < 2 or not budget.allows(size * len(members)):
            continue
        newest: dict[tuple[str, ...], Path] = {}
        newest_first = sorted(
            members, key=lambda one: (max(file.modified_at for file in one[1]), one[0].path.name), reverse=True
        )
        for found, its_files in newest_first:
            mark = tuple(digest(file.path) for file in its_files)
            if mark in newest:
                same[found.path] = newest[mark]
            else:
                newest[mark] = found.path
    return same


def digest(path: Path) -> str:
    """SHA-256 of a file that nobody has open through SQLite in this process."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def all_zero(files: Iterable[File]) -> bool:
    """Whether no byte of them says anything."""
    for file in files:
        with open(file.path, "rb") as content:
            while piece := content.read(_CHUNK):
                if piece.count(0) != len(piece):
                    return False
    return True


def owner_of(path: Path) -> int | None:
    """The PID in the name of a working file, None when there is none."""
    found = _PID.search(path.name)
    return next((int(number) for number in found.groups() if number), None) if found else None


def is_alive(pid: int) -> bool:
    """Whether a process has that number now; somebody else's counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def open_in(files: Iterable[File]) -> tuple[list[str], bool]:
    """Who has one of these files open, as "PID N (command)", and whether every process could be seen."""
    from lockowners import NoSuchStore, holders

    said: dict[int, str] = {}
    seen = True
    for file in files:
        if not file.plain or file.name.endswith("-shm"):
            continue
        try:
            scan = holders(file.path, include_self=True)
        except NoSuchStore:
            continue
        seen = seen and scan.complete
        said.update((one.process.pid, f"PID {one.process.pid} ({one.process.command})") for one in scan.holders)
    return [said[pid] for pid in sorted(said)], seen


def _content(files: Sequence[File]) -> list[File]:
    return [file for file in files if file.bytes and file.name not in NOTES and not file.name.endswith("-shm")]


def _inode(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino
