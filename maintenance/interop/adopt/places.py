"""The files that an adoption makes: the original kept aside, and the native store while it is being filled.

Invariant: every file is new, private (0600), and has a working name until it is whole and verified; only then it gets
the name that people see, and never one that something has already. What a killed run left under a working name is never
used, and the next run removes it; a working file whose name has the PID of a living process is that run's.

Not for: the store itself; its content is replaced through the pager. A lock on the working file was rejected: what is
built there is opened and closed by SQLite, which drops a lock of the same process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.engine.create import publish
from hermes_state.engine.files import new_private_file
from hermes_state.errors import Refused

if TYPE_CHECKING:
    from hermes_state.clock import Clock

WORKING = ".adopting-"
ASIDE = ".adopted-from-hermes-agent-"
_SIDECARS = ("-wal", "-shm", "-journal")
_HEADER_BYTES = 100
# Change counter, schema cookie, "version valid for" and the SQLite version that wrote: the backup API counts them up.
_COUNTERS = (slice(24, 28), slice(40, 44), slice(92, 96), slice(96, 100))
_OWNER = re.compile(r"-([0-9]{1,9})\.[a-z]+")


@contextmanager
def working_file(path: Path, clock: Clock, what: str) -> Iterator[Path]:
    """A new empty private file beside `path`; what is left of it is gone when the block ends."""
    working = path.with_name(f"{path.name}{WORKING}{stamp(clock)}-{os.getpid()}.{what}")
    new_private_file(working)
    try:
        yield working
    finally:
        remove(working)


def remove(working: Path) -> None:
    """Remove a private file and what SQLite made beside it."""
    for ending in ("", *_SIDECARS):
        Path(f"{working}{ending}").unlink(missing_ok=True)


def leftovers(path: Path) -> tuple[Path, ...]:
    """Working files that killed runs left beside `path`; folders of such a name are passed over."""
    return tuple(
        sorted(
            found
            for found in path.parent.glob(f"{_literal(path.name)}{WORKING}*")
            if not _is_sidecar(found) and (found.is_symlink() or not found.is_dir())
            and not _in_use(found.name.removeprefix(f"{path.name}{WORKING}"))
        )
    )


def earlier_originals(path: Path) -> tuple[Path, ...]:
    """Originals that earlier runs kept aside."""
    return tuple(
        sorted(found for found in path.parent.glob(f"{_literal(path.name)}{ASIDE}*.db") if not _is_sidecar(found))
    )


def keep_aside(path: Path, whole: Path, clock: Clock) -> Path:
    """Give the verified copy of the original its dated name; returns it."""
    moment = stamp(clock)
    for number in range(1, 1000):
        name = path.with_name(f"{path.name}{ASIDE}{moment}{'' if number == 1 else f'-{number}'}.db")
        if publish(whole, name):
            return name
    raise Refused(f"There are too many originals beside {path}.", hint="Move them to another folder.", path=path)


def kept_already(path: Path, whole: Path) -> Path | None:
    """The original that an earlier run kept aside, when it is the same as the verified copy `whole`."""
    return next((found for found in reversed(earlier_originals(path)) if _same_content(found, whole)), None)


def _same_content(one: Path, other: Path) -> bool:
    """Whether two private databases that nobody has open are the same, apart from how often each was changed."""
    if not one.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as left, other.open("rb") as right:
        first, second = bytearray(left.read(_HEADER_BYTES)), bytearray(right.read(_HEADER_BYTES))
        for counter in _COUNTERS:
            first[counter] = second[counter] = b"\0" * 4
        if first != second:
            return False
        while True:
            piece = left.read(1 << 20)
            if piece != right.read(1 << 20):
                return False
            if not piece:
                return True


def stamp(clock: Clock) -> str:
    """The time now as it stands in file names, UTC."""
    return datetime.fromtimestamp(clock.now(), UTC).strftime("%Y%m%dT%H%M%SZ")


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _in_use(rest: str) -> bool:
    """Whether the process that the end of a working name tells of may still be at work."""
    owner = _OWNER.search(rest)
    if owner is None:
        return False
    try:
        os.kill(int(owner[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, and somebody else's
        return True
    return True


def _is_sidecar(path: Path) -> bool:
    return path.name.endswith(_SIDECARS)
