"""Rows that no pass takes away: what the user said last, the group being worked on, calls whose result may come.

Invariant: which rows these are and what share of U each may take follows from the rows alone, never from the window;
so a larger window gives each of them more. The shares together are 0.30 U, one alone has 0.25 U. Of calls that were
left open the newest three stay, at 0.03 U each, which the others have less: a call without its result is short.

Not for: shortening them (see `trims`). Protecting the last eight rows instead was rejected: eight rows can be larger
than the window, and in a loop of forty calls the user's question is not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hermes_state.compaction.planning.budget import ANCHORS, TAIL
from hermes_state.compaction.planning.sizes import Sized

ORDINARY = 100  # thousandths of U that a group which is none of these may take
# Of two, the older may take 0.10 to 0.25 U and the newest 0.05 to 0.20 U, so that both together fit 0.30 U and a short
# question still fits the tail beside the largest result.
_SMALLEST, _LARGEST = 100, 250
MOST_LEFT_OPEN = 3
_LEFT_OPEN = 30  # thousandths of U for each


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """The groups that stay, by their number among all groups."""

    last_user: int | None
    open: int | None
    newest: int
    left_open: tuple[int, ...]
    """Those whose call the model went on without, and whose result may still come; the newest, ascending."""
    shares: dict[int, int]
    """Thousandths of U that each of them may take."""

    def share(self, number: int) -> int:
        """Thousandths of U for any group."""
        return self.shares.get(number, ORDINARY)


def anchor_numbers(last_user: int | None, waiting: int | None, newest: int) -> list[int]:
    """The different ones among them, ascending."""
    return sorted({number for number in (last_user, waiting, newest) if number is not None})


def anchors_of(
    last_user: int | None, waiting: int | None, newest: int, measured: Sequence[Sized], left_open: Sequence[int] = ()
) -> Anchors:
    """Shares 0.30 U out by size, so that a short question leaves its part to a long result and the other way round.

    `measured`: the sizes of `anchor_numbers(...)`, in that order. `left_open`: none of those.
    """
    numbers = anchor_numbers(last_user, waiting, newest)
    together = ANCHORS - _LEFT_OPEN * len(left_open)
    if len(numbers) == 1:
        shares = [min(TAIL, together)]
    elif len(numbers) == 2:
        first, second = (max(size.whole, 1) for size in measured)
        part = min(max(together * first // (first + second), _SMALLEST), _LARGEST, together - _SMALLEST // 2)
        shares = [part, together - part]
    else:
        shares = [together // len(numbers)] * len(numbers)
    return Anchors(
        last_user=last_user, open=waiting, newest=newest, left_open=tuple(left_open),
        shares={**dict.fromkeys(left_open, _LEFT_OPEN), **dict(zip(numbers, shares, strict=True))},
    )
