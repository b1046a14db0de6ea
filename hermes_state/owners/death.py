"""Whether an owner is provably dead. What is not proven dead is alive until its lease runs out.

Invariant: the answer is yes only within one boot of one machine, when the owner's lock file can be locked, or when its
pid, in the same pid namespace, is gone, is that of a process that has ended and waits for its parent, or belongs to
one with other start ticks. Another boot or namespace, a lock file that is missing or cannot be opened, and a process
table that hides processes prove nothing.

Not for: leases that ran out (see `leases`). Asking the process table alone was rejected: a container has another one.
"""

from __future__ import annotations

import os
import platform
import secrets
from dataclasses import dataclass
from pathlib import Path

from hermes_state.clock import SYSTEM, Clock
from hermes_state.errors import InvalidInput
from hermes_state.owners.identity import PROC, OwnerIdentity, pid_namespace, start_ticks
from hermes_state.owners.presence import FOLDER, is_here, lock, lock_file

# How long the lock file of a dead owner stays after it was found free, since it is what proves the death to others. A
# day is longer than any lease term; for a file of another boot, whose owner may live on another machine, a month.
KEEP_SECONDS = 86_400.0
KEEP_OTHER_BOOTS_SECONDS = 30 * 86_400.0
# Start ticks that no process has.
_NEVER = 2**62


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether an owner is proven dead, and by what."""

    dead: bool  # True only with proof
    because: str  # the proof, or what is missing for one; completes "the owner is (not proven) dead: ..."
    runs: bool = False  # True only with proof, too; neither: nothing is proven


def provably_dead(
    owner: OwnerIdentity, home: Path | str, *, proc_root: Path = PROC, clock: Clock = SYSTEM
) -> Verdict:
    """Judge an owner of a lease at `home`. Takes two system calls for most answers and changes nothing."""
    here = clock.domain()
    if is_here(owner.nonce):
        # Not even opened: where flock is made of POSIX locks, closing the descriptor would give ours up.
        return _alive("it is this process")
    if not owner.boot_id or owner.boot_id != here.boot_id:
        return _unproven("it ran under another boot of this or another machine")
    free = _is_free(lock_file(home, owner.nonce))
    if free:
        return Verdict(dead=True, because="nobody holds its lock file")
    if not owner.pid_namespace or owner.pid_namespace != pid_namespace(proc_root):
        return _alive("it holds its lock file") if free is False else _unproven("it ran in another pid namespace")
    ticks = start_ticks(proc_root, owner.pid)
    if ticks is None:
        if _exists(owner.pid):
            return _unproven(f"pid {owner.pid} exists and the process table hides it")
        return Verdict(dead=True, because=f"pid {owner.pid} is gone")
    # The kernel shifts start ticks by the time namespace of whoever reads them.
    if not here.time_namespace or owner.time_namespace != here.time_namespace:
        return _unproven(f"pid {owner.pid} exists, and its start was noted in another time namespace")
    if owner.start_ticks and ticks != owner.start_ticks:
        return Verdict(dead=True, because=f"pid {owner.pid} belongs to a process that started at another time")
    if _has_ended(proc_root, owner.pid):
        return Verdict(dead=True, because=f"pid {owner.pid} has ended, and its parent has not looked yet")
    return _alive(f"pid {owner.pid} runs since the same time")


def gone_before(pid: int, clock: Clock) -> OwnerIdentity | None:
    """What proves for ever that the process which had `pid` here is gone, whoever has it later; None: it is there."""
    domain, namespace = clock.domain(), pid_namespace(PROC)
    if not domain.boot_id or not namespace or _exists(pid):
        return None
    return OwnerIdentity(
        host=platform.node() or "unknown", boot_id=domain.boot_id, time_namespace=domain.time_namespace,
        pid_namespace=namespace, pid=pid, start_ticks=_NEVER, nonce="0" * 32,  # it holds no lock file
    )


def sweep(home: Path | str, *, clock: Clock = SYSTEM, limit: int = 64) -> int:
    """Look at up to `limit` lock files; remove those found free long enough ago. Gives how many went.

    A file is removed under its own lock, so never while its owner lives. Files of other users are left to them.
    """
    try:
        names = sorted(name for name in os.listdir(Path(home) / FOLDER) if name.endswith((".lock", ".new")))
    except FileNotFoundError:
        return 0
    # From a random one on: with more files than `limit`, every one has its turn.
    start = secrets.randbelow(len(names)) if names else 0
    chosen = [name for name in names[start:] + names[:start] if not is_here(name.partition(".")[0])][:limit]
    return sum(_remove_if_long_dead(Path(home) / FOLDER / name, clock) for name in chosen)


def _alive(because: str) -> Verdict:
    return Verdict(dead=False, because=because, runs=True)


def _unproven(because: str) -> Verdict:
    return Verdict(dead=False, because=because)


def _is_free(path: Path) -> bool | None:
    """Whether the lock file can be locked; None when it is missing or cannot be opened."""
    try:
        descriptor = os.open(path, _FLAGS | os.O_RDONLY)
    except OSError:
        return None
    try:
        # Shared, so that two who look at the same time do not take each other for the owner.
        lock(descriptor, shared=True)
    except BlockingIOError:
        return False
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return True


def _has_ended(proc_root: Path, pid: int) -> bool:
    """Whether a process that the table shows is only an exit code: no thread of it runs any more."""
    try:
        text = (proc_root / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # Fields 3 and 20. A first thread that ended before the others is a zombie too, in a process that goes on.
    rest = text[text.rfind(")") + 1 :].split()
    return len(rest) > 17 and rest[0] in ("Z", "X", "x") and rest[17] in ("0", "1")


def _exists(pid: int) -> bool:
    """Asks the kernel, which a hidden or foreign /proc does not mislead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def _remove_if_long_dead(path: Path, clock: Clock) -> bool:
    try:
        descriptor = os.open(path, _FLAGS | os.O_RDWR)
    except OSError:
        return False  # another user's, or removed meanwhile
    try:
        lock(descriptor, shared=False)
        said = os.read(descriptor, 4096).decode("utf-8", "replace").splitlines()
        found_free = _number(said[1]) if len(said) > 1 else None
        if found_free is None:
            os.write(descriptor, f"{clock.now()}\n".encode())
            return False
        if clock.now() - found_free < _keep_seconds(said[0], clock):
            return False
        os.unlink(path)
    except OSError:
        return False  # held by its owner, or by another process that sweeps
    finally:
        os.close(descriptor)
    return True


def _keep_seconds(identity: str, clock: Clock) -> float:
    try:
        same_boot = OwnerIdentity.from_json(identity).boot_id == clock.domain().boot_id
    except InvalidInput:
        same_boot = False
    return KEEP_SECONDS if same_boot else KEEP_OTHER_BOOTS_SECONDS


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
