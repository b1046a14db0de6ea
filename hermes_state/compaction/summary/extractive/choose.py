"""Which spans go into the summary.

Invariant: each class of content has a share that no other can take; what a class leaves goes to all by worth a token. A
span brings something that is not in the summary yet, or it is left out, and one message cannot fill a class by itself.

Not for: their order and headings (see `layout`). An exact knapsack was rejected: scores are not that exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from hermes_state.compaction.summary.extractive.novelty import NEW_VALUE, NEW_WORD, Line
from hermes_state.compaction.summary.extractive.scores import CONCLUDED, ERROR, OPEN
from hermes_state.compaction.summary.extractive.spans import span_of

Class = Literal["goal", "asked", "concluded", "open", "error", "call", "fact"]

# Of the budget, at least, for each class when it has so much to say; the rest is free for all.
SHARES: dict[Class, float] = {
    "goal": 0.08, "asked": 0.10, "concluded": 0.12, "open": 0.06, "error": 0.05, "call": 0.04, "fact": 0.35,
}
# Of turns without tools, where what is known was said: what was answered has no less than what was asked. A source that
# is partly such turns has shares between.
PLAIN_SHARES: dict[Class, float] = {
    "goal": 0.08, "asked": 0.30, "concluded": 0.40, "open": 0.06, "error": 0.04, "call": 0.0, "fact": 0.12,
}
_OVERHEAD = 12          # tokens added to a span's cost when its worth is compared: a few long ones beat many crumbs
_SAME_MESSAGE = 0.97    # a span's worth for each better one of its message
_MOST_COUNTED = 600     # spans whose tokens are counted; the budget is never that large in a small window
_LEAST_SCORE = 0.2
_SHARED_SCORE = 0.5      # a class keeps its share for spans that say something


@dataclass(slots=True)
class Span:
    """A verbatim stretch and what speaks for it."""

    text: str
    kind: Class
    order: int
    message: int
    score: float
    cost: int = 0
    keys: frozenset[str] = frozenset()


def spans_from(lines: Iterable[Line], *, goal: bool) -> list[Span]:
    """The span of every line, with its class; `goal`: the first that a person said is the goal."""
    found = []
    seen: set[str] = set()
    first_user = goal
    for line in lines:
        is_goal = line.unit.kind == "user" and first_user and len(line.tokens) >= 2
        start, end = span_of(line)
        text = " ".join(line.unit.text[start:end].split("\n"))
        if not text.strip() or text in seen or (not line.tokens and not is_goal):
            continue
        first_user = first_user and not is_goal
        seen.add(text)
        kind: Class = "goal" if is_goal else _class_of(line)
        keys = new_keys(line, start, end)
        found.append(Span(text, kind, line.unit.order, line.unit.message, line.score, 0, keys))
    return found


def new_keys(line: Line, start: int = 0, end: int = 1 << 30) -> frozenset[str]:
    """What a stretch of a line brings: its values and words that are news."""
    return frozenset(
        token.key for token, novelty in zip(line.tokens, line.novelty, strict=True)
        if novelty >= (NEW_VALUE if token.value else NEW_WORD) and start <= token.start < end
    )


def _class_of(line: Line) -> Class:
    kind, text = line.unit.kind, line.unit.text
    if kind == "call":
        return "call"
    if kind == "user":
        return "asked"
    if OPEN.search(text) and (kind == "assistant" or line.score > 0.6):
        return "open"
    if kind == "assistant":
        return "concluded" if CONCLUDED.search(text) or line.unit.position == 0 or line.ends else "fact"
    return "error" if ERROR.search(text) else "fact"


def chosen(
    spans: list[Span], budget: int, count: Callable[[str], int], taken: Iterable[Span] = (), *, shares: bool = True,
    plain: float = 0.0,
) -> list[Span]:
    """Spans worth `budget` tokens with their line ends.

    `taken` are in the summary already; `shares`: each class has its own part of the budget first. `plain`: how much of
    the source, 0 to 1, are turns without tools.
    """
    known: set[str] = {key for span in taken for key in span.keys}
    rough = sorted(spans, key=lambda span: (-span.score / (len(span.text) / 3 + _OVERHEAD), span.order))[:_MOST_COUNTED]
    must = [span for span in spans if span.kind == "goal" and span not in rough]
    for span in (candidates := must + rough):
        span.cost = count(span.text + "\n")
    ranked = sorted(candidates, key=lambda span: (-_worth(span), span.order))
    of_message: Counter[tuple[str, int]] = Counter()
    order: list[tuple[float, Span]] = []
    for span in ranked:
        order.append((_worth(span) * _SAME_MESSAGE ** of_message[span.kind, span.message], span))
        of_message[span.kind, span.message] += 1
    order.sort(key=lambda pair: (-pair[0], pair[1].order))
    picked: list[Span] = []
    left = budget
    used: Counter[str] = Counter()
    for shared in (True, False) if shares else (False,):
        for _worth_of, span in order:
            if span in picked or span.cost > left or (span.score < _LEAST_SCORE and span.kind != "goal"):
                continue
            if shared and span.score < _SHARED_SCORE and span.kind != "goal":
                continue
            share = SHARES[span.kind] + plain * (PLAIN_SHARES[span.kind] - SHARES[span.kind])
            beyond = used[span.kind] + span.cost > share * budget
            if shared and beyond and not (span.kind == "goal" and not picked):
                continue
            if span.kind != "goal" and span.keys <= known and (span.keys or not shared):
                continue
            picked.append(span)
            known |= span.keys
            left -= span.cost
            used[span.kind] += span.cost
    return picked


def _worth(span: Span) -> float:
    return span.score / (span.cost + _OVERHEAD)

