"""Whether a gateway of hermes-agent lives that would tick a home.

Invariant: the answer is no only when nothing says yes: the kernel's lock on gateway.lock, a process that one of its
records names and that runs as a gateway or a server of desktops, and any such process of this user that was started for
the home: a server of desktops ticks and takes no lock. For a profile the installation's root counts too, whose gateway
serves profiles.

Not for: our own gateways, which are in the host's database. Trusting gateway.pid alone was rejected: a killed gateway
leaves it behind, and its number is used again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.errors import StateError
from hermes_state.file_lock import CLOSE_ON_EXEC, try_lock_alone
from hermes_state.location import home_folder, root_of

if TYPE_CHECKING:
    from lockowners import Process

LOCK = "gateway.lock"
RECORDS = ("gateway.pid", "gateway_state.json", LOCK)
ROLES = ("gateway", "desktop")
PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class LivingGateway:
    """One that lives."""

    home: Path  # where it was found
    pid: int | None  # None: its lock is held, by whom is not known
    because: str  # what says so


def living_gateways(home: Path, environ: Mapping[str, str]) -> list[LivingGateway]:
    """The gateways that may tick a home."""
    folders = dict.fromkeys((home, root_of(home, environ)))
    found = []
    for folder in folders:
        pid = next((pid for name in RECORDS if (pid := _lives(folder / name)) is not None), None)
        if _is_held(folder / LOCK):
            found.append(LivingGateway(home=folder, pid=pid, because=f"{folder / LOCK} is held"))
        elif pid is not None:
            found.append(LivingGateway(home=folder, pid=pid, because=f"PID {pid} of its records runs"))
    known = {one.pid for one in found}
    for process in _started():
        started_for = _home_of(process)
        if process.pid not in known and (started_for is None or started_for in folders):
            because = f"PID {process.pid} ({process.command}) runs"
            found.append(LivingGateway(home=started_for or home, pid=process.pid, because=because))
    return found


def _started() -> Iterator[Process]:
    """The processes of this user that are gateways or servers of desktops by their command lines."""
    from lockowners.descriptors import list_pids
    from lockowners.process import read_process

    if not PROC.is_dir():
        return
    for pid in list_pids(PROC):
        process = read_process(PROC, pid)
        if process is not None and process.role in ROLES and process.uid == os.getuid() and pid != os.getpid():
            yield process


def _home_of(process: Process) -> Path | None:
    """The home that a process was started for; None: it cannot be told, so it may be any."""
    try:
        said = (PROC / str(process.pid) / "environ").read_bytes()
    except OSError:
        return None
    environ = {}
    for pair in said.split(b"\0"):
        name, _, value = pair.partition(b"=")
        if name in (b"HERMES_HOME", b"HOME"):
            environ[name.decode()] = os.fsdecode(value)
    profile = next((after for word, after in pairwise(process.argv) if word in ("-p", "--profile")), None)
    profile = profile or next((word.split("=", 1)[1] for word in process.argv if word.startswith("--profile=")), None)
    try:
        if not environ.get("HERMES_HOME") and environ.get("HOME") != str(Path.home()):
            environ["HERMES_HOME"] = str(Path(environ.get("HOME", "/")) / ".hermes")
        return Path(os.path.realpath(home_folder(None, profile, environ)[0]))
    except StateError:
        return None


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | CLOSE_ON_EXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nothing is known, so it is not free
    try:
        return not try_lock_alone(descriptor)
    finally:
        os.close(descriptor)


def _lives(path: Path) -> int | None:
    """The PID that a record names, when that process runs as a gateway."""
    from lockowners.process import read_process

    try:
        said = json.loads(path.read_text(encoding="utf-8").strip() or "null")
    except (OSError, ValueError):
        return None
    pid = said.get("pid") if isinstance(said, dict) else said
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return None
    process = read_process(PROC, pid)
    return pid if process is not None and process.role in ROLES else None
