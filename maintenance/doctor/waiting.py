"""Turns that a store could not take and that wait beside it: users took such a fallback for an ordinary run.

Invariant: only the spool's own files are read; the store is not asked, because turns wait most of all while it cannot
answer. Turns that wait are a problem until they are in the store, whatever else is healthy.

Not for: bringing them in (`sessions spool --replay`).
"""

from __future__ import annotations

from pathlib import Path

from hermes_state.clock import SYSTEM, Clock
from hermes_state.spool import Spool
from maintenance.doctor.findings import Finding, Severity, command
from maintenance.output.text import human_time, plural, rfc3339


def waiting_findings(path: Path, *, clock: Clock = SYSTEM) -> list[Finding]:
    """What waits in the spool of the store, and what of it can never be stored."""
    spool = Spool(path)
    where = str(spool.folder)
    try:
        waiting = [(item.at, item.cause) for item in spool.items()]
        quarantined = spool.quarantined()
    except (OSError, ValueError, KeyError) as problem:
        sentence = f"Turns may wait in {spool.folder}, which cannot be read: {type(problem).__name__}: {problem}."
        return [Finding(code="spool_unreadable", severity=Severity.WARNING, object=where, sentence=sentence)]
    found = []
    if waiting:
        oldest, cause = waiting[0]
        waits, them = ("waits", "it is") if len(waiting) == 1 else ("wait", "they are")
        sentence = (
            f"{plural(len(waiting), 'turn')} could not be saved in the store and {waits} beside it since "
            f"{human_time(oldest, clock)} ({cause}); nothing shows what waits until {them} brought in."
        )
        facts = {"turns": len(waiting), "oldest": rfc3339(oldest), "cause": cause, "folder": where}
        found.append(
            Finding(
                code="turns_waiting", severity=Severity.WARNING, object=where, sentence=sentence,
                facts=facts, next_command=command("sessions spool", path, "--replay"),
            )
        )
    if quarantined:
        are = "it is" if len(quarantined) == 1 else "they are"
        sentence = f"{plural(len(quarantined), 'turn')} can never be stored as {are}; the spool says why."
        found.append(
            Finding(
                code="turns_quarantined", severity=Severity.WARNING, object=where, sentence=sentence,
                facts={"turns": len(quarantined), "codes": sorted({kept.code for kept in quarantined})},
                next_command=command("sessions spool", path),
            )
        )
    return found
