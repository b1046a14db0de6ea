"""What a recovery found and what it did, as records without any wording for a terminal.

Invariant: every number here was counted, never estimated; `document()` is what goes into the report file and what
`--json` prints. Not for: deciding anything. Rejected: dictionaries passed around; a misspelt key would be a silent
zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maintenance.doctor.findings import Finding, Severity

REPORT_VERSION = 1
# How many single items a list in the report holds; what is beyond is counted.
MOST_LISTED = 1000
# The decision that says that the file ends before the last page it counts.
FILE_CUT = "file_cut"
# The decision that says how many pages of trees could not be read where nothing else says which rows they had.
PAGES_UNREADABLE = "pages_unreadable"
# The decision that says that next to nothing of the source looks like pages of a database.
HARDLY_PAGES = "hardly_pages"
_LOSSES = frozenset({FILE_CUT, PAGES_UNREADABLE, HARDLY_PAGES})


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where a run is, for whoever shows progress."""

    # "copying", "reading messages", "carving", "finishing", "verifying", ...
    doing: str
    # units done of this step
    done: int
    # how many there are, None when that is not known
    total: int | None
    # "bytes" or "rows"
    unit: str


Progress = Callable[[Step], None]
Cancel = Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """One file of the source as it was before and after it was copied."""

    path: Path
    # "main", "wal" or "journal"
    part: str
    size_bytes: int
    mtime_ns: int
    inode: int
    # of the copied bytes, hexadecimal
    sha256: str

    def document(self) -> dict[str, Any]:
        return {
            "path": str(self.path), "part": self.part, "bytes": self.size_bytes, "mtime_ns": self.mtime_ns,
            "inode": self.inode, "sha256": self.sha256,
        }


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A file of a directory that could be recovered from."""

    path: Path
    size_bytes: int
    mtime_ns: int
    # "sqlite", "zeroed", "empty", "headerless" (no SQLite header, but pages that look like SQLite's), "wal" or "other"
    looks: str
    # sizes of the files beside it, by "wal" and "journal"
    beside: dict[str, int]
    # True for the one that was taken
    chosen: bool

    def document(self) -> dict[str, Any]:
        return {
            "path": str(self.path), "bytes": self.size_bytes, "mtime_ns": self.mtime_ns, "looks": self.looks,
            "beside": dict(self.beside), "chosen": self.chosen,
        }


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is recovered from."""

    # as the caller named it
    given: Path
    # "store", "bare file", "directory" or "capture"
    kind: str
    # the database file; None when only a WAL is there
    main: Path | None
    wal: Path | None
    journal: Path | None
    candidates: tuple[Candidate, ...] = ()

    @property
    def name(self) -> Path:
        """The file that messages name."""
        return self.main or self.wal or self.given

    @property
    def files(self) -> tuple[tuple[str, Path], ...]:
        """The files that are copied, with their part."""
        parts = (("main", self.main), ("wal", self.wal), ("journal", self.journal))
        return tuple((part, path) for part, path in parts if path is not None)

    def document(self) -> dict[str, Any]:
        return {
            "given": str(self.given), "kind": self.kind, "main": None if self.main is None else str(self.main),
            "candidates": [candidate.document() for candidate in self.candidates],
        }


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """What can be said of one table before anything is recovered."""

    name: str
    # "whole", "damaged", or "unreachable" (no way in through SQL)
    state: str
    # rows that SQL gives, None where it gives none
    rows: int | None

    def document(self) -> dict[str, Any]:
        return {"table": self.name, "state": self.state, "rows": self.rows}


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What `inspect` found. Nothing was changed."""

    source: Source
    files: tuple[FileFacts, ...]
    # "native", "foreign" or "unknown"
    dialect: str
    # where the schema would come from: "file", "file, with known statements", "carved", a release, or "none"
    schema: str
    tables: tuple[TableFacts, ...]
    # findings of the doctor about the copy, and those of the recovery about what the doctor cannot open
    findings: tuple[Finding, ...]
    # bytes that a recovery needs beside its output, and bytes that are free there
    needed_bytes: int
    free_bytes: int

    @property
    def damaged(self) -> bool:
        """Whether anything of the canonical data is not whole."""
        lost = any(finding.severity is Severity.DAMAGE and not finding.derived for finding in self.findings)
        return lost or any(table.state != "whole" for table in self.tables) or not self.tables

    def document(self) -> dict[str, Any]:
        return {
            "version": REPORT_VERSION, "source": self.source.document(),
            "files": [facts.document() for facts in self.files], "dialect": self.dialect, "schema": self.schema,
            "damaged": self.damaged, "tables": [table.document() for table in self.tables],
            "findings": [finding.document() for finding in self.findings],
            "needed_bytes": self.needed_bytes, "free_bytes": self.free_bytes,
        }


@dataclass(kw_only=True)
class TableReport:
    """One table of the result."""

    name: str
    # rows of the result
    rows: int = 0
    # of them: proven by everything that could be asked
    certain: int = 0
    # of them: whole and readable, but not proven
    uncertain: int = 0
    # of them: made up by the recovery so that other rows have something to refer to
    placeholders: int = 0
    # rows whose text an independent copy confirms (the search index of hermes-agent, or the row's own check)
    confirmed: int = 0
    # rows that were found and not put into the table, because they are wrong, cut off or do not fit
    apart: int = 0
    # remains of deleted rows that were seen and left out
    deleted_remains: int = 0
    # reasons of uncertain rows and of rows kept apart, with their number
    reasons: dict[str, int] = field(default_factory=dict)
    # which rows are uncertain, as runs of keys: first, last, why
    uncertain_keys: list[dict[str, Any]] = field(default_factory=list)
    # keys of placeholders
    placeholder_keys: list[Any] = field(default_factory=list)
    # keys that an index lists and no row was found for, with what the index says of them
    lost: list[dict[str, Any]] = field(default_factory=list)
    lost_keys: int = 0
    # ranges of keys that cannot be read and in which rows may have been: first and last key, None when nothing says it
    lost_ranges: list[tuple[int, int | None]] = field(default_factory=list)
    # part of a table without rowid could not be read, and nothing says which rows were there
    unreadable: bool = False
    # other versions of rows that are in the result
    duplicates: list[dict[str, Any]] = field(default_factory=list)
    duplicate_rows: int = 0
    # rows by the rung that gave them first
    rungs: dict[str, int] = field(default_factory=dict)
    # whether it is known that nothing is missing
    complete: bool = True
    # seconds by rung
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def lost_something(self) -> bool:
        """Whether rows are known to be missing."""
        return bool(self.lost_keys or self.lost_ranges or self.unreadable)

    def document(self) -> dict[str, Any]:
        return {
            "table": self.name, "rows": self.rows, "certain": self.certain, "uncertain": self.uncertain,
            "placeholders": self.placeholders, "confirmed": self.confirmed, "apart": self.apart,
            "deleted_remains": self.deleted_remains, "reasons": dict(sorted(self.reasons.items())),
            "uncertain_keys": self.uncertain_keys[:MOST_LISTED],
            "placeholder_keys": self.placeholder_keys[:MOST_LISTED],
            "lost_keys": self.lost_keys, "lost": self.lost[:MOST_LISTED],
            "lost_ranges": [list(pair) for pair in self.lost_ranges[:MOST_LISTED]],
            "unreadable": self.unreadable,
            "duplicate_rows": self.duplicate_rows, "duplicates": self.duplicates[:MOST_LISTED],
            "rungs": dict(self.rungs), "complete": self.complete,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


def rows_are_lost(tables: Sequence[TableReport], decisions: Sequence[dict[str, Any]]) -> bool:
    """Whether rows are known to be missing: by keys, by ranges, or by pages that are not there or cannot be read."""
    return any(table.lost_something for table in tables) or any(said["what"] in _LOSSES for said in decisions)


@dataclass(kw_only=True)
class Report:
    """What `recover` did."""

    source: Source
    files: tuple[FileFacts, ...]
    # "native" or "foreign": what the result is
    dialect: str
    schema: str
    # the file that was made
    output: Path
    # the report file
    report_path: Path
    # the file with rows kept apart, None when there are none
    apart_path: Path | None
    # True when rows are known to be lost and that was not allowed: the output has ".partial" in its name
    partial: bool
    tables: list[TableReport]
    # references that had to be cleared, placeholders that were made, other decisions: sentences with facts
    decisions: list[dict[str, Any]]
    # intervals without messages between neighbours whose ids jump
    time_gaps: list[dict[str, Any]]
    rungs: list[str]
    # what was verified of the result, by name
    verified: dict[str, Any]
    started_at: float
    seconds: float
    resumed: bool

    @property
    def lost(self) -> bool:
        """Whether rows are known to be lost."""
        return rows_are_lost(self.tables, self.decisions)

    def table(self, name: str) -> TableReport:
        """The part of one table. Raises `KeyError`."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(name)

    def document(self) -> dict[str, Any]:
        """The fields of the report file and of `--json`."""
        return {
            "version": REPORT_VERSION, "source": self.source.document(),
            "files": [facts.document() for facts in self.files], "dialect": self.dialect, "schema": self.schema,
            "output": str(self.output), "report": str(self.report_path),
            "apart": None if self.apart_path is None else str(self.apart_path),
            "partial": self.partial, "lost": self.lost,
            "tables": [table.document() for table in self.tables],
            "decisions": self.decisions[:MOST_LISTED], "decision_count": len(self.decisions),
            "time_gaps": self.time_gaps[:MOST_LISTED],
            "time_gap_count": len(self.time_gaps), "rungs": list(self.rungs), "verified": dict(self.verified),
            "started_at": self.started_at, "seconds": round(self.seconds, 3), "resumed": self.resumed,
        }
