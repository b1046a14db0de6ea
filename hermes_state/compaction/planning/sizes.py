"""What a group takes at most, and how that is shared out among its bodies.

Invariant: a group takes the least of its whole size and of its cap, and its least size when even that is over the cap.
The cap is a fixed share of U, so seen as a part of U no group ever grows with the window: what fits a window fits every
larger one. Comparisons are exact, in thousandths of a token.

Not for: which groups stay (see `default`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_state.compaction.clips import BodyClip, Clip
from hermes_state.compaction.planning.bodies import Body, bodies_of
from hermes_state.compaction.planning.groups import Group
from hermes_state.compaction.planning.trims import trim
from hermes_state.compaction.tokens import TokenCounter


@dataclass(frozen=True, kw_only=True)
class Sized:
    """A group with its sizes in tokens."""

    group: Group
    rest: int
    """What always stays: roles, ids, names, short texts."""
    bodies: tuple[Body, ...] = field(repr=False)
    whole: int
    """All of it, encoded data left out."""
    least: int
    """All of it with every body as short as it can be shown."""

    def thousandths(self, share: int, usable: int) -> int:
        """What it takes at most of `share` thousandths of `usable` tokens, in thousandths of a token."""
        return min(1000 * self.whole, max(1000 * self.least, share * usable))

    def clips(self, share: int, usable: int, counter: TokenCounter, *, spare: bool) -> dict[int, Clip]:
        """How its rows are shown so that it keeps to that. `spare`: see `trim`."""
        level = self._level(share * usable // 1000)
        by_row: dict[int, list[BodyClip]] = {}
        for body in self.bodies:
            limit = max(level, body.least)
            if body.sort == "data" and not spare:
                limit = min(limit, body.least)
            clip = trim(body, limit, counter, spare=spare)
            if clip is not None:
                by_row.setdefault(body.row, []).append(clip)
        return {row: Clip(bodies=tuple(clips)) for row, clips in by_row.items()}

    def _level(self, cap: int) -> int:
        """The most that each body may take so that all together keep to `cap`: the largest are shortened first."""
        if self.whole <= cap:
            return self.whole
        low, high = 0, self.whole
        while low < high:
            middle = (low + high + 1) // 2
            taken = self.rest + sum(min(body.whole, max(body.least, middle)) for body in self.bodies)
            low, high = (middle, high) if taken <= cap else (low, middle - 1)
        return low


def sized(
    group: Group, messages: Sequence[Mapping[str, Any]], tokens: Sequence[int], counter: TokenCounter, *, spare: bool
) -> Sized:
    """Measures a group of `messages`, whose rows have `tokens`. Pictures and files count as marks unless spared."""
    rest, bodies = 0, []
    for row in group.rows:
        more, found = bodies_of(row, messages[row], tokens[row], counter)
        rest += more
        bodies += found
    whole = rest + sum(body.least if body.sort == "data" and not spare else body.whole for body in bodies)
    return Sized(
        group=group, rest=rest, bodies=tuple(bodies), whole=whole, least=rest + sum(body.least for body in bodies)
    )
