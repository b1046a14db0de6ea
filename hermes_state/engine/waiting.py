"""The error for a lock that did not come in time, with the holder's name.

Invariant: the message says what waited, how long and for which file, and never holds a command line; holders are the
`holders` attribute and one WARNING each for those that keep others from writing. `lockowners` is imported only here,
when a wait has already failed.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import apsw

from hermes_state.engine.descriptors import StoreDescriptors
from hermes_state.engine.translate import codes
from hermes_state.errors import LockTimeout

LOG = logging.getLogger("hermes_state.locks")
_WRITE_CLASS = {"wal-writer", "checkpointer", "recovery", "reserved", "pending", "exclusive"}


def lock_timeout(
    path: Path, descriptors: StoreDescriptors | None, waited: float, holder: str = "", cause: apsw.Error | None = None,
    wanted: str = "write",
) -> LockTimeout:
    """Build the error; logs each write-class holder once."""
    from lockowners import LockOwnersError, lock_owners

    owners: tuple[Any, ...] = ()
    seen = holder
    if not holder:
        try:
            report = lock_owners(path, descriptors=descriptors)
        except (LockOwnersError, OSError) as error:
            seen = f"a process that could not be looked up ({error})"
        else:
            owners = tuple(owner for owner in report.owners if owner.lock in _WRITE_CLASS)
            if owners:
                seen = ", ".join(f"PID {pid} ({lock})" for pid, lock in dict.fromkeys(
                    (owner.process.pid, owner.lock) for owner in owners))
            elif report.complete:
                seen = "a process that let go while it was being looked up"
            else:
                seen = "a process that is not visible from here"
    for owner in owners:
        LOG.warning("%s is kept by PID %d as %s: %s", path, owner.process.pid, owner.lock, owner.process.command)
    primary, extended = codes(cause) if cause is not None else (apsw.SQLITE_BUSY, apsw.SQLITE_BUSY)
    return LockTimeout(
        f"The {wanted} lock of {path} did not come within {waited:.1f} s; it is held by {seen}.",
        hint=f"Run `hermes locks --db {path}` to see who holds it, and try again.",
        path=path, holders=owners, waited_seconds=waited, sqlite_code=primary, sqlite_extended=extended,
    )
