"""The processes that have the store open: who, with how many descriptors, through which SQLite, and who is split off.

Invariant: what could not be seen is a finding of its own; "nobody" is never said when something was hidden. Only reads
of /proc. Not for: deciding whether a rewrite may run (`lockowners.verdict`).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hermes_state.clock import SYSTEM, Clock
from lockowners import Holder, Process, Scan, started_at
from lockowners.process import read_stat
from lockowners.records import SUFFIXES
from maintenance.doctor.findings import Finding, Severity, command
from maintenance.output.text import human_time, plural, rfc3339

# Share of the soft limit of open files from which on a process is warned about (report 82 asks for half).
CLOSE_TO_LIMIT = 0.5
# SQLite's version as a whole text, and the text that names its sources.
_VERSION = re.compile(rb"(?<![\w.])(3\.\d{1,2}\.\d{1,2})(?=\x00)")
_SOURCE_ID = re.compile(rb"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d [0-9a-f]{64}")
_FLAGS_ROW = re.compile(r"^flags:\s+([0-7]+)", re.MULTILINE)
_LIMIT_ROW = re.compile(r"^Max open files\s+(\d+|unlimited)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Descriptors of one process; None where /proc does not let us see."""

    # Descriptors in use.
    used: int | None
    # The soft limit (RLIMIT_NOFILE); None also for "unlimited".
    limit: int | None
    # Descriptors on the store's own files.
    on_store: int | None

    @property
    def tight(self) -> bool:
        """Whether the process is close to its limit."""
        return self.used is not None and self.limit is not None and self.used >= CLOSE_TO_LIMIT * self.limit


def split_findings(scan: Scan) -> list[Finding]:
    """Processes that work on deleted or replaced files of this path: two generations of the store are in use."""
    found = []
    for holder in scan.holders:
        if not holder.stale:
            continue
        gone = sorted({file.kind for file in holder.files if file.deleted})
        facts = {**_process(holder.process), "deleted": gone}
        sentence = (
            f"PID {holder.process.pid} ({holder.process.command}) still works on a deleted or replaced "
            f"{' and '.join(_FILE_WORDS[kind] for kind in gone) or 'file'} of this store: what it saves does not reach "
            "the file that others see. Do not delete anything; stop it first, then the others."
        )
        found.append(
            Finding(
                code="lost_generation",
                severity=Severity.WARNING,
                object=f"PID {holder.process.pid}",
                sentence=sentence,
                facts=facts,
                next_command=command("locks", scan.path),
            )
        )
    return found


_FILE_WORDS = {"main": "database file", "wal": "WAL", "shm": "WAL index", "journal": "journal"}


def holder_findings(scan: Scan, *, proc_root: Path, clock: Clock = SYSTEM) -> list[Finding]:
    """Everybody who has the store open, one finding each, and what was not visible."""
    found = [_holder_finding(holder, scan, proc_root, clock) for holder in scan.holders]
    if not scan.holders:
        seen = "No other process has the store open" if scan.complete else "No holder is visible from here"
        found.append(
            Finding(
                code="no_holders",
                severity=Severity.OK if scan.complete else Severity.INFO,
                object=str(scan.path),
                sentence=f"{seen}." if scan.complete else f"{seen}; {scan.not_visible or 'not all could be seen'}.",
                facts={"method": scan.method, "complete": scan.complete},
            )
        )
    elif not scan.complete:
        found.append(
            Finding(
                code="holders_not_visible",
                severity=Severity.INFO,
                object=str(scan.path),
                sentence=f"There may be more holders: {scan.not_visible or 'not all could be seen'}.",
                facts={"method": scan.method, "complete": False},
            )
        )
    return found


def _holder_finding(holder: Holder, scan: Scan, proc_root: Path, clock: Clock) -> Finding:
    process = holder.process
    budget = budget_of(proc_root, process.pid, scan.path)
    library = sqlite_library(proc_root, process.pid)
    version = library_version(proc_root, process.pid, library) if library else None
    started = started_at(process.start_ticks, proc_root=proc_root)
    facts = {
        **_process(process),
        "started_at": rfc3339(started),
        "via": sorted(holder.via),
        "files": [file.kind for file in holder.files],
        "descriptors_on_store": budget.on_store,
        "descriptors": budget.used,
        "descriptor_limit": budget.limit,
        "sqlite_library": library,
        "sqlite_version": version,
    }
    words: list[str] = [process.role if process.role != "unknown" else "unknown program"]
    if started is not None:
        words.append(f"running since {human_time(started, clock)}")
    if process.container:
        words.append(f"in {process.container}")
    if budget.on_store:
        words.append(f"{plural(budget.on_store, 'descriptor')} on the store")
    said = f"SQLite {version}" if version else "SQLite of unknown version"
    words.append(f"{said} from {library}" if library else "SQLite unknown")
    sentence = f"PID {process.pid} ({process.command}) of {process.user} has the store open: {', '.join(words)}."
    if budget.tight:
        sentence += f" It uses {budget.used:,} of {budget.limit:,} descriptors: I/O errors may be that."
    stopped = is_stopped(proc_root, process)
    if stopped:
        sentence += (
            " It is stopped (SIGSTOP or Ctrl-Z): it keeps its locks and its place in the WAL, others wait for it, and "
            f"it ends only once it goes on. `kill -CONT {process.pid}` lets it go on."
        )
    return Finding(
        code="holder_stopped" if stopped else "descriptors_running_out" if budget.tight else "holder",
        severity=Severity.WARNING if stopped or budget.tight else Severity.INFO,
        object=f"PID {process.pid}",
        sentence=sentence,
        facts=facts | {"stopped": stopped},
        next_command=f"kill -CONT {process.pid}" if stopped else "",
    )


