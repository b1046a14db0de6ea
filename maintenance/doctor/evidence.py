"""What a store once held, by evidence outside the file: for files that are empty, zeroed, or whole and new.

Invariant: read only, by name and by our own small files beside the store; what is evidence is listed with its path. A
store that never held a row is new, and that is a finding only beside evidence of another life. Rows that the store once
had and has no more are looked for by the marks that others keep of it.

Not for: damage inside a file. Taking any empty store for a lost one was rejected: every store is empty once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hermes_state.engine import Reader
from hermes_state.errors import LedgerDamaged, MarksDamaged, StateError
from hermes_state.shell_words import shell_word
from maintenance.doctor.findings import Finding, Severity, command, recover_command
from maintenance.ledger import deleted_at, ledger_path
from maintenance.marks import read_marks
from maintenance.output.text import plural

# Findings about files from which SQL reads nothing: what helps lies beside them.
NOTHING_INSIDE = frozenset({"empty_file", "zeroed_file", "not_sqlite"})
MAGIC = b"SQLite format 3\x00"
MOST_LISTED = 50


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One thing outside the store that says that it once held something."""

    # "backup", "capture", "put aside", "ledger", "marks", "search index" or "session files"
    kind: str
    path: Path
    # how many of it, such as session files or marks
    number: int = 1


def evidence_beside(path: Path, home: Path) -> list[Evidence]:
    """Everything outside `path` that speaks of rows it once had, what can bring back most first."""
    found = [*_backups(path)]
    for folder in sorted(path.parent.glob(f"{path.name}.retired-wal-*")):
        if folder.is_dir():
            found.append(Evidence(kind="capture", path=folder))
    found += [Evidence(kind="put aside", path=item) for item in _put_aside(path)]
    found += _index(path)
    found += _own_files(path)
    files = [item for item in _session_files(home)]
    if files:
        found.append(Evidence(kind="session files", path=home / "sessions", number=len(files)))
    return found


def fresh_findings(reader: Reader, home: Path) -> list[Finding]:
    """A whole store that never held a row, beside evidence that this path once had one that did."""
    if not _never_held_a_row(reader):
        return vanished_findings(reader)
    evidence = evidence_beside(reader.path, home)
    if not evidence:
        return []
    return [
        Finding(
            code="fresh_store",
            severity=Severity.WARNING,
            object=str(reader.path),
            sentence=f"The store is new and never held a message, and beside it lies {_words(evidence)}: the store "
            "that this one stands in for was lost or moved.",
            facts=_facts(evidence),
            next_command=way_back(reader.path, evidence),
        )
    ]


def vanished_findings(reader: Reader) -> list[Finding]:
    """Sessions that somebody pinned and that are gone without a line in the ledger of deletes."""
    try:
        marks = read_marks(reader.path)
    except MarksDamaged:
        return []  # said by the look at the files beside the store
    gone = [key for key in sorted(marks.pinned) if reader.row("SELECT 1 FROM sessions WHERE id = ?", (key,)) is None]
    if not gone:
        return []
    try:
        deleted = deleted_at(reader.path)
    except LedgerDamaged:
        deleted = {}
    gone = [key for key in gone if key not in deleted]
    if not gone:
        return []
    shown = ", ".join(gone[:5]) + (", …" if len(gone) > 5 else "")
    sentence = (
        f"{plural(len(gone), 'pinned session')} ({shown}) {'is' if len(gone) == 1 else 'are'} not in the store, and no "
        "delete of ours removed them: the store is older than its marks, or rows were lost."
    )
    return [
        Finding(
            code="sessions_vanished",
            severity=Severity.WARNING,
            object="sessions",
            sentence=sentence,
            facts={"sessions": gone[:100]},
            next_command=command("sessions leftovers", reader.path),
        )
    ]


def with_evidence(found: list[Finding], path: Path, home: Path) -> list[Finding]:
    """The same findings; those about files that hold nothing say what lies beside them and which way back there is."""
    if not any(finding.code in NOTHING_INSIDE for finding in found):
        return found
    evidence = evidence_beside(path, home)
    return [_with(finding, path, evidence) if finding.code in NOTHING_INSIDE else finding for finding in found]


def _with(finding: Finding, path: Path, evidence: list[Evidence]) -> Finding:
    """A file that is something else may still hold pages of a store; one that is empty or zero holds nothing."""
    elsewhere = not _wal_has_rows(path) and (bool(evidence) or finding.code != "not_sqlite")
    return replace(
        finding,
        sentence=f"{finding.sentence} Beside it lies {_words(evidence)}." if evidence else finding.sentence,
        facts={**finding.facts, **_facts(evidence)},
        next_command=way_back(path, evidence) if elsewhere else finding.next_command,
    )


