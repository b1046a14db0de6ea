"""What a check found, and what all findings together mean.

Invariant: a finding is one object and one sentence; what is damaged is told apart by result codes and by where it was
found, never by words in a message of SQLite. What cannot be decided is a finding too, so silence never means "ok".

Not for: printing (`report`). A score or a traffic light was rejected: it hides which object is meant.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from hermes_state.errors import Corrupt, StateError
from hermes_state.shell_words import shell_word

# The code of the note that the checks of pages, foreign keys and search indexes were left out.
SKIPPED = "skipped"


class Severity(IntEnum):
    """How much a finding matters; the higher, the worse."""

    OK = 0  # looked at, nothing wrong
    INFO = 1  # worth knowing, no problem
    WARNING = 2  # a problem that loses nothing by itself
    DAMAGE = 3  # something in the file is wrong


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a check says."""

    # Stable name of what was found, such as "index_damaged"; scripts may rely on it.
    code: str
    # How much it matters.
    severity: Severity
    # What it is about: a table, an index, a file, a process.
    object: str
    # One sentence for a person.
    sentence: str
    # Raw values behind the sentence.
    facts: Mapping[str, Any] = field(default_factory=dict)
    # The command that helps, with absolute paths; "" when none does.
    next_command: str = ""
    # True when what is damaged can be built again from the rows of the store.
    derived: bool = False

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "code": self.code,
            "severity": self.severity.name.lower(),
            "object": self.object,
            "sentence": self.sentence,
            "facts": dict(self.facts),
            "next_command": self.next_command or None,
            "derived": self.derived,
        }


def exit_code(findings: Iterable[Finding]) -> int:
    """0 healthy, 3 problems or damage that can be built again from the rows, 65 damage of the store itself."""
    code = 0
    for finding in findings:
        if finding.severity is Severity.DAMAGE and not finding.derived:
            return 65
        if finding.severity >= Severity.WARNING:
            code = 3
    return code


def verdict(findings: Iterable[Finding]) -> str:
    """One word: "healthy", "problems", "damaged", or "unchecked" when nothing is wrong in what little was looked at.

    "healthy" is said only after pages and indexes were checked.
    """
    found = list(findings)
    code = exit_code(found)
    if code == 0 and any(finding.code == SKIPPED for finding in found):
        return "unchecked"
    return {0: "healthy", 3: "problems", 65: "damaged"}[code]


def next_command(findings: Iterable[Finding]) -> str:
    """The one command to run next: that of the worst finding, of equals the first. "" when that has none.

    A note is never the answer while there is a problem: its command would not help with that.
    """
    best: Finding | None = None
    for finding in findings:
        if finding.severity is Severity.OK or (finding.severity is Severity.INFO and not finding.next_command):
            continue
        if best is None or _rank(finding) > _rank(best):
            best = finding
    return best.next_command if best else ""


def _rank(finding: Finding) -> tuple[bool, int, bool]:
    lost = finding.severity is Severity.DAMAGE and not finding.derived
    return (lost, int(finding.severity), bool(finding.next_command))


def is_damage(error: StateError) -> bool:
    """SQLITE_CORRUPT in any form, or bad text; any other failure says nothing about what the file holds."""
    return error.sqlite_code == 11 or isinstance(error, Corrupt)


# What a check meets in a file whose names or texts are not UTF-8: from the engine, or from what runs beside it.
NOT_UTF8 = "it holds text that is not UTF-8"


def is_bad_text(error: Exception) -> bool:
    """Whether a check met text that is not UTF-8; SQLite itself does not mind it and gives no code."""
    return isinstance(error, UnicodeDecodeError) or (isinstance(error, Corrupt) and error.sqlite_code is None)


def command(verb: str, path: Path, *more: str) -> str:
    """A command line of ours that works from any folder."""
    return " ".join(["hermes-state", *verb.split(), "--db", shell_word(path), *more])


def recover_command(source: Path) -> str:
    """Salvage what can be read of a damaged store into a new file; the store itself is never written."""
    return f"hermes-state sessions recover --source {shell_word(source)}"


def repair_command(path: Path) -> str:
    """Put right what can be built again from the rows: indexes, search indexes, freelist, entries of the schema."""
    return command("sessions repair", path)


def copy_command(path: Path) -> str:
    """A copy of a damaged store and its sidecars as they are, made before any SQLite opens them for writing."""
    target = shell_word(f"{path}.damaged-copy")
    present = [f"{path}{suffix}" for suffix in ("", "-wal", "-journal") if os.path.exists(f"{path}{suffix}")]
    return f"mkdir {target} && cp -p {' '.join(map(shell_word, present))} {target}/"
