"""The identity of an owner: which process of which boot of which machine.

Invariant: two processes never have the same identity (the nonce), and what could prove one of them dead is in it: boot,
pid namespace, pid, start ticks. Start ticks are read in a time namespace and shift with it, so that is in it as well.

Not for: the fence, which belongs to a lease. Wall-clock start times were rejected: they move when the clock is set.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from hermes_state.clock import Clock
from hermes_state.errors import InvalidInput

PROC = Path("/proc")
_NONCE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class OwnerIdentity:
    """One process that takes leases."""

    host: str  # name of the machine; for people only
    boot_id: str  # of the machine's boot; "" when the platform does not say
    time_namespace: str  # in which the start ticks were read, see `ClockDomain`
    pid_namespace: str  # inode of the pid namespace and start ticks of its pid 1; "none" on macOS, "" when unknown
    pid: int  # within that namespace
    start_ticks: int  # field 22 of /proc/PID/stat; 0 when the platform has none
    nonce: str  # 32 random hexadecimal digits, the name of its lock file

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.start_ticks}"

    def to_json(self) -> str:
        """The form kept in rows: equal identities give equal texts."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> OwnerIdentity:
        """The identity that `to_json` wrote; unknown fields of later versions are left out. Raises `InvalidInput`."""
        try:
            record = json.loads(text)
            found = cls(**{field.name: record[field.name] for field in fields(cls)})
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable(text) from error
        # The pid is given to the kernel and the nonce names a file: nothing else than these may get there.
        numbers = (found.pid, found.start_ticks)
        texts = (found.host, found.boot_id, found.time_namespace, found.pid_namespace, found.nonce)
        if not all(type(number) is int for number in numbers) or not all(isinstance(word, str) for word in texts):
            raise _unreadable(text)
        if found.pid <= 0 or found.start_ticks < 0 or not _NONCE.fullmatch(found.nonce):
            raise _unreadable(text)
        return found


def _unreadable(text: str) -> InvalidInput:
    return InvalidInput(
        f"{text[:80]!r} is no owner identity.", hint="Write owners with OwnerIdentity.to_json().", text=text
    )


def identify(nonce: str, clock: Clock, *, proc_root: Path = PROC) -> OwnerIdentity:
    """This process under the given nonce."""
    domain = clock.domain()
    return OwnerIdentity(
        host=platform.node() or "unknown",
        boot_id=domain.boot_id,
        time_namespace=domain.time_namespace,
        pid_namespace=pid_namespace(proc_root),
        pid=os.getpid(),
        start_ticks=start_ticks(proc_root, "self") or 0,
        nonce=nonce,
    )


def pid_namespace(proc_root: Path = PROC) -> str:
    """The pid namespace of this process, or "" when the process table in sight is not that of its own namespace.

    The inode alone names nothing for ever: the next namespace gets it again (seen on Linux 6.18).
    """
    if sys.platform == "darwin":
        return "none"
    first = start_ticks(proc_root, 1)
    try:
        status = (proc_root / "self/status").read_text(encoding="utf-8", errors="replace")
        inode = os.readlink(proc_root / "self/ns/pid").removeprefix("pid:").strip("[]")
    except OSError:
        return ""
    # One number for each namespace from that of the process table down to ours: exactly one when both are the same.
    ours = next((row.split()[1:] for row in status.splitlines() if row.startswith("NSpid:")), [])
    if ours != [str(os.getpid())] or first is None:
        return ""
    return f"{inode}:{first}"


def start_ticks(proc_root: Path, pid: int | str) -> int | None:
    """Field 22 of /proc/PID/stat; None when the process table does not show it."""
    try:
        text = (proc_root / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name may hold spaces and parentheses; what follows its last parenthesis begins with field 3.
    rest = text[text.rfind(")") + 1 :].split()
    return int(rest[19]) if len(rest) > 19 and rest[19].isdigit() else None
