"""Whether a gateway of hermes-agent lives that would tick a home.

Invariant: the answer is no only when nothing says yes: the kernel's lock on gateway.lock, and a process that one of its
records names and that runs as a gateway or a server of desktops. Both are looked for in the home and, for a profile, in
its installation's root, whose gateway serves profiles too.

Not for: our own gateways, which are in the host's database. Trusting gateway.pid alone was rejected: a killed gateway
leaves it behind, and its number is used again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hermes_state.file_lock import CLOSE_ON_EXEC, try_lock_alone
from hermes_state.location import root_of

LOCK = "gateway.lock"
RECORDS = ("gateway.pid", "gateway_state.json", LOCK)
ROLES = ("gateway", "desktop")


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
    return found


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
    process = read_process(Path("/proc"), pid)
    return pid if process is not None and process.role in ROLES else None
