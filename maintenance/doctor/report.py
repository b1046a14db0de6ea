"""An examination as lines for people and as one document for programs.

Invariant: both say the same; a finding is one line that starts with how much it matters, and the last lines are the
verdict and the one command to run next. Not for: finding anything out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from maintenance.doctor.examine import Examination
from maintenance.doctor.findings import Finding, Severity
from maintenance.output.text import safe_text
from maintenance.space.sizes import ObjectSize

MARKS = {Severity.OK: "ok", Severity.INFO: "note", Severity.WARNING: "problem", Severity.DAMAGE: "DAMAGE"}
_WIDTH = max(map(len, MARKS.values()))


def lines(examination: Examination) -> Iterator[str]:
    """The report for a terminal or a pipe."""
    yield f"Store: {safe_text(str(examination.path))}"
    for finding in examination.findings:
        yield f"{MARKS[finding.severity]:<{_WIDTH}}  {safe_text(finding.sentence)}"
    yield f"Verdict: {verdict_words(examination)}"
    if examination.next_command:
        yield f"Next: {examination.next_command}"


def verdict_words(examination: Examination) -> str:
    """The verdict, and which objects it is about."""
    damaged = _objects(examination, derived=False)
    again = _objects(examination, derived=True, search=False)
    indexes = _objects(examination, derived=True, search=True)
    problems = [finding for finding in examination.findings if finding.severity is Severity.WARNING]
    parts = []
    if damaged:
        parts.append(f"damaged: {', '.join(damaged)}")
    if again:
        parts.append(f"damaged, can be built again: {', '.join(again)}")
    if indexes:
        parts.append(f"damaged search {'index' if len(indexes) == 1 else 'indexes'}: {', '.join(indexes)}")
    if problems:
        parts.append("1 problem" if len(problems) == 1 else f"{len(problems)} problems")
    if not parts and examination.verdict == "unchecked":
        return "nothing wrong in what was looked at; pages and indexes were not checked."
    return "; ".join(parts) + "." if parts else "healthy."


def document(examination: Examination) -> dict[str, Any]:
    """The fields that docs/cli-json.md promises."""
    return {
        "store": str(examination.path),
        "verdict": examination.verdict,
        "exit_code": examination.exit_code,
        "damaged_objects": _objects(examination, search=False),
        "damaged_search_indexes": _objects(examination, search=True),
        "repairable_objects": _objects(examination, derived=True),
        "next_command": examination.next_command or None,
        "findings": [finding.document() for finding in examination.findings],
        "sizes": [_size(item) for item in examination.objects] or None,
    }


def _size(item: ObjectSize) -> dict[str, Any]:
    return {"name": item.name, "kind": item.kind, "bytes": item.bytes, "share": round(item.share, 4)}


def _objects(examination: Examination, *, derived: bool | None = None, search: bool | None = None) -> list[str]:
    """Damaged objects, each once; `derived`: only those that can, or cannot, be built again; `search`: only search
    indexes, or all but them."""
    found: list[Finding] = [
        finding
        for finding in examination.findings
        if finding.severity is Severity.DAMAGE
        and derived in (None, finding.derived)
        and search in (None, finding.derived and finding.code.startswith("search_"))
    ]
    return list(dict.fromkeys(finding.object for finding in found))