def is_stopped(proc_root: Path, process: Process) -> bool:
    """Whether job control stopped the process. One that a debugger looks at (state t) goes on by itself."""
    stat = read_stat(proc_root, process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks and stat.state == "T"


def census_finding(scan: Scan, *, proc_root: Path) -> list[Finding]:
    """How many descriptors of the store can write and how many can only read, over all processes, by file.

    A reader is no danger to the others; several programs that write are what damaged stores have in common.
    """
    if not scan.holders:
        return []
    writing: list[int] = []
    reading: list[int] = []
    by_file: Counter[str] = Counter()
    for holder in scan.holders:
        modes = descriptor_modes(proc_root, holder.process.pid, scan.path)
        by_file.update(kind for kind, _writes in modes)
        # Descriptors that nobody lets us see may write: such a holder is counted as one that does.
        main = [writes for kind, writes in modes if kind == "main"]
        (writing if not modes or any(main) else reading).append(holder.process.pid)
    facts = {"writable": writing, "read_only": reading, "descriptors_by_file": dict(by_file)}
    writers = f"{plural(len(writing), 'process')} {'has' if len(writing) == 1 else 'have'} the store open for writing"
    readers = f", {len(reading)} only for reading" if reading else ""
    by_name = ", ".join(f"{_FILE_WORDS[kind]} {by_file[kind]}" for kind in _FILE_WORDS if by_file[kind])
    counted = f"{plural(sum(by_file.values()), 'descriptor')} on its files in all{f' ({by_name})' if by_name else ''}"
    return [
        Finding(
            code="holder_census",
            severity=Severity.INFO,
            object=str(scan.path),
            sentence=f"{writers}{readers}; {counted}.",
            facts=facts,
        )
    ]


def descriptor_modes(proc_root: Path, pid: int, path: Path) -> list[tuple[str, bool]]:
    """(kind of file, whether it is open for writing) of each descriptor of a process on the store."""
    kinds = {f"{path}{suffix}": kind for kind, suffix in SUFFIXES.items()}
    folder = proc_root / str(pid)
    found: list[tuple[str, bool]] = []
    try:
        numbers = os.listdir(folder / "fd")
    except OSError:
        return []
    for number in numbers:
        try:
            kind = kinds.get(os.readlink(folder / "fd" / number).removesuffix(" (deleted)"))
            flags = _FLAGS_ROW.search((folder / "fdinfo" / number).read_text()) if kind else None
        except OSError:
            continue  # closed meanwhile
        if kind and flags:
            found.append((kind, int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY))
    return found


def own_budget_finding(path: Path, *, proc_root: Path) -> list[Finding]:
    """This process' own descriptors: an I/O error of ours must not be taken for a damaged file."""
    budget = budget_of(proc_root, "self", path)
    if not budget.tight:
        return []
    return [
        Finding(
            code="own_descriptors_running_out",
            severity=Severity.WARNING,
            object="this process",
            sentence=f"This process uses {budget.used:,} of {budget.limit:,} descriptors; raise the limit (ulimit -n).",
            facts={"descriptors": budget.used, "descriptor_limit": budget.limit},
        )
    ]


def budget_of(proc_root: Path, pid: int | str, path: Path) -> Budget:
    """What /proc shows of a process' descriptors."""
    folder = proc_root / str(pid)
    try:
        numbers = os.listdir(folder / "fd")
    except OSError:
        return Budget(used=None, limit=_limit(folder), on_store=None)
    return Budget(used=len(numbers), limit=_limit(folder), on_store=_on_store(folder / "fd", numbers, path))


def _limit(folder: Path) -> int | None:
    try:
        row = _LIMIT_ROW.search((folder / "limits").read_text())
    except OSError:
        return None
    return int(row.group(1)) if row and row.group(1) != "unlimited" else None


def _on_store(folder: Path, numbers: list[str], path: Path) -> int:
    """Descriptors whose link names a file of the store, deleted ones included."""
    names = {f"{path}{suffix}{gone}" for suffix in ("", "-wal", "-shm", "-journal") for gone in ("", " (deleted)")}
    total = 0
    for number in numbers:
        try:
            total += os.readlink(folder / number) in names
        except OSError:
            continue  # closed meanwhile
    return total


def sqlite_library(proc_root: Path, pid: int) -> str | None:
    """The file that a process has SQLite from, as its memory map names it; its version is not knowable from there."""
    try:
        maps = (proc_root / str(pid) / "maps").read_text(errors="replace")
    except OSError:
        return None
    fields = (line.split(None, 5) for line in maps.splitlines())
    paths = dict.fromkeys(parts[5] for parts in fields if len(parts) == 6 and parts[5].startswith("/"))
    libraries = [path for path in paths if ".so" in path]
    for wanted in ("libsqlite3", "/apsw/", "better_sqlite3", "_sqlite3"):
        for path in libraries:
            if wanted in path:
                return path
    return None


def library_version(proc_root: Path, pid: int, library: str) -> str | None:
    """The version that a library file says of itself, None when it cannot be read or says several things.

    SQLite has its version as a text of its own and again, as a number, in the text that names its sources, which begins
    with a date; only a file with one such date is believed.
    """
    try:
        content = (proc_root / str(pid) / "root" / library.lstrip("/")).read_bytes()
    except OSError:
        return None
    if len(set(_SOURCE_ID.findall(content))) != 1:
        return None
    versions = {found.decode() for found in _VERSION.findall(content)}
    return versions.pop() if len(versions) == 1 else None


def _process(process: Process) -> Mapping[str, object]:
    return {
        "pid": process.pid,
        "user": process.user,
        "role": process.role,
        "command": process.command,
        "container": process.container,
    }