def way_back(path: Path, evidence: list[Evidence]) -> str:
    """The one command for a store whose content is elsewhere."""
    first = {item.kind: item for item in reversed(evidence)}
    if "backup" in first:
        return command("sessions restore", path, shell_word(first["backup"].path))
    if "capture" in first and len(evidence) == 1:
        return recover_command(first["capture"].path)
    return command("sessions leftovers", path)


def _never_held_a_row(reader: Reader) -> bool:
    """No session, no message, and no sign that there ever was one."""
    for table in ("sessions", "messages"):
        if reader.row(f"SELECT 1 FROM {table} LIMIT 1") is not None:
            return False
    tables = {str(name) for (name,) in reader.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "sqlite_sequence" in tables:
        row = reader.row("SELECT max(seq) FROM sqlite_sequence WHERE name = 'messages'")
        if row is not None and (row[0] or 0) > 0:
            return False
    if "store" in tables and "deletions" in tables:
        floor = reader.row("SELECT message_floor FROM store")
        deleted = reader.row("SELECT 1 FROM deletions LIMIT 1")
        return not (floor is not None and floor[0]) and deleted is None
    return True


def _backups(path: Path) -> Iterator[Evidence]:
    """Backups by their manifests, in the folder that `sessions backup` uses unless told otherwise."""
    from maintenance.backups.catalog import backups_of

    for item in reversed(backups_of(path)):
        yield Evidence(kind="backup", path=item)


def _index(path: Path) -> Iterator[Evidence]:
    """The search index of a native store, when it was filled for another store than this one."""
    from hermes_state.conversation.search.layout import index_path, read_marks, read_state
    from hermes_state.engine import is_open, open_read

    beside = index_path(path)
    if not beside.exists() or beside.stat().st_size == 0 or is_open(beside):
        return
    try:
        with open_read(beside, busy_seconds=0.2) as index:
            marks = read_marks(index)
        if marks is None or not marks.high_water:
            return
        with open_read(path, busy_seconds=0.2, search_modules=False) as store:
            if marks.fits(read_state(store)):
                return
    except StateError:
        pass  # a store that cannot be read is what the index is evidence against
    yield Evidence(kind="search index", path=beside)


def _put_aside(path: Path) -> Iterator[Path]:
    """Other databases in the folder that bear the store's name: copies, whoever made them and whatever they are called.

    A file of that name is taken for one by its first bytes; one that this process has open is left alone.
    """
    from hermes_state.conversation.search.layout import index_path
    from hermes_state.engine import is_open

    family = {path, index_path(path), *(Path(f"{path}{ending}") for ending in ("-wal", "-shm", "-journal"))}
    for item in sorted(path.parent.iterdir()):
        if item in family or not item.name.startswith(path.stem) or not item.is_file() or is_open(item):
            continue
        with open(item, "rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                yield item


def _own_files(path: Path) -> Iterator[Evidence]:
    ledger = ledger_path(path)
    if ledger.is_file() and ledger.stat().st_size:
        yield Evidence(kind="ledger", path=ledger)
    try:
        marks = read_marks(path)
    except MarksDamaged:
        return
    number = len(marks.pinned | marks.archived)
    if number:
        yield Evidence(kind="marks", path=marks.path, number=number)


def _session_files(home: Path) -> Iterator[Path]:
    """Transcripts that hermes-agent wrote beside its store."""
    folder = home / "sessions"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name.endswith((".jsonl", ".json")) and name != "sessions.json":
            yield folder / name


def _wal_has_rows(path: Path) -> bool:
    try:
        return os.stat(f"{path}-wal").st_size > 32
    except FileNotFoundError:
        return False


_NAMES = {
    "backup": ("a backup", "backups"),
    "capture": ("a capture of a lost WAL", "captures of lost WALs"),
    "put aside": ("a file that was put aside", "files that were put aside"),
    "search index": ("a search index of another store", "search indexes of other stores"),
    "ledger": ("a record of deletes", "records of deletes"),
    "marks": ("marks of 1 session", "marks of sessions"),
    "session files": ("1 session file", "session files"),
}


def _words(evidence: list[Evidence]) -> str:
    said = []
    for kind in dict.fromkeys(item.kind for item in evidence):
        number = sum(item.number for item in evidence if item.kind == kind)
        one, many = _NAMES[kind]
        said.append(one if number == 1 else f"{number:,} {many}")
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def _facts(evidence: list[Evidence]) -> dict[str, object]:
    return {
        "evidence": [
            {"kind": item.kind, "path": str(item.path), "number": item.number} for item in evidence[:MOST_LISTED]
        ]
    }
