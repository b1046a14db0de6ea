"""The window of a model at one endpoint: what was measured there, what was said, and what of it is not believed.

Invariant: a number that was measured or said at one endpoint answers for that endpoint only, and an endpoint without a
name never answers for one that has. What a rule distrusts is passed over and named, the next source answers, and when
none does the window is unknown. Nothing here invents one.

The order: the user's override; what the endpoint serves or refused (`served`, `learned`); what was declared of it; the
plugin; the catalog; what the model was trained for; the default. Measured beats declared, as everywhere in
`hermes_state.compaction`.

Not for: measuring (`hermes_state.compaction.windows`). Deleting what is distrusted was rejected: it is the evidence,
and a rule may be wrong.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from hermes_state.work.models.layers import Facts, Layer

if TYPE_CHECKING:
    from hermes_state.compaction.windows import Window

Source = Literal[
    "override", "served", "learned", "declared", "plugin", "catalog", "trained", "default",
]
# Where a server itself says what it has loaded, or alone knows, an older answer is not believed: seconds.
FRESH_SECONDS = 300.0
# So far ahead may the time of a measurement be: clocks are set back by that much every day.
_CLOCK_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Distrust:
    """Measured or declared numbers that are known to be wrong. All conditions that are given must hold."""

    why: str
    provider: frozenset[str] | None = None  # of these providers only
    model: re.Pattern[str] | None = None  # of models whose name has this in it
    from_tokens: int | None = None  # at least so many
    to_tokens: int | None = None  # at most so many
    older_than_seconds: float | None = None  # seen longer ago than this, or at a time that has not come

    def meets(self, *, provider: str, model: str, tokens: int, age_seconds: float | None) -> bool:
        """Whether the rule is about this number; `age_seconds` is None for one that nobody measured."""
        return (
            (self.provider is None or provider.casefold() in self.provider)
            and (self.model is None or self.model.search(model) is not None)
            and (self.from_tokens is None or tokens >= self.from_tokens)
            and (self.to_tokens is None or tokens <= self.to_tokens)
            and (
                self.older_than_seconds is None
                or (age_seconds is not None and not -_CLOCK_SECONDS <= age_seconds <= self.older_than_seconds)
            )
        )


def _named(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


# hermes-agent's (its persistent cache of model and base URL), as facts.
RULES: Sequence[Distrust] = (
    Distrust(
        why="Codex serves at most 272K; 400K and more are the window of another API",
        provider=frozenset({"openai-codex", "codex"}), from_tokens=400_000,
    ),
    Distrust(
        why="routers report 32K for Kimi, which has more", model=_named(r"(?:^|[/:_-])kimi"), to_tokens=32_768,
    ),
    Distrust(
        why="204,800 is the window of another MiniMax model", model=_named(r"minimax-?m3"), to_tokens=204_800,
    ),
    Distrust(why="256,000 is the window of another Grok model", model=_named(r"grok-4[.-]3"), to_tokens=256_000),
    Distrust(
        why="the server alone knows what it has loaded now", provider=frozenset({"lmstudio", "lm-studio", "nous"}),
        older_than_seconds=FRESH_SECONDS,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Passed:
    """A number that was not believed."""

    tokens: int
    source: Source
    why: str


@dataclass(frozen=True, kw_only=True)
class ContextWindow:
    """The window of a model at an endpoint, and how it is known."""

    tokens: int | None  # prompt and reply together; None: unknown
    source: Source | None
    endpoint: str  # as `hermes_state.compaction.windows.endpoint_key` writes it; "": none was named
    observed_at: float | None  # epoch seconds UTC; None: nobody measured it
    passed: tuple[Passed, ...]  # what was not believed, best first
    # a measured number that is less than the override or declaration which counts here; None: nothing speaks against it
    contradicted_by: int | None = None
    # tokens that a counter may count for `tokens` to hold: less by the learned factor; None: unknown
    countable: int | None = None


def believed(
    layers: Mapping[Layer, Mapping[str, Any]], *, provider: str, model: str, rules: Sequence[Distrust] = RULES
) -> tuple[dict[Layer, dict[str, Any]], tuple[Passed, ...]]:
    """What the layers say without the windows that a rule distrusts, which are given beside it. Pure.

    The user's override is believed, and so is the default, which is of no model.
    """
    kept = {layer: dict(said) for layer, said in layers.items()}
    passed: list[Passed] = []
    for layer in (Layer.PLUGIN, Layer.CATALOG):
        tokens = kept.get(layer, {}).get("context_window")
        if not isinstance(tokens, int):
            continue
        for rule in rules:
            if rule.meets(provider=provider, model=model, tokens=tokens, age_seconds=None):
                passed.append(Passed(tokens=tokens, source=_LAYERS[layer], why=rule.why))
                del kept[layer]["context_window"]
                break
    return kept, tuple(passed)


def choose(
    facts: Facts, measured: Sequence[Window], *, provider: str, model: str, endpoint: str, now: float,
    factor: float = 1.0, rules: Sequence[Distrust] = RULES, passed_over: Sequence[Passed] = (),
) -> ContextWindow:
    """The window that counts. Pure. `measured`: as `compaction.windows.known` gives it, best first.

    `facts`, `passed_over`: what is `believed` of the layers, resolved, and what is not.
    `factor`: real tokens for one counted, as compaction has learned it for this endpoint.
    """
    passed: list[Passed] = []
    found: list[tuple[int, Source, float | None]] = []
    by_source: Mapping[str, Window] = {}
    usable: dict[str, Window] = {}
    for one in measured:
        if one.endpoint != endpoint and one.kind in ("served", "learned"):
            continue  # never of another endpoint
        why = _distrusted(one, provider=provider, model=model, now=now, rules=rules)
        if why is not None:
            passed.append(Passed(tokens=one.tokens, source=one.kind, why=why))
        else:
            usable.setdefault(one.kind, one)
    by_source = usable
    said = facts.said_by.get("context_window")
    order: list[str] = ["override", *(kind for kind in usable if kind in ("served", "learned")), "declared", "plugin",
                        "catalog", "trained", "default"]
    for source in order:
        window = by_source.get(source)
        if window is not None:
            found.append((window.tokens, window.kind, window.observed_at))
        elif said is not None and str(said) == source and facts.context_window is not None:
            found.append((facts.context_window, _LAYERS[said], None))
    tokens, chosen, observed_at = found[0] if found else (None, None, None)
    less = [one.tokens for kind, one in usable.items() if kind in ("served", "learned")]
    contradicted = (
        less[0] if less and tokens is not None and chosen not in ("served", "learned") and less[0] < tokens else None
    )
    return ContextWindow(
        tokens=tokens, source=chosen, endpoint=endpoint, observed_at=observed_at, passed=(*passed, *passed_over),
        contradicted_by=contradicted, countable=None if tokens is None else int(tokens / factor),
    )


_LAYERS: Mapping[Layer, Source] = {
    Layer.OVERRIDE: "override", Layer.PLUGIN: "plugin", Layer.CATALOG: "catalog", Layer.DEFAULT: "default",
}


def is_local(endpoint: str) -> bool:
    """Whether an endpoint is on this machine or in a private network."""
    host = urlsplit(endpoint).hostname or ""
    if host == "localhost" or host.endswith(".local"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_private or address.is_loopback


def _distrusted(
    window: Window, *, provider: str, model: str, now: float, rules: Sequence[Distrust]
) -> str | None:
    # What a server refused is no report of anybody's; and what a server here serves may well be small.
    if window.kind == "learned" or (window.endpoint and is_local(window.endpoint) and window.kind == "served"):
        rules = [rule for rule in rules if rule.older_than_seconds is not None and window.kind != "learned"]
    for rule in rules:
        if rule.meets(provider=provider, model=model, tokens=window.tokens, age_seconds=now - window.observed_at):
            return rule.why
    return None
