"""The rows to plan, with an earlier summary told apart from what the user said in the same row.

Invariant: `messages` are the rows without the summary, so that what is measured, kept and clipped is the stored row;
`summary_tokens` is what the summary adds to them while it is there. Both together are what is sent now.

Not for: making the view (see `render`), which joined the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_state.compaction.render import own_of
from hermes_state.compaction.tokens import TokenCounter, message_tokens


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is planned. `messages` and `sizes` have one entry for each row that the caller gave."""

    messages: Sequence[Mapping[str, Any]]
    sizes: Sequence[int]
    """Tokens of each row as it is in `messages`; 0 for a row that is nothing but the summary."""
    start: int
    """First row that may go."""
    first: int
    """First row that says something of its own: `start`, or the one after it when that is the summary alone."""
    summary_tokens: int
    """Tokens of the earlier summary; 0 without one."""

    @classmethod
    def of(
        cls, messages: Sequence[Mapping[str, Any]], sizes: Sequence[int], counter: TokenCounter, start: int,
        summary_at: int | None, summary: str | None,
    ) -> Rows:
        """The rows from `start` on; a summary that is not in row `start` is taken for a row like any other."""
        if summary_at is None or summary_at != start or start == len(messages):
            return cls(messages=messages, sizes=sizes, start=start, first=start, summary_tokens=0)
        whole = sizes[start]
        own = None if summary is None else own_of(messages[start].get("content"), summary)
        if own is None:
            kept, first = 0, start + 1
            alone = messages[start]
        else:
            alone, first = {**messages[start], "content": own}, start
            kept = min(whole, message_tokens(alone, counter))
        before, after = slice(None, start), slice(start + 1, None)
        return cls(
            messages=[*messages[before], alone, *messages[after]], sizes=[*sizes[before], kept, *sizes[after]],
            start=start, first=first, summary_tokens=whole - kept,
        )
