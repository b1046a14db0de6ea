"""Whether an answer was made from less than what was sent, or stopped at the end of the window.

Invariant: both are told by numbers of the server: what it read, what it wrote and why it stopped. A server that says
nothing about tokens (absent, or zero) is not judged.

Ollama answers an over-long prompt with HTTP 200 and drops its beginning, system prompt and user's words first; what it
keeps is about half of its window. A local server that reaches the end of its window stops with `length`, and a caller
that asks for the rest gets two halves that do not fit together.

Not for: errors (see `refusals`). Comparing with the window alone was rejected: the window is what is not known then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_state.compaction.windows.records import SMALLEST, Truncation

# A prompt that was read whole was never seen to have less than this share of the estimate: the estimator is at most
# 2.1 times too high, on columns of numbers (docs/tokens.md); long digits alone reach 3.
_READ_SHARE = 0.4
# With a window known: beyond it a smaller shortfall is enough, within it there must be no other way to explain one.
_READ_SHARE_OVER, _READ_SHARE_WITHIN = 0.75, 0.3
# Shortfalls below are templates, tools left out, rounding.
_LEAST_MISSING = 512


def prompt_tokens(usage: Mapping[str, Any] | None) -> int | None:
    """Tokens of the prompt that a server reported, or None when it said nothing.

    Understood: `prompt_tokens` (OpenAI's shape), `prompt_eval_count` (Ollama), `input_tokens` with
    `cache_read_input_tokens` and `cache_creation_input_tokens` beside it (Anthropic). Zero is "nothing": local servers
    send it when they do not count. `total_tokens` is never used, because it has the reply in it.
    """
    if not isinstance(usage, Mapping):
        return None
    for name in ("prompt_tokens", "prompt_eval_count"):
        found = _positive(usage.get(name))
        if found is not None:
            return found
    parts = [_positive(usage.get(name)) for name in (
        "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
    )]
    return sum(part for part in parts if part) or None


def completion_tokens(usage: Mapping[str, Any] | None) -> int | None:
    """Tokens of the reply that a server reported, or None when it said nothing."""
    if not isinstance(usage, Mapping):
        return None
    for name in ("completion_tokens", "eval_count", "output_tokens"):
        found = _positive(usage.get(name))
        if found is not None:
            return found
    return None


def truncated(counted: int, reported: int | None, *, window: int | None = None) -> Truncation | None:
    """The cut that a shortfall shows, or None.

    `counted`: tokens of the request as the caller counts them, the learned factor applied. `reported`: of the prompt,
    as the server counts them; None and zero mean that it did not. `window`: what was thought to be the window; for a
    request beyond it a smaller shortfall is enough, for one within it a larger one is needed.
    """
    if reported is None or reported <= 0 or counted - reported < _LEAST_MISSING:
        return None
    share = _READ_SHARE
    if window is not None:
        share = _READ_SHARE_OVER if counted > window >= reported else _READ_SHARE_WITHIN
    if reported >= counted * share:
        return None
    return Truncation(
        counted=counted, reported=reported, fits=reported,
        why=f"{counted} tokens were sent and the server read {reported}: it left out the beginning of the request.",
    )


def stopped_at_window(
    usage: Mapping[str, Any] | None, finish_reason: str | None, *, max_tokens: int | None = None
) -> int | None:
    """The window that a reply ran into, in tokens, or None when it ended for another reason.

    A reply that stops with `length` before `max_tokens` stopped because prompt and reply together filled the window.
    `max_tokens`: what the caller allowed; None: it set no limit of its own.
    """
    if finish_reason != "length":
        return None
    prompt, reply = prompt_tokens(usage), completion_tokens(usage)
    if prompt is None or reply is None or (max_tokens is not None and reply >= max_tokens):
        return None
    filled = prompt + reply
    return filled if filled >= SMALLEST else None


def _positive(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
