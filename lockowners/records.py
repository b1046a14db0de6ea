"""What a scan and a lock report say, as frozen rows.

Invariant: nothing here ever reads as "nobody" by default. A row that could not be seen is a `Hidden` row, and
`complete` is true only when every process that could matter was looked at.

Not for: rendering. Command lines are kept as they are, control characters replaced in `Process.command` only.
Rejected: plain dictionaries, whose missing keys would read as "none".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

FileKind = Literal["main", "wal", "shm", "journal"]
LockMode = Literal["read", "write"]
Method = Literal["procfs", "psutil", "none"]
Role = Literal["gateway", "cron", "desktop", "cli", "unknown"]
LockName = Literal[
    "wal-writer", "checkpointer", "recovery", "reader", "reserved", "pending", "exclusive", "shared", "open"
]

KINDS: tuple[FileKind, ...] = ("main", "wal", "shm", "journal")
SUFFIXES: dict[FileKind, str] = {"main": "", "wal": "-wal", "shm": "-shm", "journal": "-journal"}


class Descriptors(Protocol):
    """SQLite's own descriptors of the store in this process, as the engine found them."""

    @property
    def main(self) -> int | None: ...
    @property
    def wal(self) -> int | None: ...
    @property
    def shm(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process as the kernel names it at the time of the scan."""

    # Process id as seen through the process table that was read.
    pid: int
    # Field 22 of stat: with the pid, an identity that no later process shares. 0 where the platform has none.
    start_ticks: int
    # Effective user id.
    uid: int
    # Login name of `uid`, or "uid N" when the user database has none.
    user: str
    # The command line on one line with control characters replaced, or "[name]" when there is none.
    command: str
    # The command line as given, undecodable bytes replaced.
    argv: tuple[str, ...] = ()
    # What the command line says it is.
    role: Role = "unknown"
    # Container or PID namespace, when it is not ours.
    container: str | None = None


@dataclass(frozen=True, kw_only=True)
class HeldFile:
    """One file of the store that a holder has open or locked."""

    # Which file of the store.
    kind: FileKind
    # The inode is no longer the one the path names.
    deleted: bool
    # st_dev of the descriptor, or of the file whose lock line matched.
    device: int
    # Inode number.
    inode: int


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A process that has the store open or holds a lock on it."""

    # Who.
    process: Process
    # What showed it: "lock" (a kernel lock line or probe), "descriptor" (an open descriptor).
    via: frozenset[str]
    # Which files, in the order main, wal, shm, journal.
    files: tuple[HeldFile, ...] = ()
    # It works on a main file or sidecar that the path no longer names.
    stale: bool = False


@dataclass(frozen=True, kw_only=True)
class Hidden:
    """Processes of one user whose descriptors could not be read, or a holder that has no visible process."""

    # Login name, or words for whom it may be when there is no user.
    user: str
    # How many; 1 when only "at least one" is known.
    count: int
    # User id; None when the kernel names no process.
    uid: int | None = None
    # Their pids, where there are any.
    pids: tuple[int, ...] = ()
    # True: it is proved that this one has the store open or locked.
    holds: bool = False
    # The file is closed to every user but its owner and root, so far as mode bits tell (no full proof).
    unlikely: bool = False

    @property
    def is_root(self) -> bool:
        """Root's processes could reach any file, so they are counted apart and never excluded by proof."""
        return self.uid == 0

    def describe(self) -> str:
        """`68 processes of root`."""
        noun = "process" if self.count == 1 else "processes"
        return f"{self.count} {noun} {self.user}" if self.uid is None else f"{self.count} {noun} of {self.user}"


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Who has a store open, and what the scan could not see."""

    # The store, links resolved.
    path: Path
    # Every process found, by pid.
    holders: tuple[Holder, ...]
    # What could not be looked at, root first.
    hidden: tuple[Hidden, ...]
    # Unreadable processes that provably cannot reach the file.
    excluded_count: int
    # Nothing hidden and no limit of the vantage point.
    complete: bool
    # How it was found out.
    method: Method
    # Limits of where we look from (child PID namespace, hidepid, network file system), as sentences; "" for none.
    namespace_note: str
    # Wall time of the scan.
    elapsed_seconds: float
    # A file lease showed that no other open file of the main inode exists on this machine (True), that one does
    # (False), or was not asked or cannot tell (None).
    sole_opener: bool | None = None
    # Processes that the limits in `namespace_note` hide may belong to any user, not only to root.
    unlisted_users: bool = False

    @property
    def not_visible(self) -> str:
        """`not visible: 68 processes of root`, or "" when all was seen."""
        return describe_hidden(self.hidden, self.namespace_note)


@dataclass(frozen=True, kw_only=True)
class LockOwner:
    """One SQLite lock that a process holds, or waits for, at the time of the report."""

    # SQLite's name of the lock; "open" is a connection that holds the store open and nothing more.
    lock: LockName
    # How it is held.
    mode: LockMode
    # Who holds it; None when the kernel names no process that we can see.
    process: Process | None
    # How long it was seen held by a `Watcher`; None when this is a single look.
    age_seconds: float | None = None
    # Read mark 0 to 4 for "reader".
    slot: int | None = None
    # The lock is on a WAL index that the path no longer names.
    stale: bool = False


@dataclass(frozen=True, kw_only=True)
class LockReport:
    """Who holds which SQLite lock, and who waits in the kernel for one."""

    # The store, links resolved.
    path: Path
    # Locks held, writers first.
    owners: tuple[LockOwner, ...]
    # Requests blocked in the kernel. SQLite itself never blocks there: its waiting processes are not seen.
    waiters: tuple[LockOwner, ...]
    # Locks whose process cannot be seen.
    hidden: tuple[Hidden, ...]
    # The lock table was readable and shows every process of the machine.
    complete: bool
    # How it was found out.
    method: Method
    # Limits of where we look from.
    namespace_note: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a rewrite may go on."""

    # The answer.
    allowed: bool
    # Why not, a sentence each; empty when allowed.
    reasons: tuple[str, ...] = ()
    # What the scan could not see, also when allowed; "" when it saw all.
    not_visible: str = ""
    # The holders that refuse it, for the caller's own wording.
    holders: tuple[Holder, ...] = field(default=())


def describe_hidden(hidden: tuple[Hidden, ...], note: str) -> str:
    """One line for everything that was not seen."""
    pieces = [", ".join(row.describe() for row in hidden)] if hidden else []
    if note:
        pieces.append(note)
    return f"not visible: {'; '.join(pieces)}" if pieces else ""
