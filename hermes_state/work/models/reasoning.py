"""Which `reasoning_details` of a stored message may be sent again on a route.

Invariant: pure; what is given back is what was stored, each item whole and unchanged, in its order. An item of a
provider's own type goes only to the provider that declares that type; the standard ones go to routes that take them; a
route that takes none gets no field at all.

Not for: storing messages, which keep them verbatim. Taking them out when they are stored was rejected: the provider
that made them refuses its own next turn without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The types that routers pass on for everybody.
STANDARD_TYPES = frozenset({"reasoning.text", "reasoning.summary", "reasoning.encrypted"})
FIELD = "reasoning_details"


@dataclass(frozen=True, kw_only=True)
class Route:
    """Where a conversation is sent next."""

    provider: str
    native_type: str | None = None  # of the items that this provider alone makes and takes
    takes_standard: bool = False  # whether it takes the standard ones


def replayable(details: Sequence[Any], route: Route) -> list[Any]:
    """The items that may be sent on this route. What has no type, or one that nobody declares, goes nowhere."""
    return [one for one in details if _goes(one, route)]


def replayed(message: Mapping[str, Any], route: Route) -> dict[str, Any]:
    """The message as it is sent on this route: without the field when nothing of it may be sent."""
    details = message.get(FIELD)
    if details is None:
        return dict(message)
    kept = replayable(details, route) if isinstance(details, (list, tuple)) else []
    rest = {name: value for name, value in message.items() if name != FIELD or kept}
    return {name: kept if name == FIELD else value for name, value in rest.items()}


def _goes(item: Any, route: Route) -> bool:
    kind = item.get("type") if isinstance(item, Mapping) else None
    if not isinstance(kind, str):
        return False
    return kind == route.native_type or (route.takes_standard and kind in STANDARD_TYPES)
