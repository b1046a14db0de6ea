"""The summary as text, and read back.

Invariant: one span a line under the heading of its class, in the order of the source; what `written` writes, `read`
reads, so that a summary of a summary keeps its spans and their classes. A text of another origin is read as facts, line
by line.

Not for: telling the model what a summary is: that stands around it in the view.
"""

from __future__ import annotations

from collections.abc import Iterable

from hermes_state.compaction.summary.extractive.choose import Class, Span

HEADINGS: dict[Class, str] = {
    "goal": "Asked first:",
    "asked": "Asked since:",
    "concluded": "Said and concluded:",
    "open": "Open:",
    "error": "Errors seen:",
    "call": "Ran:",
    "fact": "Facts:",
}
_CLASS_OF = {heading: kind for kind, heading in HEADINGS.items()}


def written(spans: Iterable[Span]) -> str:
    """The text of a summary; empty for no spans."""
    by_class: dict[Class, list[Span]] = {}
    for span in spans:
        by_class.setdefault(span.kind, []).append(span)
    lines = []
    for kind, heading in HEADINGS.items():
        if kind in by_class:
            lines.append(heading)
            lines += [span.text for span in sorted(by_class[kind], key=lambda span: span.order)]
    return "\n".join(lines)


def read(summary: str) -> list[tuple[Class, str]]:
    """The lines of an earlier summary with their classes."""
    kind: Class = "fact"
    found: list[tuple[Class, str]] = []
    for line in summary.splitlines():
        stripped = line.strip()
        if stripped in _CLASS_OF:
            kind = _CLASS_OF[stripped]
        elif stripped:
            found.append((kind, stripped))
    return found
