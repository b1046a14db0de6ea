"""Who a process is: identity, user, command line, role, container. The only module that knows psutil.

Invariant: pid and start ticks together name one process for ever. Everything is read from world-readable files, so a
process whose descriptors are closed to us is still named. A process that ended while it was read is None, not an error.

Not for: what the process has open. Rejected: psutil on Linux (its start time is a wall-clock time that moves with the
clock, and it costs ten times as much); importing it at import time (40 ms for a command that never needs it).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lockowners.containers import container_of
from lockowners.records import Process
from lockowners.roles import role_of

_PF_KTHREAD = 0x00200000
_KTHREADD = 2


@dataclass(frozen=True, kw_only=True)
class Stat:
    """The fields of /proc/PID/stat that are used here."""

    # Name of the program, at most 15 bytes; may hold spaces and parentheses.
    name: str
    # One letter; Z and X have no descriptors.
    state: str
    # Parent.
    parent: int
    # PF_* flags.
    flags: int
    # Live threads; a leader that ended before its threads is a zombie whose process goes on.
    threads: int
    # Field 22.
    start_ticks: int

    @property
    def is_kernel_thread(self) -> bool:
        return bool(self.flags & _PF_KTHREAD) or self.parent == _KTHREADD

    @property
    def is_dead(self) -> bool:
        return self.state in "ZXx" and self.threads <= 1


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The lines of /proc/PID/status that decide what a process may open."""

    # Real, effective, saved, file system.
    uids: tuple[int, ...]
    gids: tuple[int, ...]
    # Supplementary groups.
    groups: frozenset[int]
    # Union of the effective and permitted capabilities.
    capabilities: int
    # Depth of PID namespaces below the one of the process table.
    pid_depth: int

    @property
    def effective_uid(self) -> int:
        return self.uids[1]


def parse_stat(text: str) -> Stat | None:
    """/proc/PID/stat; None when it is not of the known form."""
    opening, closing = text.find("("), text.rfind(")")
    rest = text[closing + 1 :].split()
    if opening < 0 or closing < opening or len(rest) < 20:
        return None
    try:
        return Stat(
            name=text[opening + 1 : closing],
            state=rest[0],
            parent=int(rest[1]),
            flags=int(rest[6]),
            threads=int(rest[17]),
            start_ticks=int(rest[19]),
        )
    except ValueError:
        return None


def parse_status(text: str) -> Credentials | None:
    """/proc/PID/status; None when a line that decides about access is missing."""
    lines = dict(line.partition(":")[::2] for line in text.splitlines())
    try:
        uids = tuple(int(part) for part in lines["Uid"].split())
        gids = tuple(int(part) for part in lines["Gid"].split())
        groups = frozenset(int(part) for part in lines["Groups"].split())
        capabilities = int(lines["CapEff"], 16) | int(lines["CapPrm"], 16)
    except (KeyError, ValueError):
        return None
    if len(uids) != 4 or len(gids) != 4:
        return None
    depth = max(0, len(lines.get("NSpid", "").split()) - 1)
    return Credentials(uids=uids, gids=gids, groups=groups, capabilities=capabilities, pid_depth=depth)


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_stat(proc_root: Path, pid: int) -> Stat | None:
    """None: it ended, or the process table hides it."""
    data = _read(f"{proc_root}/{pid}/stat")
    return None if data is None else parse_stat(data.decode("utf-8", "replace"))


def read_credentials(proc_root: Path, pid: int | str) -> Credentials | None:
    """None: it ended, or the process table hides it."""
    data = _read(f"{proc_root}/{pid}/status")
    return None if data is None else parse_status(data.decode("utf-8", "replace"))


def started_at(start_ticks: int, *, proc_root: Path = Path("/proc")) -> float | None:
    """When a process started, in seconds since 1970: for people, since it moves when the clock is set.

    None when the platform has no start time, or the process table does not say when the machine started.
    """
    if not start_ticks:
        return None
    if not proc_root.exists():
        return start_ticks / 1000  # what `portable_processes` puts there
    rows = (_read(f"{proc_root}/stat") or b"").splitlines()
    booted = next((row.split()[1] for row in rows if row.startswith(b"btime ")), None)
    return None if booted is None else int(booted) + start_ticks / os.sysconf("SC_CLK_TCK")


def user_name(uid: int) -> str:
    """Login name, or `uid N`."""
    if sys.platform == "win32":
        return f"uid {uid}"
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def command_text(argv: tuple[str, ...], name: str) -> str:
    """A command line for one line of text."""
    text = " ".join(argv) if argv else f"[{name}]"
    return "".join(char if char.isprintable() else "?" for char in text)


def split_arguments(data: bytes) -> tuple[str, ...]:
    """/proc/PID/cmdline. A program that overwrote it (setproctitle) leaves one string, padded."""
    parts = data.rstrip(b"\0").split(b"\0") if data.strip(b"\0 ") else []
    return tuple(part.decode("utf-8", "replace") for part in parts)


def read_process(proc_root: Path, pid: int) -> Process | None:
    """The identity of a live process; None when it ended (zombies did) or is hidden."""
    stat = read_stat(proc_root, pid)
    credentials = read_credentials(proc_root, pid)
    if stat is None or stat.is_dead or credentials is None:
        return None
    argv = split_arguments(_read(f"{proc_root}/{pid}/cmdline") or b"")
    return Process(
        pid=pid,
        start_ticks=stat.start_ticks,
        uid=credentials.effective_uid,
        user=user_name(credentials.effective_uid),
        command=command_text(argv, stat.name),
        argv=argv,
        role=role_of(argv),
        container=container_of(proc_root, pid, credentials.pid_depth),
    )


@dataclass(frozen=True, kw_only=True)
class PortableProcess:
    """A process as psutil sees it, on systems without /proc."""

    # Who.
    process: Process
    # Paths of its open files; None when they may not be read.
    paths: tuple[str, ...] | None


def has_psutil() -> bool:
    """Whether the fallback is there."""
    try:
        import psutil  # noqa: F401
    except ImportError:
        return False
    return True


def portable_processes() -> Iterator[PortableProcess]:
    """Every process and its open files through psutil. It never sees deleted files, nor locks."""
    import psutil

    for entry in psutil.process_iter():
        try:
            with entry.oneshot():
                argv, uid, user, name = _portable_identity(entry)
                created = int(entry.create_time() * 1000)
            try:
                paths: tuple[str, ...] | None = tuple(opened.path for opened in entry.open_files())
            except psutil.AccessDenied:
                paths = None
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        process = Process(
            pid=entry.pid,
            start_ticks=created,
            uid=uid,
            user=user,
            command=command_text(argv, name),
            argv=argv,
            role=role_of(argv),
        )
        yield PortableProcess(process=process, paths=paths)


def _portable_identity(entry: object) -> tuple[tuple[str, ...], int, str, str]:
    import psutil

    assert isinstance(entry, psutil.Process)
    try:
        argv = tuple(entry.cmdline())
    except psutil.AccessDenied:
        argv = ()
    try:
        # Windows has no user ids; its system accounts are the ones that may reach any file.
        uid = entry.uids().effective if hasattr(entry, "uids") else -1
    except psutil.AccessDenied:
        uid = -1
    try:
        user, name = entry.username(), entry.name()
    except psutil.AccessDenied:
        user, name = "unknown", str(entry.pid)
    return argv, uid, user, name
