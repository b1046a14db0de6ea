"""The last word on the budget.

Invariant: the text given back is counted as a whole and is not above the budget, whatever the counter says of parts.

Not for: choosing well: what is dropped here is the least worth, a few lines at most with an honest counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hermes_state.compaction.summary.extractive.choose import Span
from hermes_state.compaction.summary.extractive.layout import written


def fitted(spans: Sequence[Span], budget: int, count: Callable[[str], int]) -> str:
    """The text of the best of `spans` that are within `budget` together; empty when none is."""
    kept = sorted(spans, key=lambda span: (span.kind != "goal", -span.score / (span.cost + 12), span.order))
    while kept:
        text = written(kept)
        tokens = count(text)
        if tokens <= budget:
            return text
        # As many as the overshoot asks for, at least one and at most half, so that a strange counter ends this soon
        # too.
        over, drop = tokens - budget, 0
        while drop < max(1, len(kept) // 2) and over > 0:
            drop += 1
            over -= max(1, kept[-drop].cost)
        del kept[-drop:]
    return ""
