"""What a pass will ask its summariser, settled before the pass begins.

Invariant: whether a summariser's window has room for anything is known before a row is written, so a window that is too
small is never a pass that failed. A small one is asked for a smaller summary, down to `LEAST_SUMMARY`.

Not for: asking (see `asking`). Trying the requests inside the pass was rejected: a setting that can never work was
counted against the summariser, and the next call met a pause instead of the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hermes_state.compaction.guards import Verdict
from hermes_state.compaction.looking import Look
from hermes_state.compaction.options import EXTRACTIVE
from hermes_state.compaction.planning import Plan
from hermes_state.compaction.sources import LABEL
from hermes_state.compaction.summary import SummaryRequest, requests_for
from hermes_state.compaction.tokens.messages import MESSAGE_TOKENS
from hermes_state.errors import InvalidInput

# Tokens: a word for what goes, also where that is next to nothing and a pass is made for its clips.
SMALLEST_SUMMARY = 16
# Tokens of a summary below which a model is not asked for one: the extract says more in as many.
LEAST_SUMMARY = 96
SUMMARY_AND_TAIL = 384  # thousandths of U: 0.40 U less 4 %


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A look, with what its pass asks."""

    seen: Look
    # tokens that the summary may have, without its label; less than planned where the summariser's window is small
    budget: int
    # in order; empty: nobody is asked
    requests: Sequence[SummaryRequest] = ()


def prepared(seen: Look) -> Prepared:
    """The requests of the pass that was looked at.

    Raises `InvalidInput` (fact `needed`: the smallest window that works) when `summarizer_window` has room for no
    request. Where nobody gave one, the summariser is left out of this pass instead, as the verdict `asks` then says.
    """
    around = MESSAGE_TOKENS + seen.counter.count(LABEL)
    budget = max(summary_room(seen.plan) - around, SMALLEST_SUMMARY)
    asked = seen.asked
    if asked.summarizer is None or not seen.asks.go or not seen.plan.summarised:
        return Prepared(seen=seen, budget=budget)
    own = asked.summarizer_window or seen.settings.window
    least = min(budget, LEAST_SUMMARY)
    needed, room = 0, budget
    while True:
        try:
            return Prepared(seen=seen, budget=room, requests=_requests(seen, room, own))
        except InvalidInput as error:
            if "needed" not in error.facts:
                raise  # the counter's
            needed = error.facts["needed"]
        if room == least:
            break
        # Each token of summary is needed twice: in the request, as the summary so far, and in the answer.
        room = max(room - max(-(-(needed - own) // 2), 1), least)
    said = f"A summariser with a window of {own} tokens has no room for a summary of this conversation"
    if asked.summarizer_window is not None:
        raise InvalidInput(
            f"{said}: it takes at least {needed}.",
            hint="Use a summariser with a larger window, or the extractive one, which needs none.",
            argument="summarizer_window", window=own, needed=needed,
        )
    asks = Verdict(go=False, why="summarizer", detail=f"{said}: it takes at least {needed}.")
    return Prepared(
        seen=replace(seen, asks=asks, draft=replace(seen.draft, summarizer=EXTRACTIVE)), budget=budget,
    )


def summary_room(plan: Plan) -> int:
    """Tokens that the summary message may take: its budget, less where the tail took all of its own.

    Both together have 0.40 U, and a template writes up to 4 % more around messages than is counted (see
    `guards.FITS_PERCENT`). A tail that an anchor made larger than its budget is not made good by the summary.
    """
    if plan.tail_tokens > plan.budget.tail:
        return plan.summary_budget
    return min(plan.summary_budget, plan.budget.usable * SUMMARY_AND_TAIL // 1000 - plan.tail_tokens)


def _requests(seen: Look, budget: int, own_window: int) -> Sequence[SummaryRequest]:
    return requests_for(
        seen.view.messages, seen.plan.start, seen.plan.end, budget=budget, own_window=own_window,
        counter=seen.counter, previous=seen.view.summary, fixed_tokens=seen.asked.fixed_tokens,
    )
