"""What a plan says, and the budget that it was made with.

Invariant: both are values; the same rows and the same numbers give an equal plan, in any process. All sizes are tokens
of the counter the plan was made with, `hermes` excepted (see `hermes`).

Not for: carrying a plan out (see the passes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hermes_state.compaction.clips import Clip


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How a window is shared out. Every field is a whole number of tokens, rounded against the spender."""

    window: int
    """The window of the model that is served."""
    fixed: int
    """What precedes the conversation in each request: the caller's `fixed_tokens` and the leading system rows."""
    reserve: int
    """Kept free for the reply."""
    usable: int
    """`window - fixed - reserve`: U; 512 when that is `estimated`."""
    trigger: int
    """More than this, and rows have to go: 0.85 U."""
    low_water: int
    """What a pass aims at for summary and tail together: 0.45 U. They are given 0.40 U."""
    summary: int
    """The summary message, all of it: 0.15 U."""
    tail: int
    """The tail with what it overruns: 0.25 U."""
    anchors: int
    """The last user row and the newest group together: 0.30 U. What is over it has its bodies clipped."""
    worth: int
    """A pass that frees less is not worth it: the larger of 0.10 U and 256."""
    estimated: bool = False
    """True when by an estimate the fixed prefix leaves no room and it may be too high: U is then the smallest there
    is, and whether the request fits is the server's to say."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which rows to summarise, and what stays as it is. Indexes are those of the `messages` that were planned."""

    start: int
    """First row that may go. The leading system rows before it stay."""
    end: int
    """First row of the tail. Equal to `start` when nothing is summarised."""
    tail_rows: int
    """Rows from `end` on."""
    tail_tokens: int
    """What they take at most, clipped as `clips` says."""
    summary_budget: int
    """Largest summary message for the rows that go; 0 when none does."""
    reasons: tuple[str, ...]
    """Why each boundary is where it is: stable words, then numbers. Also `reserve N of M asked` where the reply's part
    was lowered, and `estimated prefix N` for a budget that is `estimated`."""
    budget: Budget
    """The shares that the plan kept to."""
    anchors: tuple[int, ...]
    """Rows before `end` that stay all the same, in order."""
    clips: Mapping[int, Clip]
    """Of the rows that stay, those whose bodies are shown shortened."""
    tokens_before: int
    """The whole request as it is, without the reply: `budget.fixed` and all rows."""
    tokens_after_at_most: int
    """The whole request afterwards, `budget.fixed` among it as before, with a summary of its full budget."""
    needed: bool
    """True when the rows are over the trigger, or the caller wants a pass all the same."""

    @property
    def summarised(self) -> tuple[int, ...]:
        """The rows that the summary stands for: `start` to `end` without the anchors."""
        kept = set(self.anchors)
        return tuple(row for row in range(self.start, self.end) if row not in kept)

    @property
    def frees_at_least(self) -> int:
        """Tokens that the pass frees if its summary takes all it may; negative when it would add."""
        return self.tokens_before - self.tokens_after_at_most

    @property
    def worth_it(self) -> bool:
        """True when the pass is sure to free what makes it worth its price."""
        return self.frees_at_least >= self.budget.worth
