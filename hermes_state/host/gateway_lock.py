"""The lock whose holder owns the host: `gateway.lock`, held for life, freed by the kernel.

Invariant: it is a file of its own, never a database file; opened close-on-exec, closed in a forked child before that
runs, never unlinked, renamed or truncated by us. After it was locked the path is looked at again: a lock on a file
that is no longer there is no lock. What could not be opened is a result of its own, never "free".

Not for: who the holder is (see the record in `ownership`). A row alone was rejected: kill -9 deletes no rows.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hermes_state.clock import SYSTEM, Clock
from hermes_state.file_lock import CLOSE_ON_EXEC, NO_LINK
from hermes_state.host.folder import LOCK_NAME, our_uid
from hermes_state.host.forked import guarded
from hermes_state.owners.presence import lock

_TRIES = 40
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe in its place would keep the open, and every fork, waiting for ever
_NAP_SECONDS = 0.005  # between tries while others are only looking: a look takes microseconds


class Outcome(StrEnum):
    """What an attempt or a look found."""

    ACQUIRED = "acquired"  # of an attempt: ours now
    FREE = "free"  # of a look: nobody had it
    HELD = "held"  # another open file has it
    COULD_NOT_OPEN = "could_not_open"  # nothing is known


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt to get the lock."""

    outcome: Outcome  # ACQUIRED, HELD or COULD_NOT_OPEN
    because: str  # what was seen, a sentence without its end
    lock: GatewayLock | None  # the lock, when it was acquired


@dataclass(frozen=True, kw_only=True)
class Look:
    """What can be seen of the lock without taking it."""

    outcome: Outcome  # FREE, HELD or COULD_NOT_OPEN
    because: str  # what was seen, a sentence without its end


class GatewayLock:
    """The lock, held by this process until `release` or its end."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @property
    def is_held(self) -> bool:
        """Whether this process has it: False after `release`, and in a child that was forked."""
        return self._descriptor is not None

    def still_counts(self) -> bool:
        """Whether the path still is the file that is locked: others take another file for the lock otherwise."""
        return self._descriptor is not None and _same(self._descriptor, self.path)

    def release(self) -> None:
        """Let it go, as the end of the process does. Safe to call twice."""
        with guarded() as kept:
            descriptor, self._descriptor = self._descriptor, None
            kept.discard(self)
        if descriptor is not None:
            os.close(descriptor)

    def forget(self) -> None:
        """For `forked`: the lock belongs to the open file that parent and child share; only our copy is closed."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def acquire(folder: Path, *, clock: Clock = SYSTEM) -> Attempt:
    """Try to become the holder; waits at most 0.2 s, and only for others that look."""
    path = folder / LOCK_NAME
    for _ in range(_TRIES):
        try:
            with guarded() as kept:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC | NO_LINK | _NO_WAIT, 0o600)
                kept.add(found := GatewayLock(path, descriptor))
        except OSError as error:
            return _failed(path, error)
        try:
            refusal = _not_ours(descriptor, path)
            if refusal is not None:
                found.release()
                return Attempt(outcome=Outcome.COULD_NOT_OPEN, because=refusal, lock=None)
            lock(descriptor, shared=False)
            if _same(descriptor, path):
                return Attempt(outcome=Outcome.ACQUIRED, because=f"{path} was locked", lock=found)
            found.release()  # somebody put another file there between opening and locking
            continue
        except BlockingIOError:
            if not _only_looks(descriptor):
                found.release()
                return Attempt(outcome=Outcome.HELD, because=f"another process holds {path}", lock=None)
            found.release()
        except OSError as error:
            found.release()
            return _failed(path, error)
        except BaseException:
            found.release()
            raise
        clock.sleep(_NAP_SECONDS)
    return Attempt(
        outcome=Outcome.COULD_NOT_OPEN, because=f"{path} was being looked at or replaced the whole time", lock=None
    )


def look(folder: Path) -> Look:
    """See whether somebody has the lock, without making the file and without being taken for a holder."""
    path = folder / LOCK_NAME
    try:
        with guarded() as kept:
            # Not O_CREAT: a look leaves nothing behind.
            descriptor = os.open(path, os.O_RDONLY | CLOSE_ON_EXEC | NO_LINK | _NO_WAIT)
            kept.add(found := GatewayLock(path, descriptor))
    except FileNotFoundError:
        reachable = os.path.isdir(folder) or not os.path.lexists(folder)
        outcome = Outcome.FREE if reachable else Outcome.COULD_NOT_OPEN
        return Look(outcome=outcome, because=f"there is no {path}")
    except OSError as error:
        return Look(outcome=Outcome.COULD_NOT_OPEN, because=_failed(path, error).because)
    try:
        refusal = _not_ours(descriptor, path)
        if refusal is not None:
            return Look(outcome=Outcome.COULD_NOT_OPEN, because=refusal)
        # Shared, so that looks do not take each other for the holder; an attempt tells a look from a holder by that.
        lock(descriptor, shared=True)
    except BlockingIOError:
        return Look(outcome=Outcome.HELD, because=f"another process holds {path}")
    except OSError as error:
        return Look(outcome=Outcome.COULD_NOT_OPEN, because=_failed(path, error).because)
    finally:
        found.release()
    return Look(outcome=Outcome.FREE, because=f"nobody holds {path}")


def holders_of(folder: Path) -> tuple[str, ...]:
    """Who has the file of the lock open, as "PID 12" each; as many as this user may see. Reads the process table."""
    from lockowners import LockOwnersError, holders

    try:
        found = holders(folder / LOCK_NAME).holders
    except (LockOwnersError, OSError):
        return ()
    return tuple(f"PID {one.process.pid}" for one in found)


def _only_looks(descriptor: int) -> bool:
    """Whether what keeps the lock from us is shared: looks, which end by themselves."""
    try:
        lock(descriptor, shared=True)
    except OSError:
        return False
    return True


def _same(descriptor: int, path: Path) -> bool:
    ours = os.fstat(descriptor)
    try:
        there = os.lstat(path)
    except OSError:
        return False
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _not_ours(descriptor: int, path: Path) -> str | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is no file"
    if os.name == "posix" and found.st_uid != our_uid():
        return f"{path} belongs to user {found.st_uid}"
    return None


def _failed(path: Path, error: OSError) -> Attempt:
    return Attempt(
        outcome=Outcome.COULD_NOT_OPEN, because=f"{path} could not be opened and locked ({error.strerror})", lock=None
    )
