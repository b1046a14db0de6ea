"""Replacements and repairs of the store that were begun and not ended.

Invariant: read from what they leave beside the store for exactly this; the store itself is not asked, because while a
replacement is unfinished its content says nothing.

Not for: ending them: the command that began one does that when it runs again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_state.errors import Refused
from hermes_state.shell_words import shell_word
from maintenance.doctor.findings import Finding, Severity, command, recover_command, repair_command
from maintenance.output.text import plural

if TYPE_CHECKING:
    from maintenance.replacement.marker import Unfinished


def unfinished_findings(path: Path) -> list[Finding]:
    """What stands beside the store of work that was interrupted, or that runs now."""
    return [*replacement_findings(path), *repair_findings(path)]


def replacement_findings(path: Path) -> list[Finding]:
    """A replacement of all content that runs now, or that did not come to its end."""
    from maintenance.replacement.marker import unfinished

    found = unfinished(path)
    if found is None:
        return []
    facts = {"marker": str(found.marker), "verb": found.note.verb if found.note else None, "running": found.running}
    if found.running and found.note is not None:
        sentence = f"PID {found.note.pid} is replacing the content of the store now (`{found.note.verb}`)."
        return [_note("replacement_running", path, Severity.INFO, sentence, **facts)]
    verb = found.note.verb if found.note is not None else None
    return [
        Finding(
            code="replacement_unfinished", severity=Severity.WARNING, object=str(found.marker),
            sentence=f"A replacement of the store's content{f' (`{verb}`)' if verb else ''} did not come to its end. "
            f"{found.next}",
            facts={**facts, "old": found.note.old if found.note else None},
            next_command=_again(path, found),
        )
    ]


def _again(path: Path, found: Unfinished) -> str:
    """The command that ends a replacement: the one that began it, where it needs nothing but what the note says."""
    note = found.note
    if note is not None and note.verb == "sessions restore" and found.new_there:
        return command(note.verb, path, shell_word(note.new))
    return repair_command(path) if note is not None and note.verb == "sessions repair" else ""


def repair_findings(path: Path) -> list[Finding]:
    """A repair that runs now, one that was killed, and damage that will not be tried again."""
    from maintenance.repair.attempts import RUNNING, attempts_path, read_memory
    from maintenance.repair.lock import running_repair

    record = attempts_path(path)
    pid = running_repair(path)
    if pid is not None:
        who = f"PID {pid}" if pid else "Another process"
        return [_note("repair_running", path, Severity.INFO, f"{who} is repairing the store now.", pid=pid or None)]
    try:
        damages = read_memory(path).damages
    except Refused as problem:
        sentence = f"{problem.message} {problem.hint}"
        return [_note("repairs_unreadable", record, Severity.WARNING, sentence)]
    found = []
    if damages and damages[-1].attempts and damages[-1].attempts[-1].result == RUNNING:
        sentence = (
            f"A repair of {', '.join(damages[-1].objects)} was interrupted. The store is as it was before or repaired; "
            "the next run goes on."
        )
        found.append(
            Finding(
                code="repair_interrupted", severity=Severity.WARNING, object=str(path), sentence=sentence,
                facts={"objects": list(damages[-1].objects)}, next_command=repair_command(path),
            )
        )
    for damage in damages:
        if damage.given_up:
            sentence = (
                f"The same damage of {', '.join(damage.objects)} was repaired {plural(len(damage.attempts), 'time')}; "
                "it is not tried again."
            )
            found.append(_note("repair_given_up", path, Severity.INFO, sentence, objects=list(damage.objects)))
    return found


def without_hopeless(found: Iterable[Finding], path: Path) -> list[Finding]:
    """The same findings; what repair has given up on is sent to recovery."""
    from maintenance.repair.attempts import given_up_objects

    findings = list(found)
    try:
        hopeless = given_up_objects(path)
    except Refused:
        return findings  # said as a finding of its own
    return [
        replace(finding, next_command=recover_command(path))
        if finding.object in hopeless and finding.next_command == repair_command(path)
        else finding
        for finding in findings
    ]


def with_recovered(found: Iterable[Finding], path: Path) -> list[Finding]:
    """The same findings; where a whole result of `sessions recover` lies beside the store already, what would make it
    again puts it in place. A result that is older than the store, or known to lack rows, is not spoken of."""
    findings = list(found)
    result = Path(f"{path}.recovered.db")
    try:
        newer = result.is_file() and result.stat().st_mtime_ns > path.stat().st_mtime_ns
    except OSError:
        return findings
    if not newer:
        return findings
    return [
        replace(finding, next_command=command("sessions restore", path, shell_word(result)))
        if finding.next_command == recover_command(path) else finding
        for finding in findings
    ]


def _note(code: str, path: Path, severity: Severity, sentence: str, **facts: object) -> Finding:
    return Finding(code=code, severity=severity, object=str(path), sentence=sentence, facts=facts)
