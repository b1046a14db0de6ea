"""Every process that has a store open or holds a lock on it, and what could not be seen.

Invariant: fails closed. A process is left out only when it provably does not matter: it ended, it is a kernel thread
or a zombie, its descriptors were read to the end and none is the store's, or it provably cannot reach the files. All
others are a `Holder` or are counted in `Hidden`.

Not for: which lock is held (`owners`) and whether a rewrite may go on (`verdicts`). Rejected: stopping at the first
holder; the reader needs the whole list to stop them.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from pathlib import Path

from lockowners import gate
from lockowners.containers import container_of
from lockowners.descriptors import list_pids
from lockowners.devices import LOCAL_TYPES, Watched, watch
from lockowners.errors import NoSuchStore, ProbeUnsupported
from lockowners.process import read_credentials, read_process, read_stat, user_name
from lockowners.reach import Reach
from lockowners.records import SUFFIXES, Descriptors, HeldFile, Hidden, Holder, Scan
from lockowners.sqlite_bytes import PENDING, RESERVED, SHARED_FIRST, SHARED_LAST, SHM_OPEN, SHM_WRITE
from lockowners.survey import Survey, take
from lockowners.vantage import Vantage, look

OUTSIDE = "outside this PID namespace that holds a lock"
UNSEEN_OPENER = "that has the file open and is not among the visible ones"
NAMELESS = "that holds an OFD lock through a descriptor that is not visible"
UNLISTED = "that holds a lock and is not listed"


def holders(
    path: str | os.PathLike[str],
    *,
    proc_root: Path = Path("/proc"),
    descriptors: Descriptors | None = None,
    include_self: bool = False,
    ask_lease: bool = False,
) -> Scan:
    """Scan for everybody who has the store open.

    `descriptors`: SQLite's own descriptors in this process; with them the kernel is also asked atomically.
    `ask_lease`: with them, also whether any other open file of the main inode exists at all (see `gate.sole_opener`);
    for callers that are about to rewrite, not for read-only ones.
    """
    started = time.perf_counter()
    watched = watch(path, proc_root)
    if not (proc_root / "locks").exists():
        from lockowners.portable import portable_scan

        return portable_scan(watched, started=started, include_self=include_self, use_psutil=sys.platform != "linux")
    survey = take(watched, proc_root, list_pids(proc_root))
    if not watched.files and not survey.tables.found:
        raise NoSuchStore(
            f"{watched.path} does not exist, and no process has a deleted file of that name open", path=watched.path
        )
    found, hidden = _holders(survey, include_self)
    excluded = _sort_unreadable(survey, found, hidden)
    if descriptors is not None:
        _ask_kernel(survey, descriptors, found, hidden)
    sole = _ask_lease(survey, descriptors, found, hidden) if descriptors is not None and ask_lease else None
    vantage = look(proc_root, watched)
    note = "; ".join(part for part in (vantage.note, survey.table_note) if part)
    return Scan(
        path=Path(watched.path),
        holders=tuple(found[pid] for pid in sorted(found)),
        hidden=sort_hidden(hidden),
        excluded_count=excluded,
        complete=not hidden and not note,
        method="procfs",
        namespace_note=note,
        elapsed_seconds=time.perf_counter() - started,
        sole_opener=sole,
        unlisted_users=_unlisted_users(vantage, watched, proc_root),
    )


def sort_hidden(hidden: list[Hidden]) -> tuple[Hidden, ...]:
    """Proved holders first, then root, then the others by name."""
    return tuple(sorted(hidden, key=lambda row: (not row.holds, not row.is_root, row.user)))


def _holders(survey: Survey, include_self: bool) -> tuple[dict[int, Holder], list[Hidden]]:
    found: dict[int, Holder] = {}
    hidden: list[Hidden] = []
    pids = set(survey.tables.found) | set(survey.rows)
    if not include_self:
        pids.discard(survey.self_pid)
    for pid in sorted(pids):
        process = read_process(survey.proc_root, pid)
        if process is None:
            # It ended meanwhile, unless the kernel still shows its locks.
            if pid in survey.rows and survey.refreshed_rows(pid):
                hidden.append(Hidden(user=UNLISTED, count=1, pids=(pid,), holds=True))
            continue
        via = {"descriptor"} if pid in survey.tables.found else set()
        if pid in survey.rows:
            via.add("lock")
        files = survey.held_files(pid)
        found[pid] = Holder(process=process, via=frozenset(via), files=files, stale=any(held.deleted for held in files))
    if survey.unexplained:
        hidden.append(Hidden(user=NAMELESS, count=1, holds=True))
    return found, hidden


def _sort_unreadable(survey: Survey, found: dict[int, Holder], hidden: list[Hidden]) -> int:
    """Count the processes whose descriptors are closed to us by user; the number of those excluded by proof."""
    excluded = 0
    reach: Reach | None = None
    by_uid: defaultdict[int, list[int]] = defaultdict(list)
    for pid in survey.tables.unreadable:
        if pid in found or pid == survey.self_pid:
            continue
        stat = read_stat(survey.proc_root, pid)
        if stat is not None and (stat.is_dead or stat.is_kernel_thread):
            continue
        who = read_credentials(survey.proc_root, pid)
        if stat is None or who is None:
            try:
                uid = os.stat(survey.proc_root / str(pid)).st_uid
            except OSError:
                continue
            by_uid[uid].append(pid)
            continue
        if who.effective_uid != 0:
            if reach is None:
                reach = reach_of(survey.watched, survey.proc_root)
            if reach.is_excluded(who, same_view=container_of(survey.proc_root, pid, who.pid_depth) is None):
                excluded += 1
                continue
        by_uid[who.effective_uid].append(pid)
    for uid, pids in by_uid.items():
        hidden.append(Hidden(user=user_name(uid), count=len(pids), uid=uid, pids=tuple(pids)))
    return excluded


def reach_of(watched: Watched, proc_root: Path) -> Reach:
    """Who may reach the store's files."""
    return Reach((watched.path + SUFFIXES[kind] for kind in watched.files), proc_root)


