"""What is known of a model's window, and what says so.

Invariant: a number never travels without where it came from and when it was seen.

Not for: choosing between them (see `rows`). A bare integer was rejected: nobody could tell later whether 128,000 was
what the server serves or what the model was once trained for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hermes_state.errors import InvalidInput

Kind = Literal["served", "learned", "declared", "trained"]
KINDS: tuple[Kind, ...] = ("served", "learned", "declared", "trained")
# Below it there is no conversation, above it no model; a number outside is somebody's mistake.
SMALLEST, LARGEST = 128, 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """How many tokens a request and its reply may have together, and how that is known."""

    # prompt and reply together
    tokens: int
    # served: the server said what it gives now; learned: from a refusal or a cut; declared: a person said so;
    # trained: what the model was made for, which a server may give less of
    kind: Kind
    # the model as the server names it
    model: str
    # where it is served, as `endpoint_key` writes it; empty: wherever
    endpoint: str
    # epoch seconds
    observed_at: float
    # where the number was seen, as JSON: `source`, and what that source needs to be found again
    evidence: Mapping[str, Any] = field(default_factory=dict)
    # why this one counts, in one sentence; empty in a listing of all that is known
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A server said that a request does not fit its window, and nothing else is wrong with it."""

    # whose words they are: llama-server, ollama, lm-studio, vllm, openai, anthropic, ...
    server: str
    # tokens of the prompt as the server counted them; None: it did not say
    prompt_tokens: int | None
    # its window; None: it did not say
    window: int | None
    # tokens asked for the reply, where the server counts them in; None: it did not say
    reply_tokens: int | None
    # the HTTP status
    status: int
    # field, or sentence with numbers, by which it was told: never what the user wrote
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Truncation:
    """A server answered and had read much less than it was sent."""

    # tokens sent, by the caller's count
    counted: int
    # tokens read, by the server's
    reported: int
    # what surely fits: a request of this size was read whole
    fits: int
    # one sentence for people
    why: str


def valid_window(tokens: int, argument: str = "tokens") -> int:
    """A number of tokens that can be a window. Raises `InvalidInput`."""
    if type(tokens) is not int or not SMALLEST <= tokens <= LARGEST:
        raise InvalidInput(
            f"A window is a whole number of tokens from {SMALLEST} to {LARGEST}, not {tokens!r}.", argument=argument
        )
    return tokens
