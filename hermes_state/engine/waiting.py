"""The error for a lock that did not come in time, with the holder's name.

Invariant: the message says what waited, how long and for which file, and never holds a command line; holders are the
`holders` attribute and one WARNING each for those that keep others from writing. `lockowners` is imported only here,
when a wait has already failed.

Not for: the waiting itself (see `busy.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from hermes_state.engine.descriptors import StoreDescriptors
from hermes_state.engine.translate import codes
from hermes_state.errors import LockTimeout
from hermes_state.shell_words import shell_word

if TYPE_CHECKING:
    from lockowners import LockOwner

_WRITE_CLASS = {"wal-writer", "checkpointer", "recovery", "reserved", "pending", "exclusive"}


def lock_timeout(
    path: Path, descriptors: StoreDescriptors | None, waited: float, holder: str = "", cause: apsw.Error | None = None,
    wanted: str = "write",
) -> LockTimeout:
    """Build the error; logs each write-class holder once."""
    import logging  # here, like lockowners: nobody pays for them until a wait has failed

    from lockowners import LockOwnersError, lock_owners

    log = logging.getLogger("hermes_state.locks")

    owners: tuple[LockOwner, ...] = ()
    seen = holder
    if not holder:
        try:
            report = lock_owners(path, descriptors=descriptors)
        except (LockOwnersError, OSError) as error:
            seen = f"a process that could not be looked up ({error})"
        else:
            owners = tuple(owner for owner in report.owners if owner.lock in _WRITE_CLASS)
            named = dict.fromkeys(f"{_who(owner)} ({owner.lock})" for owner in owners)
            if named:
                seen = ", ".join(named)
            elif report.complete:
                seen = "a process that let go while it was being looked up"
            else:
                seen = "a process that is not visible from here"
    for owner in owners:
        command = owner.process.command if owner.process is not None else "unknown command"
        log.warning("%s is kept by %s as %s: %s", path, _who(owner), owner.lock, command)
    primary, extended = codes(cause) if cause is not None else (apsw.SQLITE_BUSY, apsw.SQLITE_BUSY)
    return LockTimeout(
        f"The {wanted} lock of {path} did not come within {waited:.1f} s; it is held by {seen}.",
        hint=f"Run `hermes-state locks --db {shell_word(path)}` to see who holds it, and try again.",
        path=path, holders=owners, waited_seconds=waited, sqlite_code=primary, sqlite_extended=extended,
    )


def _who(owner: LockOwner) -> str:
    return f"PID {owner.process.pid}" if owner.process is not None else "a process outside this PID namespace"
