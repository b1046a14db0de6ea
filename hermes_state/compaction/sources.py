"""What a summary is made of: the messages that leave the view, whole, without the summary of the pass before.

Invariant: a message that the view shows shortened is summarised as it was said. What is written in place of the left
out part is ours, not the conversation's: read as content, it would fill the summaries of every later pass.

Not for: what a model is asked, which is the view as the model knows it (see `summary.requests`). Taking the notices out
of the shortened text was rejected: the facts in its middle would be lost, and they are at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_state.compaction.generations import LiveView, live_view
from hermes_state.compaction.late import as_result
from hermes_state.compaction.render import own_of

if TYPE_CHECKING:
    from hermes_state.compaction.looking import Look
    from hermes_state.engine.core import Core

# What a summary begins with in the view: without it a model takes old requests in a user's message for new ones.
LABEL = "Summary of the conversation so far:\n"


def labelled(text: str) -> str:
    """A summary as it stands in the view."""
    return LABEL + text


def unlabelled(summary: str | None) -> str | None:
    """The same without the label, for making the next one of it."""
    return None if summary is None else summary.removeprefix(LABEL)


def source_messages(core: Core, seen: Look) -> list[dict[str, Any]]:
    """The messages that the summary of a plan stands for; reads those again that the view shows shortened."""
    view = seen.view
    places = [place for place in seen.plan.summarised if view.positions[place] is not None or place != view.summary_at]
    whole: dict[int, dict[str, Any]] = {}
    if any(view.positions[place] in view.clips for place in places):
        with core.reader() as reader, reader.snapshot():
            again = live_view(reader, view.session_no, whole=True)
        whole = {
            position: said(again, place) for place, position in enumerate(again.positions) if position is not None
        }
    found = []
    for place in places:
        position = view.positions[place]
        # Deleted since the view was read: the pass will end as superseded.
        found.append(as_result(said(view, place) if position is None or position not in whole else whole[position]))
    return found


def said(view: LiveView, place: int) -> dict[str, Any]:
    """A message of the view without the summary that it may be joined with (`render.after_summary`)."""
    message, summary = view.messages[place], view.summary
    if place != view.summary_at or summary is None:
        return message
    return {**message, "content": own_of(message.get("content"), summary)}
