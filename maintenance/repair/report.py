"""What a repair found and did, as records without any wording for a terminal.

Invariant: every number was counted on the file that it is about; `document()` is what `--json` prints. Not for:
deciding anything. Rejected: a dictionary passed around; a misspelt key would be a silent zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from maintenance.doctor.findings import Finding

Outcome = Literal["sound", "checked", "planned", "repaired"]


@dataclass(frozen=True, kw_only=True)
class Doing:
    """Where a run is, for whoever shows progress."""

    # "copying", "checking", "rebuilding idx_…", "verifying", "replacing"
    doing: str
    # units done of this step, and how many there are; None when that is not known
    done: int = 0
    total: int | None = None


Progress = Callable[[Doing], None]
Cancel = Callable[[], bool]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that was, or would be, done to the private copy."""

    # "schema", "search index", "index" or "rebuild"
    kind: str
    # what it is about
    object: str
    # how: "rebuilt in place", "made anew", "entry removed", "file written anew", or "" while it is only planned
    how: str = ""

    def document(self) -> dict[str, Any]:
        return {"kind": self.kind, "object": self.object, "how": self.how or None}


@dataclass(frozen=True, kw_only=True)
class TablePrint:
    """The rows of one table in one number: equal prints mean equal rows in equal order."""

    rows: int
    # BLAKE2b over every value with its type, hexadecimal
    digest: str


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """What a run of repair found and did."""

    # the store
    path: Path
    # "sound": nothing to repair; "checked": it only looked; "planned": it only said what it would do; "repaired"
    outcome: Outcome
    # what is damaged and can be repaired
    findings: tuple[Finding, ...] = ()
    # what was done, or would be
    steps: tuple[Step, ...] = ()
    # identifies this damage, "" when there is none
    fingerprint: str = ""
    # attempts at this damage so far, this one included
    attempts: int = 0
    # the copy of the store as it was before, None when none was made
    kept: Path | None = None
    # True when an earlier attempt at the same damage had kept that copy
    kept_before: bool = False
    # rows by table, compared before and after; empty when nothing was done
    tables: dict[str, TablePrint] = field(default_factory=dict)
    # what a person should know besides
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """The fields that docs/cli-json.md promises."""
        return {
            "path": str(self.path),
            "outcome": self.outcome,
            "findings": [finding.document() for finding in self.findings],
            "steps": [step.document() for step in self.steps],
            "fingerprint": self.fingerprint or None,
            "attempts": self.attempts,
            "kept": str(self.kept) if self.kept else None,
            "kept_before": self.kept_before,
            "rows": {name: item.rows for name, item in self.tables.items()},
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
        }
