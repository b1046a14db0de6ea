"""One look at a store from both sides: the kernel's lock table and the processes' descriptor tables.

Invariant: the lock table is read before and after the descriptor tables, so a process that holds the store during the
whole look is in at least one of them even while the lists move. Rows are matched to the files the path names now and to
the unlinked sidecars that some process still has open.

Not for: judging. `scan` makes holders of it, `owners` makes lock names. Rejected: one code path per question, which
would let the two answers disagree about which rows are the store's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockowners.descriptors import Tables, list_pids, listed_locks, own_pid, scan_tables
from lockowners.devices import Watched
from lockowners.errors import LockTableUnreadable
from lockowners.lock_table import FileKey, LockLine, LockTable, read_table, unite
from lockowners.records import FileKind, HeldFile

OFD_PID = -1
# How often processes that started meanwhile are looked at; a machine that starts programs all the time never ends.
_ROUNDS = 3


@dataclass(kw_only=True)
class Survey:
    """What both sides showed."""

    # The store's files.
    watched: Watched
    # Process table that was read.
    proc_root: Path
    # Our own pid in it.
    self_pid: int
    # Open files by process.
    tables: Tables
    # The lock table, all readings together; empty when `table_note` says why it could not be read.
    table: LockTable
    # "" or why lock rows are missing.
    table_note: str = ""
    # Kernel name of a file to what it is of this store.
    known: dict[FileKey, HeldFile] = field(default_factory=dict)
    # Rows on the store's files by pid, OFD rows under the process whose open file has them.
    rows: dict[int, list[LockLine]] = field(default_factory=dict)
    # OFD rows that no visible process explains.
    unexplained: list[LockLine] = field(default_factory=list)

    def held_files(self, pid: int) -> tuple[HeldFile, ...]:
        """Every file of the store that a process has open or locked, main first."""
        found = {
            HeldFile(kind=opened.kind, deleted=opened.deleted, device=opened.device, inode=opened.inode)
            for opened in self.tables.found.get(pid, ())
        }
        found.update(self.known[line.key] for line in self.rows.get(pid, ()))
        return tuple(sorted(found, key=lambda held: (_ORDER[held.kind], held.deleted, held.inode)))

    def refreshed_rows(self, pid: int) -> bool:
        """Whether the lock table still has rows of a process on the store, read once more."""
        return any(line.pid == pid and line.key in self.known for line in _readings(self.proc_root, 1)[0].lines)


_ORDER: dict[FileKind, int] = {"main": 0, "wal": 1, "shm": 2, "journal": 3}


def _readings(proc_root: Path, passes: int) -> tuple[LockTable, str]:
    try:
        table = read_table(proc_root, passes=passes)
    except LockTableUnreadable as error:
        return LockTable(lines=()), error.message
    note = f"{len(table.unknown)} lines of {proc_root}/locks are not understood" if table.unknown else ""
    return table, note


def take(watched: Watched, proc_root: Path, pids: Sequence[int] | None) -> Survey:
    """Look through the descriptors of `pids`; None: only of the processes that the lock table names."""
    self_pid = own_pid(proc_root)
    before, note = _readings(proc_root, 1 if pids is not None else 2)
    current = {
        key: HeldFile(kind=found.kind, deleted=False, device=found.device, inode=found.inode)
        for found in watched.files.values()
        for key in watched.keys(found.inode)
    }
    if pids is None:
        named = {line.pid for line in before.on(current)}
        # An OFD row names nobody: only the descriptor tables of all can.
        pids = list_pids(proc_root) if OFD_PID in named else sorted(pid for pid in named if pid > 0)
        tables = scan_tables(proc_root, watched, pids, self_pid=self_pid)
        table = before
    else:
        tables = scan_tables(proc_root, watched, pids, self_pid=self_pid)
        _add_newcomers(tables, proc_root, watched, set(pids), self_pid)
        after, note_after = _readings(proc_root, 1)
        table, note = unite((before, after)), note or note_after
    survey = Survey(
        watched=watched,
        proc_root=proc_root,
        self_pid=self_pid,
        tables=tables,
        table=table,
        table_note=note,
        known=current,
    )
    for opened in (opened for files in tables.found.values() for opened in files if opened.deleted):
        held = HeldFile(kind=opened.kind, deleted=True, device=opened.device, inode=opened.inode)
        survey.known.update(dict.fromkeys(watched.keys(opened.inode), held))
    _assign(survey)
    _complete(survey)
    return survey


def _add_newcomers(tables: Tables, proc_root: Path, watched: Watched, seen: set[int], self_pid: int) -> None:
    """A holder that forks and ends during the scan lives on in a child that the first list does not have."""
    for _ in range(_ROUNDS):
        newcomers = [pid for pid in list_pids(proc_root) if pid not in seen]
        if not newcomers:
            return
        seen.update(newcomers)
        more = scan_tables(proc_root, watched, newcomers, self_pid=self_pid)
        tables.found.update(more.found)
        tables.unreadable.extend(more.unreadable)


def _assign(survey: Survey) -> None:
    nameless = []
    for line in survey.table.on(survey.known):
        if line.pid == OFD_PID or line.kind == "OFDLCK":
            nameless.append(line)
        elif survey.watched.exact or _may_have(survey, line.pid, survey.known[line.key].inode):
            survey.rows.setdefault(line.pid, []).append(line)
    if nameless:
        _assign_nameless(survey, nameless)


def _complete(survey: Survey) -> None:
    """Add what the lock table left out: it is read in pieces, and rows that move between them are missed.

    A process whose descriptors we see shows its own POSIX locks exactly, beside each descriptor. A forked child shows
    those of its parent there as well, under the parent's pid.
    """
    for pid, files in survey.tables.found.items():
        try:
            listed = listed_locks(survey.proc_root, pid, [opened.number for opened in files])
        except OSError:
            continue  # the table's rows are what there is
        rows = survey.rows.get(pid, [])
        seen = {(line.mode, line.key, line.start, line.end) for line in rows}
        for line in listed:
            place = (line.mode, line.key, line.start, line.end)
            if line.kind == "POSIX" and line.pid == pid and line.key in survey.known and place not in seen:
                seen.add(place)
                survey.rows.setdefault(pid, []).append(line)


def _may_have(survey: Survey, pid: int, inode: int) -> bool:
    """On btrfs and overlays a row may be another file's: the descriptors decide, where they can be read."""
    if pid in survey.tables.unreadable:
        return True
    return any(opened.inode == inode for opened in survey.tables.found.get(pid, ()))


def _assign_nameless(survey: Survey, nameless: list[LockLine]) -> None:
    explained: set[tuple[FileKey, int, int | None]] = set()
    for pid, files in survey.tables.found.items():
        try:
            listed = listed_locks(survey.proc_root, pid, [opened.number for opened in files])
        except OSError:
            continue
        for line in listed:
            if line.kind == "OFDLCK" and line.key in survey.known:
                explained.add((line.key, line.start, line.end))
                survey.rows.setdefault(pid, []).append(line)
    survey.unexplained.extend(line for line in nameless if (line.key, line.start, line.end) not in explained)
