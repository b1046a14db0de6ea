"""The lock file that a process holds for life, so that the kernel tells everybody when it is gone.

Invariant: `<home>/owners/<nonce>.lock` appears under that name already locked, stays locked until its process ends, and
is never held by a child: exec closes it, and a forked child closes it before anything of it runs and gets a nonce of
its own when it first needs one. It is a file of its own: locking a database file would cancel SQLite's locks.

Not for: judging others (see `death`). A row that says "alive" was rejected: kill -9 does not delete rows.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from pathlib import Path

from hermes_state.clock import SYSTEM, Clock, ClockDomain
from hermes_state.errors import CannotOpen
from hermes_state.owners.identity import PROC, OwnerIdentity, identify

FOLDER = "owners"


def lock_file(home: Path | str, nonce: str) -> Path:
    """Where the owner with this nonce holds its lock."""
    return Path(home) / FOLDER / f"{nonce}.lock"


class Presence:
    """One identity with its lock file, held from the start to `end` or the end of the process.

    A process needs one for each home, see `this_process`; more of them are independent owners.
    """

    def __init__(self, home: Path | str, *, clock: Clock = SYSTEM, proc_root: Path = PROC) -> None:
        """Raises `CannotOpen` when the lock file cannot be made or locked: then nothing may be owned here."""
        self.home = Path(home)
        self.identity = identify(secrets.token_hex(16), clock, proc_root=proc_root)
        with _LOCK:
            self._descriptor: int | None = _hold(self.home, self.identity)
            _PRESENT.add(self)

    @property
    def is_held(self) -> bool:
        """Whether this process still is that owner: False after `end`, and in a child that was forked."""
        return self._descriptor is not None

    def end(self) -> None:
        """Let go, as the end of the process does; whatever is still owned may be taken over at once."""
        with _LOCK:
            descriptor, self._descriptor = self._descriptor, None
            _PRESENT.discard(self)
        if descriptor is not None:
            os.close(descriptor)


_LOCK = threading.RLock()
_PRESENT: set[Presence] = set()
_OF_HOME: dict[tuple[str, ClockDomain], Presence] = {}


def this_process(home: Path | str, *, clock: Clock = SYSTEM) -> OwnerIdentity:
    """The identity of this process at `home`; the first call makes its lock file. Raises `CannotOpen`."""
    return presence_of(home, clock=clock).identity


def presence_of(home: Path | str, *, clock: Clock = SYSTEM) -> Presence:
    """The presence that `this_process` speaks of."""
    key = os.path.realpath(home), clock.domain()
    with _LOCK:
        found = _OF_HOME.get(key)
        if found is None or not found.is_held:
            from hermes_state.owners.death import sweep

            found = _OF_HOME[key] = Presence(key[0], clock=clock)
            sweep(key[0], clock=clock)
        return found


def end_below(folder: Path | str) -> None:
    """Let go of what this process is at every home in `folder`, before that is deleted: for tests with many homes."""
    root = Path(os.path.realpath(folder))
    with _LOCK:
        for presence in tuple(_PRESENT):
            if Path(os.path.realpath(presence.home)).is_relative_to(root):
                presence.end()
        for key in [key for key, presence in _OF_HOME.items() if not presence.is_held]:
            del _OF_HOME[key]


def is_here(nonce: str) -> bool:
    """Whether the owner with this nonce is this process, and still holds its lock file."""
    with _LOCK:
        return any(presence.identity.nonce == nonce for presence in _PRESENT)


def _hold(home: Path, identity: OwnerIdentity) -> int:
    target = lock_file(home, identity.nonce)
    # Windows renames no open file; there the moment between making and locking stays.
    staged = target if sys.platform == "win32" else target.with_suffix(".new")
    descriptor = -1
    try:
        target.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(staged, flags, 0o600)
        os.write(descriptor, identity.to_json().encode() + b"\n")
        lock(descriptor, shared=False, wait=True)  # one that sweeps may look at it for a moment
        # Locked first and named then: nobody finds the lock of a living owner free.
        os.rename(staged, target)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
            staged.unlink(missing_ok=True)
        raise CannotOpen(
            f"This process cannot own anything at {home}: {target} cannot be made and locked ({error.strerror}).",
            hint="Check who owns that folder, and that its file system has locks (flock).",
            path=target, errno=error.errno or 0,
        ) from error
    return descriptor


if sys.platform == "win32":
    import msvcrt

    def lock(descriptor: int, *, shared: bool, wait: bool = False) -> None:
        """Lock this open file, or raise `OSError` at once. Windows has no shared lock here and waits for none."""
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)  # beyond the content, which must stay readable
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:

    def lock(descriptor: int, *, shared: bool, wait: bool = False) -> None:
        """flock this open file; without `wait` raise `OSError` at once (`BlockingIOError`: somebody has it)."""
        import fcntl  # here, so that verbs that take no lease start without it

        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def _in_forked_child() -> None:
    # The lock belongs to the open file that both processes share: closing our copy leaves it with the parent.
    for presence in tuple(_PRESENT):
        descriptor, presence._descriptor = presence._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
    _PRESENT.clear()
    _OF_HOME.clear()
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    # Held across fork, so that no child gets a descriptor that is open and not yet written down.
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_in_forked_child)
