"""What kind of file the store is, before SQLite is asked: its mode, its size, its first bytes, what lies beside it.

Invariant: nothing is opened while this process has the store open; bytes are read only of a file that SQLite has
already refused. Not for: the content. Reading the header first and always was rejected: a closed descriptor of a store
that the process has open cancels its locks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from hermes_state.engine import ReadStore, is_open
from hermes_state.errors import Corrupt, MarksDamaged, NotAStore, StateError
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.doctor.page_source import StorePages
from maintenance.marks import marks_path, read_marks
from maintenance.output.text import human_bytes, plural, rfc3339
from maintenance.space.reclaim import leftover_copies

HEADER_BYTES = 100
MAGIC = b"SQLite format 3\x00"


def identity_findings(path: Path) -> list[Finding]:
    """What `os.lstat` says about the file and its folder."""
    state = path.stat()
    found = [*_beside(path), *_links(path, state)]
    if path.is_symlink():
        found.append(
            Finding(
                code="symlink",
                severity=Severity.INFO,
                object=str(path),
                sentence=f"The store is a link to {os.path.realpath(path)}; its -wal and -shm lie there.",
            )
        )
    mode = stat.S_IMODE(state.st_mode)
    folder_mode = stat.S_IMODE(path.parent.stat().st_mode)
    facts = {"mode": f"{mode:04o}", "folder_mode": f"{folder_mode:04o}", "uid": state.st_uid, "gid": state.st_gid}
    if mode & 0o004 and folder_mode & 0o001:
        found.append(
            Finding(
                code="readable_by_all",
                severity=Severity.INFO,
                object=str(path),
                sentence=f"Every user of this machine can read the conversations (mode {mode:04o}); "
                "modes are never changed here.",
                facts=facts,
            )
        )
    else:
        found.append(
            Finding(
                code="permissions",
                severity=Severity.OK,
                object=str(path),
                sentence=f"File mode {mode:04o}, folder mode {folder_mode:04o}; never changed here.",
                facts=facts,
            )
        )
    return found


def _links(path: Path, state: os.stat_result) -> list[Finding]:
    """Several names of one file: SQLite finds the WAL by the name that was opened, so each name gets one of its own."""
    if state.st_nlink < 2:
        return []
    sentence = (
        f"The file has {state.st_nlink} names (hard links), and each of them gets a WAL of its own: programs that use "
        "different names damage the store. Stop them, remove the other names, and copy the store instead of linking it."
    )
    return [
        Finding(
            code="several_names", severity=Severity.WARNING, object=str(path), sentence=sentence,
            facts={"names": state.st_nlink, "device": state.st_dev, "inode": state.st_ino},
        )
    ]


def refused_finding(path: Path, problem: StateError) -> Finding:
    """Why SQLite does not open the file, from the error's class, the file's size and its first bytes."""
    size = path.stat().st_size
    facts = {
        "bytes": size,
        "sqlite_code": problem.sqlite_code,
        "sqlite_extended": problem.sqlite_extended,
        "said": problem.message,
    }
    if size == 0:
        sentence = "The file is empty (0 bytes): its content was lost or is elsewhere. Do not start Hermes on it."
        return _damage("empty_file", path, sentence, facts)
    if isinstance(problem, Corrupt):
        return _unreadable_schema(path, size, facts)
    if not isinstance(problem, NotAStore):
        return Finding(
            code="cannot_open",
            severity=Severity.WARNING,
            object=str(path),
            sentence=f"The store could not be opened, so nothing in it was checked. {problem.message}",
            facts=facts,
            next_command=command("locks", path) if problem.retryable else "",
        )
    head = _first_bytes(path)
    if not any(head) and _is_zero(path):
        sentence = (
            f"All {plural(size, 'byte')} of the file are zero: nothing of the store is left in it. Do not start Hermes "
            "on it."
        )
        return _damage("zeroed_file", path, sentence, facts)
    if not any(head):
        sentence = (
            f"The first {len(head)} bytes are zero, so SQLite does not see a database; the rest of the "
            f"{plural(size, 'byte')} may still hold the rows."
        )
        return _damage("zeroed_header", path, sentence, facts)
    if head.startswith(MAGIC):
        return _damage("bad_header", path, "The file begins like an SQLite database, but its header is damaged.", facts)
    return _damage("not_sqlite", path, "The file is not an SQLite database.", {**facts, "first_bytes": head[:16].hex()})


def _unreadable_schema(path: Path, size: int, facts: Mapping[str, object]) -> Finding:
    """The header is good and the schema is not: cut short, or its first pages are damaged."""
    head = _first_bytes(path)
    page_size = int.from_bytes(head[16:18], "big")
    expected = int.from_bytes(head[28:32], "big") * (65536 if page_size == 1 else page_size)
    if size < expected:
        sentence = (
            f"The file was cut: it has {plural(size, 'byte')} and its header counts {expected:,}, so its schema "
            "cannot be used."
        )
        return _damage("file_cut", path, sentence, {**facts, "expected_bytes": expected})
    sentence = "The schema of the file cannot be read, so no table can be reached by SQL; the rows may still be there."
    return _damage("schema_damaged", path, sentence, facts)


def cut_finding(store: ReadStore, problem: StateError) -> Finding | None:
    """That an open file is shorter than its header says, when it is; `problem` is SQLite's refusal."""
    with store.snapshot():
        head = StorePages(store).page(1)
    expected = int.from_bytes(head[28:32], "big") * store.page_size
    size = store.path.stat().st_size
    state = store.wal_state()
    if size >= expected or (state is not None and state.frames):
        return None
    facts = {
        "bytes": size, "expected_bytes": expected, "sqlite_code": problem.sqlite_code,
        "sqlite_extended": problem.sqlite_extended,
    }
    sentence = (
        f"The file was cut: it has {plural(size, 'byte')} and its header counts {expected:,}. SQLite refuses it; what "
        "stands before the cut can be read."
    )
    return _damage("file_cut", store.path, sentence, facts)