def _unlisted_users(vantage: Vantage, watched: Watched, proc_root: Path) -> bool:
    return vantage.unlisted_users and not reach_of(watched, proc_root).is_private()


def _ask_kernel(survey: Survey, descriptors: Descriptors, found: dict[int, Holder], hidden: list[Hidden]) -> None:
    """Probe SQLite's bytes; who answers and was not found is added."""
    answers: dict[int, HeldFile | None] = {}
    probes: list[tuple[int | None, int, int, str]] = [
        (descriptors.main, PENDING, 1, "main"),
        (descriptors.main, RESERVED, 1, "main"),
        (descriptors.main, SHARED_FIRST, SHARED_LAST - SHARED_FIRST + 1, "main"),
        *((descriptors.shm, byte, 1, "shm") for byte in range(SHM_WRITE, SHM_OPEN + 1)),
    ]
    for descriptor, start, length, kind in probes:
        if descriptor is None:
            continue
        try:
            pid = gate.conflicting_lock(descriptor, start, length)
        except ProbeUnsupported:
            return
        if pid is not None and pid not in answers:
            identity = os.fstat(descriptor)
            answers[pid] = next(
                (held for held in survey.known.values() if held.kind == kind and held.inode == identity.st_ino), None
            )
    same_numbers = survey.self_pid == os.getpid()
    for pid, held in answers.items():
        if pid == 0:
            hidden.append(Hidden(user=OUTSIDE, count=1, holds=True))
        elif pid < 0:
            # An OFD lock: explained by a row, or already counted as nameless, unless the table has none.
            if not survey.unexplained and not any(line.pid < 0 for lines in survey.rows.values() for line in lines):
                hidden.append(Hidden(user=NAMELESS, count=1, holds=True))
        elif not same_numbers:
            if not found:
                hidden.append(Hidden(user=UNLISTED, count=1, holds=True))
        elif pid not in found:
            process = read_process(survey.proc_root, pid)
            if process is None:
                hidden.append(Hidden(user=UNLISTED, count=1, pids=(pid,), holds=True))
            else:
                files = (held,) if held is not None else ()
                found[pid] = Holder(process=process, via=frozenset({"lock"}), files=files)


def _ask_lease(survey: Survey, descriptors: Descriptors, found: dict[int, Holder], hidden: list[Hidden]) -> bool | None:
    """Whether anybody else has the main file open, seen or unseen; an unseen one is added to `hidden`."""
    main = survey.watched.files.get("main")
    if main is None or descriptors.main is None or survey.watched.fs_type not in LOCAL_TYPES:
        return None
    ours = [opened.number for opened in survey.tables.found.get(survey.self_pid, ()) if opened.kind == "main"]
    same_numbers = survey.self_pid == os.getpid()
    if not same_numbers or ours != [descriptors.main]:
        # A second descriptor of our own would be taken for somebody else.
        return None
    sole = gate.sole_opener(descriptors.main)
    if sole is False and not found and not any(row.holds for row in hidden):
        # Somebody who is gone or has become visible meanwhile is not a hidden one.
        again = take(survey.watched, survey.proc_root, list_pids(survey.proc_root))
        newcomers, more = _holders(again, include_self=False)
        found.update(newcomers)
        hidden.extend(more)
        sole = gate.sole_opener(descriptors.main)
        if sole is False and not found and not more:
            hidden.append(Hidden(user=UNSEEN_OPENER, count=1, holds=True))
    return sole
