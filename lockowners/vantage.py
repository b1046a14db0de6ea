"""What can be seen from here at all: PID namespace, hidepid, file system of other machines.

Invariant: when the process table may leave out processes, that is said in words, and it is never taken for "nobody".

Not for: single processes that are listed but closed to us; those are counted by user in `scan`.
Rejected: trusting pid 1's name, which any container sets as it likes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lockowners.devices import MountRow, Watched, read_mounts
from lockowners.process import read_credentials, read_stat

# The kernel gives the first PID namespace this inode on every machine since Linux 3.8.
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
_CAP_SYS_PTRACE = 1 << 19
_HIDING = frozenset(
    {"hidepid=1", "hidepid=2", "hidepid=4", "hidepid=noaccess", "hidepid=invisible", "hidepid=ptraceable"}
)


@dataclass(frozen=True, kw_only=True)
class Vantage:
    """Limits of one process table."""

    # Sentences without a full stop; empty when every process of the machine is listed.
    limits: tuple[str, ...]
    # A process of any user may be unlisted.
    unlisted_users: bool

    @property
    def note(self) -> str:
        return "; ".join(self.limits)


def look(proc_root: Path, watched: Watched) -> Vantage:
    """The limits of looking at this store through this process table."""
    limits = []
    if not is_initial_namespace(proc_root):
        limits.append("processes outside this PID namespace")
    if hides_processes(proc_root, read_mounts(proc_root)):
        limits.append(f"processes of other users ({proc_root} is mounted with hidepid)")
    if watched.is_network:
        limits.append(f"processes on other machines (the store is on {watched.fs_type})")
    return Vantage(limits=tuple(limits), unlisted_users=bool(limits))


def is_initial_namespace(proc_root: Path) -> bool:
    """Whether the process table lists the whole machine."""
    try:
        namespace = os.readlink(proc_root / "self" / "ns" / "pid")
    except OSError:
        namespace = ""
    if namespace == INITIAL_PID_NAMESPACE:
        return True
    # An outer process table may be mounted in a child namespace. Kernel threads live in the first one only.
    second = read_stat(proc_root, 2)
    return second is not None and second.name == "kthreadd" and second.parent == 0 and second.is_kernel_thread


def hides_processes(proc_root: Path, mounts: tuple[MountRow, ...]) -> bool:
    """Whether hidepid keeps processes of other users from us."""
    point = os.path.realpath(proc_root)
    here = [row for row in mounts if row.fs_type == "proc" and row.point == point]
    if not any(row.options & _HIDING for row in here[-1:]):
        return False
    own = read_credentials(proc_root, "self")
    return own is None or not own.capabilities & _CAP_SYS_PTRACE
