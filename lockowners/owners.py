"""Who holds which SQLite lock right now, and who waits for one in the kernel.

Invariant: every owner is a row of the kernel's table at the time of the call; nothing is remembered but first-seen
times, and those only by a `Watcher`. An age is "held for at least": the kernel keeps no start time of a lock.

Not for: idle connections without a lock (`scan.holders` finds them) and SQLite's waiting processes, which sleep and
try again instead of blocking in the kernel. Rejected: taking a lock's age from its process' age.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lockowners import gate
from lockowners.devices import watch
from lockowners.errors import NoSuchStore, ProbeUnsupported
from lockowners.lock_table import LockLine
from lockowners.process import read_process
from lockowners.records import Descriptors, Hidden, LockName, LockOwner, LockReport, Process
from lockowners.scan import NAMELESS, OUTSIDE, UNLISTED, sort_hidden
from lockowners.sqlite_bytes import PENDING, RANK, SHARED_LAST, SHM_OPEN, SHM_WRITE, name_locks, name_range
from lockowners.survey import OFD_PID, Survey, take
from lockowners.vantage import look

_RECORD_LOCKS = ("POSIX", "OFDLCK")
_AgeKey = tuple[int, int, LockName, str, int | None, bool]


def lock_owners(
    path: str | os.PathLike[str],
    *,
    proc_root: Path = Path("/proc"),
    descriptors: Descriptors | None = None,
    include_self: bool = False,
) -> LockReport:
    """One look at the lock table. `include_self`: connections of this process are listed as well."""
    watched = watch(path, proc_root)
    if not (proc_root / "locks").exists():
        return LockReport(
            path=Path(watched.path),
            owners=(),
            waiters=(),
            hidden=(),
            complete=False,
            method="none",
            namespace_note="all locks (this system does not show them)",
        )
    if not watched.files:
        raise NoSuchStore(f"{watched.path} does not exist", path=watched.path)
    survey = take(watched, proc_root, None)
    owners: list[LockOwner] = []
    waiters: list[LockOwner] = []
    hidden: list[Hidden] = []
    for pid, rows in sorted(survey.rows.items()):
        if pid == survey.self_pid and not include_self:
            continue
        process = read_process(proc_root, pid)
        if process is None:
            if not survey.refreshed_rows(pid):
                continue
            hidden.append(Hidden(user=UNLISTED, count=1, pids=(pid,), holds=True))
        owners.extend(_owned(survey, process, [row for row in rows if not row.waiting]))
        waiters.extend(_awaited(survey, process, [row for row in rows if row.waiting]))
    if survey.unexplained:
        hidden.append(Hidden(user=NAMELESS, count=1, holds=True))
        owners.extend(_owned(survey, None, survey.unexplained))
    if descriptors is not None and _holds_outside(descriptors):
        hidden.append(Hidden(user=OUTSIDE, count=1, holds=True))
    note = "; ".join(part for part in (look(proc_root, watched).note, survey.table_note) if part)
    return LockReport(
        path=Path(watched.path),
        owners=tuple(sorted(owners, key=_order)),
        waiters=tuple(sorted(waiters, key=_order)),
        hidden=sort_hidden(hidden),
        complete=not hidden and not note,
        method="procfs",
        namespace_note=note,
    )


def _order(owner: LockOwner) -> tuple[bool, int, int, int]:
    return (owner.stale, RANK[owner.lock], owner.slot or 0, owner.process.pid if owner.process else 0)


def _owned(survey: Survey, process: Process | None, rows: list[LockLine]) -> list[LockOwner]:
    record = [row for row in rows if row.kind in _RECORD_LOCKS]
    main = [row for row in record if survey.known[row.key].kind == "main"]
    found = []
    for stale in (False, True):
        shm = [row for row in record if survey.known[row.key].kind == "shm" and survey.known[row.key].deleted is stale]
        if stale and not shm:
            break
        # Rows on the main file belong to the generation that the process works on.
        works_on_stale = any(survey.known[row.key].kind == "shm" and survey.known[row.key].deleted for row in record)
        mains = main if stale or not works_on_stale else []
        for named in name_locks(mains, shm):
            found.append(LockOwner(lock=named.lock, mode=named.mode, slot=named.slot, process=process, stale=stale))
    return found


def _awaited(survey: Survey, process: Process | None, rows: list[LockLine]) -> list[LockOwner]:
    found = []
    for row in rows:
        held = survey.known[row.key]
        named = name_range(held.kind, row) if row.kind in _RECORD_LOCKS else None
        if named is not None:
            found.append(
                LockOwner(lock=named.lock, mode=named.mode, slot=named.slot, process=process, stale=held.deleted)
            )
    return found


def _holds_outside(descriptors: Descriptors) -> bool:
    probes = [(descriptors.main, PENDING, SHARED_LAST - PENDING + 1)]
    probes += [(descriptors.shm, byte, 1) for byte in range(SHM_WRITE, SHM_OPEN + 1)]
    try:
        return any(
            descriptor is not None and gate.conflicting_lock(descriptor, start, length) == 0
            for descriptor, start, length in probes
        )
    except ProbeUnsupported:
        return False


class Watcher:
    """Repeated looks at one store; `age_seconds` is how long each lock was seen held without a gap."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        proc_root: Path = Path("/proc"),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.proc_root = proc_root
        self.now = now
        self._first_seen: dict[_AgeKey, float] = {}

    def look(self, *, descriptors: Descriptors | None = None, include_self: bool = False) -> LockReport:
        """One more look. A lock seen for the first time has age 0."""
        report = lock_owners(self.path, proc_root=self.proc_root, descriptors=descriptors, include_self=include_self)
        now = self.now()
        seen: dict[_AgeKey, float] = {}
        owners = []
        for owner in report.owners:
            key = _age_key(owner)
            seen[key] = self._first_seen.get(key, now)
            owners.append(replace(owner, age_seconds=now - seen[key]))
        self._first_seen = seen
        return replace(report, owners=tuple(owners))


def _age_key(owner: LockOwner) -> _AgeKey:
    process = owner.process
    pid, ticks = (process.pid, process.start_ticks) if process else (OFD_PID, 0)
    return (pid, ticks, owner.lock, owner.mode, owner.slot, owner.stale)
