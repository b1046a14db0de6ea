"""What fills a window, and what a user can do about it.

Invariant: the parts add up: fixed, reserve, and every message of the view once, by the counter of the pass. The largest
messages are named one by one, the rest is one sum.

Not for: changing anything. "Cannot compress further" was rejected as an answer: it names nothing that could be removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.compaction.outcomes import Filling
from hermes_state.compaction.tokens import message_tokens

if TYPE_CHECKING:
    from hermes_state.compaction.generations.records import LiveView
    from hermes_state.compaction.tokens import TokenCounter

NAMED = 5  # messages that are named
LARGE_SHARE = 10  # a message is large from usable / 10 on


def fillings(
    view: LiveView, counter: TokenCounter, *, fixed: int, reserve: int, usable: int, anchors: Collection[int] = ()
) -> list[Filling]:
    """What fills the window, largest messages first. `anchors`: places in `view.messages` that a plan must keep."""
    found = [
        Filling(what="fixed", tokens=fixed, detail="system prompt and tool schemas, as the caller counted them"),
        Filling(what="reserve", tokens=reserve, detail="kept free for the reply"),
    ]
    counts = [message_tokens(message, counter) for message in view.messages]
    if view.summary_at is not None and view.positions[view.summary_at] is None:
        found.append(Filling(what="summary", tokens=counts[view.summary_at], detail="stands for what was summarised"))
        counts[view.summary_at] = 0
    least = max(usable // LARGE_SHARE, 1)
    large = sorted((place for place, tokens in enumerate(counts) if tokens >= least), key=lambda at: -counts[at])
    for place in large[:NAMED]:
        found.append(Filling(
            what="anchor" if place in anchors else "message", tokens=counts[place], positions=_position(view, place),
            detail=_whose(view.messages[place]),
        ))
    named = sum(counts[place] for place in large[:NAMED])
    others = [place for place, tokens in enumerate(counts) if tokens and place not in large[:NAMED]]
    if others:
        found.append(Filling(
            what="rest", tokens=sum(counts) - named, detail=f"{len(others)} messages below {least} tokens each"
            if len(large) <= NAMED else f"{len(others)} other messages",
        ))
    return found


def advice_for(fills: Sequence[Filling], window: int) -> list[str]:
    """What a user can do, the most promising first."""
    by_kind: dict[str, int] = {}
    for one in fills:
        by_kind[one.what] = by_kind.get(one.what, 0) + one.tokens
    said = []
    if by_kind.get("fixed", 0) * 2 >= window:
        said.append(
            f"The system prompt and the tool schemas take {by_kind['fixed']} of {window} tokens: use fewer tools, or a"
            " shorter system prompt."
        )
    if by_kind.get("reserve", 0) * 4 >= window:
        said.append(f"{by_kind['reserve']} tokens are kept for the reply: lower the limit of the reply.")
    large = [one for one in fills if one.what in ("message", "anchor")]
    if large:
        where = ", ".join(f"{one.positions[0] if one.positions else '?'} ({one.tokens})" for one in large)
        said.append(f"Large messages, by position and tokens: {where}. Rewind to before them, or begin a new session.")
    said.append("Serve the model with a larger window, or choose a model that has one.")
    return said


def _position(view: LiveView, place: int) -> tuple[int, ...]:
    position = view.positions[place]
    return () if position is None else (position,)


def _whose(message: dict[str, Any]) -> str:
    name = message.get("name")
    return f"{message['role']} {name}" if name else str(message["role"])
