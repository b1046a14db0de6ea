"""The kernel's lock table, `/proc/locks`, as rows.

Invariant: a row is read from its right end (type, pid, device and inode, start, end), because what stands left of it
differs between kernels; a line that still cannot be read is kept in `unknown`, never dropped. Ranges are compared by
overlap, never by equality: the kernel merges neighbouring ranges of one owner.

Not for: an atomic picture. One read returns about sixty lines and the list may move between reads, so the table is read
at least twice and united; `gate` asks the kernel atomically.
Rejected: `lslocks`, which is not everywhere and drops the rows of processes it cannot open.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lockowners.errors import LockTableUnreadable
from lockowners.records import LockMode

# (major, minor, inode): the kernel's own name of a locked file.
FileKey = tuple[int, int, int]


class LockLine(NamedTuple):
    """One granted or waiting lock; a tuple, because a busy machine has thousands, and each is hashed for each look."""

    # POSIX, OFDLCK, FLOCK, LEASE, DELEG, ...
    kind: str
    # The kernel's READ or WRITE.
    mode: LockMode
    # Owner; -1 for OFD locks, which belong to an open file and not to a process.
    pid: int
    # The locked file.
    key: FileKey
    # First byte.
    start: int
    # Last byte, inclusive; None for "to the end of the file".
    end: int | None
    # A request that waits for another lock (`->`).
    waiting: bool

    def overlaps(self, first: int, last: int) -> bool:
        """Whether any byte of first..last (inclusive) is covered."""
        return self.start <= last and (self.end is None or self.end >= first)


@dataclass(frozen=True, kw_only=True)
class LockTable:
    """All rows of one or more readings."""

    # Rows in the order first seen, each once.
    lines: tuple[LockLine, ...]
    # Lines that could not be understood.
    unknown: tuple[str, ...] = ()

    def on(self, keys: Iterable[FileKey]) -> tuple[LockLine, ...]:
        """The rows on any of these files."""
        wanted = frozenset(keys)
        return tuple(line for line in self.lines if line.key in wanted)


def parse_line(text: str) -> LockLine | None:
    """One line; None when it is not understood."""
    number, colon, rest = text.partition(":")
    return _parsed(rest) if colon and len(number.split()) == 1 else None


@functools.lru_cache(maxsize=4096)  # the rows of one reading are mostly those of the reading before
def _parsed(rest: str) -> LockLine | None:
    """A line without its number."""
    fields = rest.split()
    if len(fields) < 6:
        return None
    waiting = fields[0] == "->"
    mode: LockMode
    if fields[-5] == "WRITE":
        mode = "write"
    elif fields[-5] in ("READ", "UNLCK"):
        # UNLCK is a lease on its way down: its owner still has the file open.
        mode = "read"
    else:
        return None
    place = fields[-3].split(":")
    if len(place) != 3:
        return None
    try:
        key = (int(place[0], 16), int(place[1], 16), int(place[2]))
        start = int(fields[-2])
        end = None if fields[-1] == "EOF" else int(fields[-1])
        pid = int(fields[-4])
    except ValueError:
        return None
    return LockLine(
        kind=fields[1 if waiting else 0], mode=mode, pid=pid, key=key, start=start, end=end, waiting=waiting
    )


def parse(text: str) -> LockTable:
    """A whole table. `<none>:0` rows name no file and are left out: no store can be meant by them."""
    lines: dict[LockLine, None] = {}
    unknown: list[str] = []
    for raw in text.splitlines():
        if not raw.strip() or "<none>" in raw:
            continue
        line = parse_line(raw)
        if line is None:
            unknown.append(raw)
        else:
            lines[line] = None
    return LockTable(lines=tuple(lines), unknown=tuple(unknown))


def unite(tables: Iterable[LockTable]) -> LockTable:
    """Rows of several readings, each once."""
    lines: dict[LockLine, None] = {}
    unknown: dict[str, None] = {}
    for table in tables:
        lines.update(dict.fromkeys(table.lines))
        unknown.update(dict.fromkeys(table.unknown))
    return LockTable(lines=tuple(lines), unknown=tuple(unknown))


def read_table(proc_root: Path = Path("/proc"), *, passes: int = 2) -> LockTable:
    """The table, read `passes` times and united."""
    return unite(parse(_text(proc_root / "locks")) for _ in range(passes))


def _text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LockTableUnreadable(f"{path} cannot be read: {error.strerror}") from error
    try:
        # One reading in as few calls as the kernel allows: between two calls the list may move.
        pieces = []
        while piece := os.read(descriptor, 1 << 20):
            pieces.append(piece)
    except OSError as error:
        raise LockTableUnreadable(f"{path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode("ascii", "replace")
