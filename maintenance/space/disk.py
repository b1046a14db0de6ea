"""Whether the disk has room for a rewrite, asked before it starts.

Invariant: room is asked for on the file systems that will really be written: the store's directory (WAL, journal, copy)
and SQLite's directory for temporary files; when both are one file system their needs are added. A refusal carries the
numbers. Nothing is created to find out.

Not for: the disk filling up meanwhile (SQLite rolls back and the engine raises DiskFull). Asking for a flat "twice the
file" was rejected: a file that is 90 % free needs a tenth of itself, and the people who need this most have no room.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hermes_state.errors import InsufficientSpace
from maintenance.output.text import human_bytes

# On top of the need of a rewrite: SQLite's own bookkeeping, and whoever else writes to the disk meanwhile.
MARGIN_BYTES = 16 * 1024 * 1024

# Where SQLite puts temporary files, in its own order; the first that is a writable directory is used.
_TEMP_VARIABLES = ("SQLITE_TMPDIR", "TMPDIR")
_TEMP_PLACES = ("/var/tmp", "/usr/tmp", "/tmp", ".")

# A rewrite's temporary copy may stay in memory up to this size, and never above a quarter of what is available.
_MEMORY_LIMIT_BYTES = 2 * 1024**3


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a rewrite writes and where."""

    # Directory whose file system it lands on.
    directory: Path
    # Bytes at the peak.
    bytes: int
    # What it is, for the plan.
    what: str


@dataclass(frozen=True, kw_only=True)
class Room:
    """One file system that a rewrite writes to."""

    # A directory on it, to show.
    directory: Path
    # Bytes needed at the peak, margin included.
    needed_bytes: int
    # Bytes that this user may still write.
    free_bytes: int

    @property
    def enough(self) -> bool:
        """Whether the need fits."""
        return self.needed_bytes <= self.free_bytes

    def document(self) -> dict[str, int | str]:
        """The fields of `--json`."""
        return {
            "directory": str(self.directory),
            "needed_bytes": self.needed_bytes,
            "free_bytes": self.free_bytes,
        }


FreeBytes = Callable[[Path], int]


def free_bytes(directory: Path) -> int:
    """Bytes that an unprivileged process may still write on the file system of `directory`."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def temporary_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory in which SQLite will create its temporary files."""
    places = [environment[name] for name in _TEMP_VARIABLES if environment.get(name)]
    for place in (*places, *_TEMP_PLACES):
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    return Path(".")


def fits_in_memory(wanted: int, *, proc_root: Path = Path("/proc"), cgroup_root: Path = Path("/sys/fs/cgroup")) -> bool:
    """Whether a temporary copy of `wanted` bytes may stay in memory. False where the system does not say."""
    if wanted > _MEMORY_LIMIT_BYTES:
        return False
    available = free_memory(proc_root=proc_root, cgroup_root=cgroup_root)
    return available is not None and wanted * 4 <= available


def free_memory(*, proc_root: Path = Path("/proc"), cgroup_root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes of memory that this process may still take, None where the system does not say."""
    available = _memory_available(proc_root)
    limit = _cgroup_room(cgroup_root)
    return available if limit is None or available is None else min(available, limit)


def _memory_available(proc_root: Path) -> int | None:
    try:
        lines = (proc_root / "meminfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _cgroup_room(cgroup_root: Path) -> int | None:
    """What the control group still allows, or None when it sets no limit that can be read."""
    try:
        limit = (cgroup_root / "memory.max").read_text(encoding="ascii").strip()
        used = (cgroup_root / "memory.current").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else None


def rooms(
    needs: list[Need], *, free: FreeBytes = free_bytes, margin_bytes: int = MARGIN_BYTES
) -> tuple[Room, ...]:
    """The needs, added up by file system, with a margin on each."""
    by_device: dict[int, list[Need]] = {}
    for need in needs:
        if need.bytes > 0:
            by_device.setdefault(os.stat(need.directory).st_dev, []).append(need)
    return tuple(
        Room(
            directory=group[0].directory,
            needed_bytes=sum(need.bytes for need in group) + margin_bytes,
            free_bytes=free(group[0].directory),
        )
        for group in by_device.values()
    )


def require_room(found: tuple[Room, ...], *, what: str, instead: str = "") -> None:
    """Refuse with the numbers when a file system is too full for it; `instead` says what needs less."""
    for room in found:
        if not room.enough:
            missing = room.needed_bytes - room.free_bytes
            hint = f"Free {human_bytes(missing)} there, or move the store to a larger file system. {instead}"
            raise InsufficientSpace(
                f"{what} needs {human_bytes(room.needed_bytes)} on the file system of {room.directory}, "
                f"and {human_bytes(room.free_bytes)} are free. Nothing was changed.",
                hint=hint.rstrip(),
                needed_bytes=room.needed_bytes,
                free_bytes=room.free_bytes,
                directory=str(room.directory),
            )
