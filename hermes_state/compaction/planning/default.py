"""The policy `default`: as many of the newest groups as fit a quarter of U, between closed groups.

Invariant: a larger window, a smaller prefix or a smaller reserve never keeps less, row by row. Each group is capped by
a share of U before the walk, and the walk compares exact thousandths, so whether the newest n groups fit can only
change from no to yes as U grows.

Not for: windows that leave less than 512 tokens (see `budget`). Letting the walk overrun its budget to finish a row was
rejected: on a small window one row of overrun is the window.
"""

from __future__ import annotations

from collections.abc import Sequence

from hermes_state.compaction.clips import Clip
from hermes_state.compaction.planning.anchors import MOST_LEFT_OPEN, Anchors, anchor_numbers, anchors_of
from hermes_state.compaction.planning.budget import TAIL
from hermes_state.compaction.planning.groups import Group, groups_of, last_user_row
from hermes_state.compaction.planning.records import Budget, Plan
from hermes_state.compaction.planning.rows import Rows
from hermes_state.compaction.planning.sizes import Sized, sized
from hermes_state.compaction.tokens import TokenCounter


def default_plan(rows: Rows, *, budget: Budget, counter: TokenCounter, force: bool) -> Plan:
    """The plan for `rows`. `force`: see `plan_rows`."""
    start, sizes, count = rows.start, rows.sizes, len(rows.messages)
    before = sum(sizes[start:]) + rows.summary_tokens
    # 0.85 U, multiplied out.
    over = 20 * before > 17 * budget.usable
    if rows.first == count or not (over or force):
        return Plan(
            start=start, end=start, tail_rows=count - start, tail_tokens=before, summary_budget=0, reasons=("fits",),
            budget=budget, anchors=(), clips={}, tokens_before=budget.fixed + before,
            tokens_after_at_most=budget.fixed + before, needed=False,
        )
    walk = _Walk(rows, budget, counter)
    first = walk.first_of_tail()
    kept_before = walk.kept_before(first)
    kept = {row for number in kept_before for row in walk.groups[number].rows}
    end = walk.groups[first].first
    gone = [row for row in range(rows.first, end) if row not in kept]
    stays = 0
    if not gone:
        # Nothing but anchors, or the summary there is, lies before the cut: a summary would stand for nothing new.
        first, end, kept_before, kept, stays = 0, start, [], set(), rows.summary_tokens
    tail = range(first, len(walk.groups))
    clips = walk.clips([*kept_before, *tail])
    tail_tokens = stays + sum(walk.tokens(number) for number in tail)
    anchor_tokens = sum(walk.tokens(number) for number in kept_before)
    summary = min(budget.summary, sum(sizes[row] for row in gone) + rows.summary_tokens) if gone else 0
    reasons = [
        f"over {before} of {budget.trigger}" if over else f"asked {before} of {budget.trigger}",
        *walk.reasons(first, end, tail_tokens, anchor_tokens, nothing_gone=not gone),
        *(f"clipped row {row} of {sizes[row]}" for row in sorted(clips)),
    ]
    return Plan(
        start=start, end=end, tail_rows=count - end, tail_tokens=tail_tokens, summary_budget=summary,
        reasons=tuple(reasons), budget=budget, anchors=tuple(sorted(kept)), clips=clips,
        tokens_before=budget.fixed + before,
        tokens_after_at_most=budget.fixed + summary + anchor_tokens + tail_tokens, needed=True,
    )


class _Walk:
    """The walk from the newest group back; groups are measured when they are come to, and once."""

    def __init__(self, rows: Rows, budget: Budget, counter: TokenCounter) -> None:
        self._rows, self._counter, self._budget = rows, counter, budget
        self.groups = groups_of(rows.messages, rows.first)
        self._measured: dict[int, Sized] = {}
        asked = last_user_row(rows.messages, rows.first)
        last_user = None if asked is None else _group_with(self.groups, asked)
        waiting = next((n for n in range(len(self.groups) - 1, -1, -1) if self.groups[n].open), None)
        numbers = anchor_numbers(last_user, waiting, len(self.groups) - 1)
        self._spared = set(numbers)
        left_open = [n for n, group in enumerate(self.groups) if group.left_open and n not in self._spared]
        self.anchors: Anchors = anchors_of(
            last_user, waiting, numbers[-1], [self.size(n) for n in numbers], left_open[-MOST_LEFT_OPEN:]
        )
        self._blocked: tuple[int, int] | None = None

    def size(self, number: int) -> Sized:
        """Sizes of a group."""
        if number not in self._measured:
            self._measured[number] = sized(
                self.groups[number], self._rows.messages, self._rows.sizes, self._counter,
                spare=number in self._spared,
            )
        return self._measured[number]

    def _thousandths(self, number: int) -> int:
        return self.size(number).thousandths(self.anchors.share(number), self._budget.usable)

    def tokens(self, number: int) -> int:
        """What a group that stays takes at most, in whole tokens."""
        return self._thousandths(number) // 1000

    def first_of_tail(self) -> int:
        """Number of the first group of the longest run of newest groups that fits; the newest is always in it."""
        left = TAIL * self._budget.usable
        number = len(self.groups)
        while number:
            need = self._thousandths(number - 1)
            if need > left and number < len(self.groups):
                self._blocked = (number - 1, left // 1000)
                break
            left -= need
            number -= 1
        return number

    def kept_before(self, first: int) -> list[int]:
        """Numbers of the anchors that lie before group `first`."""
        kept = {self.anchors.last_user, self.anchors.open, *self.anchors.left_open}
        return sorted(number for number in kept if number is not None and number < first)

    def clips(self, numbers: Sequence[int]) -> dict[int, Clip]:
        """How rows of the groups that stay are shortened."""
        found: dict[int, Clip] = {}
        for number in numbers:
            found |= self.size(number).clips(
                self.anchors.share(number), self._budget.usable, self._counter, spare=number in self._spared
            )
        return found

    def reasons(
        self, first: int, end: int, tail_tokens: int, anchor_tokens: int, *, nothing_gone: bool
    ) -> list[str]:
        """Why the cut is where it is, and what stays before it."""
        said = [f"tail {tail_tokens} of {self._budget.tail}"]
        if self._blocked is not None:
            number, left = self._blocked
            group = self.groups[number]
            said.append(f"next rows {group.first}-{group.stop - 1} need {self.tokens(number)} of {left}")
        for number in self.kept_before(first):
            group = self.groups[number]
            what = "anchor last-user" if number == self.anchors.last_user else "anchor open-group"
            said.append(f"{what} rows {group.first}-{group.stop - 1} take {self.tokens(number)}")
        if tail_tokens > self._budget.tail:
            said.append(f"anchor newest rows {self.groups[-1].first}-{self.groups[-1].stop - 1} over the tail budget")
        if anchor_tokens > self._budget.anchors:
            said.append(f"anchors {anchor_tokens} over {self._budget.anchors}")
        if nothing_gone:
            said.append(f"nothing to summarise before row {end}")
        return said


def _group_with(groups: Sequence[Group], row: int) -> int:
    """Number of the group that a row is in; groups are consecutive."""
    low, high = 0, len(groups) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if groups[middle].first <= row else (low, middle - 1)
    return low
