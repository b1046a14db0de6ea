"""What is known of a model, from four layers: one pure resolver.

Invariant: a person's override counts before a plugin's declaration, that before the catalog, and the default only fills
what none of them says. It is so for each fact by itself: a layer that says nothing of a fact takes nothing away. What
nobody says stays unknown (None), also of what is true or false.

Not for: windows that servers serve or refuse (see `windows`). "Not declared is False" was rejected: a model that nobody
had described lost its tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hermes_state import json_values
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import storable, whole

# The name under which a default is stored.
DEFAULT_MODEL = "_default"
MOST_FACTS_BYTES = 65_536
_NUMBERS = ("context_window", "max_output_tokens")
_ANSWERS = ("supports_tools", "supports_vision", "supports_reasoning")
_TEXTS = ("model_family",)
KNOWN = (*_NUMBERS, *_ANSWERS, *_TEXTS)
_LARGEST = 2**31 - 1


class Layer(StrEnum):
    """Who says it, in the order in which they count."""

    OVERRIDE = "override"  # the user
    PLUGIN = "plugin"  # the plugin of the provider
    CATALOG = "catalog"  # a list of models, or what is built in
    DEFAULT = "default"  # fills gaps


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of one model, and by whom."""

    context_window: int | None = None  # tokens of prompt and reply together; None: unknown
    max_output_tokens: int | None = None
    supports_tools: bool | None = None  # None: unknown, which is not no
    supports_vision: bool | None = None
    supports_reasoning: bool | None = None
    model_family: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)  # what else the layers say, by the same rule
    said_by: Mapping[str, Layer] = field(default_factory=dict)  # of every fact that is known


def resolve(layers: Mapping[Layer, Mapping[str, Any]]) -> Facts:
    """What is known, from what each layer says; layers that say nothing may be left out. Pure."""
    values: dict[str, Any] = {}
    said_by: dict[str, Layer] = {}
    for layer in Layer:
        for name, value in layers.get(layer, {}).items():
            if value is not None and name not in values:  # None declares nothing, and takes nothing away
                values[name], said_by[name] = value, layer
    known = {name: values.pop(name) for name in KNOWN if name in values}
    return Facts(others=values, said_by=said_by, **known)


def checked(facts: Mapping[str, Any]) -> str:
    """What a layer says, as JSON. Names that are not known here are kept. Raises `InvalidInput`."""
    if not isinstance(facts, Mapping):
        raise InvalidInput(f"Facts of a model are a mapping, not {type(facts).__name__}.", argument="facts")
    for name in _NUMBERS:
        if facts.get(name) is not None:
            whole(name, facts[name], 1, _LARGEST)
    for name in _ANSWERS:
        if facts.get(name) is not None and not isinstance(facts[name], bool):
            raise InvalidInput(f"{name} is True, False or None (unknown), not {facts[name]!r:.40}.", argument=name)
    for name in _TEXTS:
        if facts.get(name) is not None and not isinstance(facts[name], str):
            raise InvalidInput(f"{name} is a text or None, not {facts[name]!r:.40}.", argument=name)
    try:
        text = json_values.dump(dict(facts))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"Facts of a model are JSON: {error}.", argument="facts") from error
    if not storable(text) or len(text.encode()) > MOST_FACTS_BYTES:
        raise InvalidInput(f"Facts of a model are at most {MOST_FACTS_BYTES:,} bytes of JSON.", argument="facts")
    return text
