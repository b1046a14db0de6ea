"""The policy `hermes`: the boundaries that hermes-agent computes, with its cap on the tail, in its own unit.

Invariant: the same rows give the same boundaries as hermes-agent's default ("lean") tail since its commit b7803a17: a
budget of max(10,000, min(25,000, 2.5 % of the window)) and at most 20 % of the window, a walk that may overrun it by
half but not past those 20 %, and then the last user row, the last assistant row that says something, and whole tool
groups, whatever they take. It counts characters / 4 + 10 a message, whatever counter a caller has.

The walk is not monotone, on purpose: when everything fits the overrun it starts again without one, and when everything
fits even so, it falls back to the last eight rows. On 12,766 tokens a budget of 10,000 keeps 10,616 and one of 12,000
keeps 2,112.

Not for: new callers, who want `default`; it is here to be compared with, and for those who must match hermes-agent.
The walk and the unit are those measured on hermes-agent 0.19.0, which has no cap; the cap is as it was published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_state.compaction.planning.records import Budget, Plan

CHARACTERS_PER_TOKEN = 4
MESSAGE_TOKENS = 10
IMAGE_TOKENS = 1600
LEAN_FLOOR, LEAN_CEILING = 10_000, 25_000
FIRST_ROWS = 3  # kept after the system row, of the first pass
FLOOR_ROWS = 8  # kept whatever they take, where the cap does not bind
FEWEST_ROWS = 3
_IMAGES = frozenset({"image_url", "input_image", "image"})
_SENT_AGAIN = ("reasoning", "reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items")


def tokens_of(message: Mapping[str, Any]) -> int:
    """Tokens of one message in hermes-agent's unit."""
    tokens = MESSAGE_TOKENS + _content_characters(message.get("content")) // CHARACTERS_PER_TOKEN
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, (list, tuple)) else ():
        if isinstance(call, Mapping):
            tokens += len(str(call)) // CHARACTERS_PER_TOKEN
    for key in _SENT_AGAIN:
        tokens += _length(message.get(key)) // CHARACTERS_PER_TOKEN
    return tokens


def tail_budget(window: int, *, capped: bool = True) -> tuple[int, int]:
    """Tokens for the tail, and how far whole rows may overrun that."""
    budget = max(LEAN_FLOOR, min(LEAN_CEILING, window * 25 // 1000))
    if not capped:
        return budget, budget * 3 // 2
    cap = window // 5
    budget = min(budget, cap)
    return budget, max(min(budget * 3 // 2, cap), budget)


def head_rows(messages: Sequence[Mapping[str, Any]]) -> int:
    """Rows at the beginning that stay: a system row, and three."""
    return int(bool(messages) and messages[0]["role"] == "system") + FIRST_ROWS


def hermes_plan(
    messages: Sequence[Mapping[str, Any]], *, window: int, budget: Budget, fixed_tokens: int = 0, capped: bool = True
) -> Plan:
    """The plan with hermes-agent's boundaries, also below the trigger; then it is not `needed`.

    `capped`: False for the tail as it was before the cap. `fixed_tokens`: as the caller declared them, in his unit.
    """
    sizes = [tokens_of(message) for message in messages]
    wanted, ceiling = tail_budget(window, capped=capped)
    floor_binds = ceiling == wanted * 3 // 2
    start = _past_results(messages, min(head_rows(messages), len(messages)))
    end, why = cut_of(messages, sizes, start, wanted, ceiling, floor=FLOOR_ROWS if floor_binds else FEWEST_ROWS)
    end = max(start, end)
    before = fixed_tokens + sum(sizes)
    tail = sum(sizes[end:])
    return Plan(
        start=start, end=end, tail_rows=len(messages) - end, tail_tokens=tail,
        summary_budget=budget.summary if end > start else 0,
        reasons=(f"tail {tail} of {wanted}, overrun to {ceiling}", *why), budget=budget, anchors=(), clips={},
        tokens_before=before,
        tokens_after_at_most=before - sum(sizes[start:end]) + (budget.summary if end > start else 0),
        needed=before - fixed_tokens > budget.trigger,
    )


def cut_of(
    messages: Sequence[Mapping[str, Any]], sizes: Sequence[int], head: int, budget: int, ceiling: int, *, floor: int
) -> tuple[int, list[str]]:
    """First row of the tail, and why. `sizes`: tokens of each row; `floor`: rows that stay whatever they take."""
    rows = len(messages)
    floor = min(floor, max(FEWEST_ROWS, rows - head - FIRST_ROWS))
    why: list[str] = []
    taken, cut = 0, head
    for row in range(rows - 1, head - 1, -1):
        if taken + sizes[row] > ceiling and rows - row > floor:
            cut = row + 1
            why.append(f"row {row} needs {sizes[row]} of {max(ceiling - taken, 0)}")
            break
        taken += sizes[row]
    else:
        why.append(f"all {taken} fit the overrun")
        taken = 0
        for row in range(rows - 1, head - 1, -1):
            taken += sizes[row]
            if taken > budget and rows - row >= floor:
                cut = row
                break
    if cut <= head:
        cut = rows - floor
        why.append(f"all fit: last {floor} rows")
    aligned = _whole_group(messages, cut)
    if aligned != cut:
        why.append(f"whole group from row {aligned}")
    cut = aligned
    for what in ("assistant", "user"):
        last = _last(messages, what)
        if last is not None and head <= last < cut:
            cut = last if what == "user" else _whole_group(messages, last)
            why.append(f"last {what} row {last}")
    cut = max(cut, head + 1)
    if cut == head + 1 and _last(messages, "user") == head and cut < rows and messages[cut]["role"] == "assistant":
        # The last user row cannot stay, so its answer goes with it, as long as something stays after that.
        answered = _past_results(messages, cut + 1)
        return (answered if answered < rows and _last(messages, "assistant") != cut else cut), why
    return _past_results(messages, cut), why


def _past_results(messages: Sequence[Mapping[str, Any]], row: int) -> int:
    """The first row from `row` on that is no tool result."""
    while row < len(messages) and messages[row]["role"] == "tool":
        row += 1
    return row


def _last(messages: Sequence[Mapping[str, Any]], role: str) -> int | None:
    """The last row of a role, for the assistant one that says something."""
    for row in range(len(messages) - 1, -1, -1):
        if messages[row]["role"] == role and (role == "user" or _says(messages[row].get("content"))):
            return row
    return None


def _says(content: Any) -> bool:
    if isinstance(content, list):
        return any(_says(part.get("text") if isinstance(part, Mapping) else part) for part in content)
    return isinstance(content, str) and bool(content.strip())


def _whole_group(messages: Sequence[Mapping[str, Any]], cut: int) -> int:
    row = cut - 1
    while row >= 0 and messages[row]["role"] == "tool":
        row -= 1
    return row if row >= 0 and messages[row].get("tool_calls") else cut


def _content_characters(content: Any) -> int:
    if isinstance(content, list):
        return sum(_part_characters(part) for part in content)
    return _length(content)


def _part_characters(part: Any) -> int:
    if isinstance(part, str):
        return len(part)
    if not isinstance(part, Mapping):
        return len(str(part))
    if str(part.get("type")) in _IMAGES:
        return IMAGE_TOKENS * CHARACTERS_PER_TOKEN
    return _length(part.get("text"))


def _length(value: Any) -> int:
    if not value:
        return 0
    return len(value) if isinstance(value, str) else len(str(value))
