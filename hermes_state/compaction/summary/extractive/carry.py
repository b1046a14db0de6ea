"""What an earlier summary hands on to the next one.

Invariant: an old line competes with its score in the whole source, old and new, as every other does; while old and new
lines that say something fit together, all of them stay. Else the old ones have `KEPT` of the room at least and the new
ones the rest, best first in each, so that facts live through many generations and new ones still come in.

Not for: the anchors and the tail of a view, which are no summary. Scores kept beside the lines were rejected: they take
tokens, and a summary that a model wrote has none.
"""

from __future__ import annotations

from collections.abc import Iterator

from hermes_state.compaction.summary.extractive.choose import Class, Span, new_keys
from hermes_state.compaction.summary.extractive.layout import read
from hermes_state.compaction.summary.extractive.novelty import Line
from hermes_state.compaction.summary.extractive.units import Unit

KEPT = 0.6   # of the room, for lines of the summary before when the new ones could fill it
GOOD = 0.5   # score from which a new line says something: below it, it only fills what old lines leave


def units_before(previous: str | None) -> tuple[list[Unit], dict[int, Class]]:
    """The lines of an earlier summary as units with orders below zero, and the class of each by its order."""
    lines = list(dict.fromkeys(read(previous or "")))
    units = [Unit(text, "previous", -1, at - len(lines), at, False) for at, (_kind, text) in enumerate(lines)]
    return units, {unit.order: kind for unit, (kind, _text) in zip(units, lines, strict=True)}


def carried(lines: list[Line], classes: dict[int, Class]) -> Iterator[Span]:
    """A span for each line of the earlier summary, as it is."""
    for line in lines:
        if line.unit.kind == "previous":
            yield Span(line.unit.text, classes[line.unit.order], line.unit.order, -1, line.score, 0, new_keys(line))
