"""Making a plan: the arguments are checked, the rows counted once, the policy asked.

Invariant: pure. No store, no clock, nothing remembered: the same arguments give an equal plan. Time is linear in the
rows; a text is bounded work for the counter, whatever is in it.

Not for: deciding whether a pass may run now (see `guards`), nor for the summary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hermes_state.compaction.planning.budget import budget_for
from hermes_state.compaction.planning.default import default_plan
from hermes_state.compaction.planning.groups import leading_system_rows
from hermes_state.compaction.planning.hermes import hermes_plan
from hermes_state.compaction.planning.records import Plan
from hermes_state.compaction.planning.rows import Rows
from hermes_state.compaction.tokens import TokenCounter, as_counter, message_tokens
from hermes_state.compaction.tokens.counters import over_of
from hermes_state.compaction.windows.records import LARGEST
from hermes_state.errors import InvalidInput

POLICIES = ("default", "hermes", "hermes-uncapped")


def plan(
    messages: list[dict[str, Any]],
    *,
    window: int,
    policy: str = "default",
    count: TokenCounter | Callable[[str], int] | None = None,
    fixed_tokens: int = 0,
    reply_reserve: int | None = None,
) -> Plan:
    """Which rows of a conversation to summarise so that it goes on in a window of `window` tokens.

    `messages`: chat dicts, oldest first, in OpenAI's or Anthropic's shape. Leading system and developer rows count as
    fixed and stay. `fixed_tokens`: what else precedes each request, as tool schemas. `reply_reserve`: tokens that the
    reply may take; an eighth of the window when None, at most a quarter. `count`: a token counter or a function from
    text to tokens; the built-in estimate when None. `policy`: `default`, `hermes` for hermes-agent's boundaries, or
    `hermes-uncapped` for those it had before its tail was capped at 20 % of the window.

    Below the trigger the plan is not `needed` and `end == start`. Raises `InvalidInput` for arguments that cannot be
    used, and `PrefixTooLarge` when the fixed prefix and the reply leave less than 512 tokens; by the estimate only when
    they would do so even if it were 1.4 times too high (`budget.estimated` says where it stopped short of that).
    """
    return plan_rows(
        messages, window=window, policy=policy, count=count, fixed_tokens=fixed_tokens, reply_reserve=reply_reserve
    )


def plan_rows(
    messages: Sequence[Mapping[str, Any]],
    *,
    window: int,
    policy: str = "default",
    count: TokenCounter | Callable[[str], int] | None = None,
    fixed_tokens: int = 0,
    reply_reserve: int | None = None,
    summary_at: int | None = None,
    summary: str | None = None,
    row_tokens: Sequence[int | None] | None = None,
    force: bool = False,
) -> Plan:
    """`plan` for callers that know more about the rows.

    `summary_at`: index of the user row that begins with the earlier summary, and `summary` its text; without one the
    row is nothing but it. The summary is never the user's last word; it goes when a new one is made, and what the user
    said after it in the same row is a row like any other, to which clips refer as if it stood alone. `row_tokens`:
    tokens of each row by the same counter where they are known, so that they are not counted again. `force`: plan a
    pass although the rows are below the trigger, because the provider refused the request or a person asked.
    """
    counter = as_counter(count)
    _check(messages, window, policy, fixed_tokens, reply_reserve, row_tokens)
    start = leading_system_rows(messages)
    known = row_tokens if row_tokens is not None else [None] * len(messages)
    sizes = [
        message_tokens(message, counter) if tokens is None else tokens
        for message, tokens in zip(messages, known, strict=True)
    ]
    system = sum(sizes[:start])
    budget = budget_for(
        window, fixed=fixed_tokens + system, reply_reserve=reply_reserve, system=system, over=over_of(counter)
    )
    if policy != "default":
        made = hermes_plan(
            messages, window=window, budget=budget, fixed_tokens=fixed_tokens, capped=policy == "hermes"
        )
    else:
        made = default_plan(
            Rows.of(messages, sizes, counter, start, summary_at, summary), budget=budget, counter=counter, force=force
        )
    also = []
    if reply_reserve is not None and budget.reserve < reply_reserve:
        also.append(f"reserve {budget.reserve} of {reply_reserve} asked")
    if budget.estimated:
        also.append(f"estimated prefix {budget.fixed}")
    return replace(made, reasons=(*made.reasons, *also)) if also else made


def _check(
    messages: Any, window: Any, policy: Any, fixed_tokens: Any, reply_reserve: Any, row_tokens: Any
) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise _invalid("messages", f"messages is a list of dicts, not {type(messages).__name__}.")
    for row, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise _invalid("messages", f"messages[{row}] is a dict with a role, not {type(message).__name__}.")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise _invalid("messages", f"messages[{row}] has no role: {role!r}.")
    if type(window) is not int or window <= 0:
        raise _invalid("window", f"window is a number of tokens above 0, not {window!r}.")
    if window > LARGEST:
        raise _invalid("window", f"window is more tokens than any model has: at most {LARGEST}.")
    if type(fixed_tokens) is not int or fixed_tokens < 0:
        raise _invalid("fixed_tokens", f"fixed_tokens is a number of tokens from 0, not {fixed_tokens!r}.")
    if reply_reserve is not None and (type(reply_reserve) is not int or reply_reserve < 0):
        raise _invalid("reply_reserve", f"reply_reserve is a number of tokens from 0, or None, not {reply_reserve!r}.")
    if policy not in POLICIES:
        raise _invalid("policy", f"policy is one of {', '.join(POLICIES)}, not {policy!r}.")
    if row_tokens is not None and len(row_tokens) != len(messages):
        raise _invalid("row_tokens", f"row_tokens has {len(row_tokens)} entries for {len(messages)} messages.")


def _invalid(argument: str, message: str) -> InvalidInput:
    return InvalidInput(message, argument=argument)
