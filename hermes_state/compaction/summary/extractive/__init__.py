"""A summary made of verbatim spans of its source: needs no model, always gives the same text for the same messages.

Invariant: never more than the budget by the caller's counter; every line is a stretch of one text of the source (or of
the summary before it); nothing is worded anew, so no value appears that the source does not have. The time is linear in
the source and bounded (see `units.MOST_CHARACTERS`), with two passes over its tokens.

Not for: judging what a model wrote (see `checked`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.compaction.summary.extractive.carry import GOOD, KEPT, carried, units_before
from hermes_state.compaction.summary.extractive.choose import chosen, spans_from
from hermes_state.compaction.summary.extractive.fit import fitted
from hermes_state.compaction.summary.extractive.layout import HEADINGS
from hermes_state.compaction.summary.extractive.novelty import Source
from hermes_state.compaction.summary.extractive.scores import scored
from hermes_state.compaction.summary.extractive.units import plain_turns, sampled, texts_of, units_of
from hermes_state.compaction.tokens import as_counter

if TYPE_CHECKING:
    from hermes_state.compaction.tokens import TokenCounter


def extractive(
    messages: Sequence[dict[str, Any]], *, budget: int,
    counter: TokenCounter | Callable[[str], int] | None = None, previous: str | None = None,
) -> str:
    """At most `budget` tokens of `messages` (chat messages in order), and of `previous`, the summary before them.

    Empty when there is nothing to keep, or no span fits the budget. Errors of the counter are the caller's.
    """
    count = as_counter(counter).count
    before, classes = units_before(previous)
    plain = plain_turns(messages)
    source = Source([*before, *units_of(sampled(texts_of(messages)))], plain)
    scored(source, len(messages))
    old = list(carried(source.lines, classes))
    fresh = (line for line in source.lines if line.unit.kind != "previous")
    new = spans_from(fresh, goal=not any(span.kind == "goal" for span in old))
    used = {span.kind for span in (*old, *new)}
    room = max(budget // 2, budget - sum(count(heading + "\n") for kind, heading in HEADINGS.items() if kind in used))
    kept = chosen(old, int(room * KEPT), count, shares=False)
    left = room - sum(span.cost for span in kept)
    good = chosen(
        [span for span in new if span.score >= GOOD or span.kind in ("goal", "asked")], left, count, kept,
        plain=len(plain) / max(1, len(messages)),
    )
    kept += good
    for rest in (old, new):
        more = [span for span in rest if span not in kept]
        kept += chosen(more, room - sum(span.cost for span in kept), count, kept, shares=False)
    return fitted(kept, budget, count)