def _damage(code: str, path: Path, sentence: str, facts: Mapping[str, object]) -> Finding:
    return Finding(
        code=code,
        severity=Severity.DAMAGE,
        object=str(path),
        sentence=sentence,
        facts=facts,
        next_command=recover_command(path),
    )


def _first_bytes(path: Path) -> bytes:
    """The header of a file that SQLite has refused; nothing of it is open in this process."""
    if is_open(path):
        return b""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, HEADER_BYTES, 0)
    finally:
        os.close(descriptor)


def _is_zero(path: Path) -> bool:
    """Whether a file that SQLite has refused holds nothing but zeros."""
    if is_open(path):
        return False
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            if chunk.count(0) != len(chunk):
                return False
    return True


def _beside(path: Path) -> list[Finding]:
    """What lies beside the store and belongs to its history."""
    captures = sorted(path.parent.glob(f"{path.name}.retired-wal-*"))
    kept = [folder for folder in captures if folder.is_dir() and not folder.name.endswith(".partial")]
    cut = [folder for folder in captures if folder.name.endswith(".partial")]
    found = []
    if kept:
        sentence = (
            f"{plural(len(kept), 'capture')} of lost WAL generations {'lies' if len(kept) == 1 else 'lie'} beside the "
            "store; committed rows may be in there. Keep them (docs/recovery.md)."
        )
        facts = {"captures": [str(folder) for folder in kept], "unfinished": [str(folder) for folder in cut]}
        found.append(
            Finding(
                code="captures", severity=Severity.WARNING, object=str(kept[-1]), sentence=sentence, facts=facts,
                next_command=command("sessions captures", path, "--merge"),
            )
        )
    elif cut:
        found.append(
            Finding(
                code="unfinished_capture",
                severity=Severity.WARNING,
                object=str(cut[-1]),
                sentence="A capture of a lost WAL generation was interrupted and may hold only part of it. Keep it.",
                facts={"unfinished": [str(folder) for folder in cut]},
                next_command=command("sessions captures", path),
            )
        )
    return [*found, *_copies_left(path), *_marks(path)]


def _copies_left(path: Path) -> list[Finding]:
    """Compact copies: nothing reads them again, but one that is being made looks the same."""
    found = []
    for copy in leftover_copies(Path(os.path.realpath(path))):
        try:
            state = copy.stat()
        except FileNotFoundError:
            continue  # it was in use, and its optimize has ended
        sentence = (
            f"{copy.name} is a compact copy ({human_bytes(state.st_size)}, from {rfc3339(state.st_mtime)}) that an "
            "interrupted `sessions optimize --via-copy` left. Nothing uses it again; delete it when no optimize runs."
        )
        facts = {"bytes": state.st_size, "modified_at": rfc3339(state.st_mtime)}
        found.append(
            Finding(
                code="compact_copy_left", severity=Severity.INFO, object=str(copy), sentence=sentence, facts=facts
            )
        )
    return found


def _marks(path: Path) -> list[Finding]:
    try:
        read_marks(path)
    except MarksDamaged as problem:
        sentence = f"{problem.message} Every command that filters sessions is refused meanwhile. {problem.hint}"
        return [
            Finding(code="marks_damaged", severity=Severity.WARNING, object=str(marks_path(path)), sentence=sentence)
        ]
    return []
