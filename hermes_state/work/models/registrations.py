"""Providers as they were registered, and which registration counts.

Invariant: each source has a row of its own. A user's plugin counts before what is built in, for the fields that it
gives; what a bundled plugin says counts only where nothing is built in. Without a user's plugin the built-in content is
what was registered, byte for byte; and it is so again once the plugin is gone.

Not for: loading plugins. "The last registration wins" over one row was rejected: a bundled profile that leaves out what
a built-in row has took it away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hermes_state import json_values
from hermes_state.errors import InvalidInput
from hermes_state.outbox.inputs import storable

MOST_CONTENT_BYTES = 262_144


class Source(StrEnum):
    """Who registers, in the order in which they count."""

    USER = "user"  # a plugin that the user installed
    BUILTIN = "builtin"
    BUNDLED = "bundled"  # a plugin that comes with the program


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What counts for one provider."""

    name: str
    content: Mapping[str, Any]
    text: str  # JSON; of one source alone: byte for byte as it was registered
    sources: tuple[Source, ...]  # that it is made of, the one that counts first first
    origin: str  # of the first


def effective(rows: Sequence[tuple[str, str, str, str, float]]) -> Registration | None:
    """What counts, from the rows of one provider; None without any. Pure."""
    by_source = {Source(source): (name, text, origin) for name, source, text, origin, _ in rows}
    if not by_source:
        return None
    first, *rest = [source for source in Source if source in by_source]
    name, text, origin = by_source[first]
    content = json.loads(text)
    sources = [first]
    if first is Source.USER and rest:
        # A user's plugin changes what it says, of what there is; of the others only the first counts.
        below = rest[0]
        content = {**json.loads(by_source[below][1]), **{key: one for key, one in content.items() if one is not None}}
        text = json_values.dump(content)
        sources.append(below)
    return Registration(name=name, content=content, text=text, sources=tuple(sources), origin=origin)


def checked(content: Mapping[str, Any] | str) -> str:
    """The content as it is kept: a JSON text as it is, or a mapping as JSON. Raises `InvalidInput`."""
    try:
        text = content if isinstance(content, str) else json_values.dump(dict(content))
        if not isinstance(json_values.load(text), dict):
            raise ValueError("it is no mapping")
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput(f"The registration of a provider is a mapping, as JSON: {error}.", argument="content") from (
            error
        )
    if not storable(text) or len(text.encode()) > MOST_CONTENT_BYTES:
        raise InvalidInput(
            f"The registration of a provider is at most {MOST_CONTENT_BYTES:,} bytes of JSON.", argument="content"
        )
    return text
