"""The one way from rows to what a model is sent: the summary, then the rows that stay, in order.

Invariant: a pure function. It begins with the summary as a user message; when the row after it is a user's, both are
one message, so that roles alternate as they did. Leading system rows stay leading. Calls and results are paired as in
every context. The context, the plan's estimate, the command line and the benchmark all call this; what is sent has late
results joined with their neighbours besides (`late.as_sent`).

Not for: choosing rows (see `generations.live`). A summary in a system message was rejected: templates that refuse a
second one, or one in the middle, refuse the whole request, and some drop a conversation without a user message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_state.compaction.clips import Clip, clipped
from hermes_state.conversation.pairing import pair

# hermes-agent sends this field in place of the content; beside a content that is shown otherwise it would undo that.
_CONTENT_AS_SENT = "api_content"


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    """One row of a view."""

    # in OpenAI chat shape, as `Messages.context` gives it
    message: dict[str, Any]
    position: int
    # None: not stored (of a plan over messages that are in no store)
    id: int | None = None
    token_count: int | None = None
    # how it is shown, None: whole
    clip: Clip | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """One message of a view and where it comes from."""

    message: dict[str, Any]
    # None: a summary alone, or the note that a result was not recorded
    row: Live | None
    is_summary: bool = False

    @property
    def token_count(self) -> int | None:
        """Of the row, when it is shown just as it is stored."""
        return None if self.row is None or self.is_summary or self.row.clip is not None else self.row.token_count


def render(rows: Sequence[Live], *, summary: str | None) -> list[dict[str, Any]]:
    """The messages of a view: `summary` (None: none), then `rows`, which are in order of position. Nothing is changed.

    Gives new dicts in OpenAI chat shape; values inside them are shared with the rows.
    """
    return [one.message for one in placed(rows, summary=summary)]


def placed(rows: Sequence[Live], *, summary: str | None) -> list[Placed]:
    """As `render`, with the row of each message."""
    shown: list[dict[str, Any]] = []
    row_of: dict[int, Live] = {}
    for row in rows:
        # A copy: pairing writes ids and names into results.
        message = dict(row.message) if row.clip is None else as_shown(clipped(row.message, row.clip, seq=row.position))
        shown.append(message)
        row_of[id(message)] = row
    out = [Placed(message=message, row=row_of.get(id(message))) for message in pair(shown)]
    if summary is None:
        return out
    first = 0
    while first < len(out) and out[first].message["role"] in ("system", "developer"):
        first += 1
    if first < len(out) and out[first].message["role"] == "user":
        following = out[first]
        joined = as_shown(following.message)
        joined["content"] = after_summary(summary, joined.get("content"))
        out[first] = Placed(message=joined, row=following.row, is_summary=True)
    else:
        out.insert(first, Placed(message={"role": "user", "content": summary}, row=None, is_summary=True))
    return out


def after_summary(summary: str, content: Any) -> Any:
    """The content of a user message that begins with the summary: a text, or parts when it had parts."""
    if content is None or content == "" or content == []:
        return summary
    if isinstance(content, bytes):
        content = content.decode("utf-8", "replace")
    if isinstance(content, list):
        return [{"type": "text", "text": summary}, *content]
    if isinstance(content, dict):
        return [{"type": "text", "text": summary}, content]
    return f"{summary}\n\n{content}"


def own_of(content: Any, summary: str | None) -> Any:
    """The way back from `after_summary`: what is the user's own; None when there is nothing but the summary."""
    if summary is not None and isinstance(content, list):
        leads = bool(content) and isinstance(content[0], Mapping) and content[0].get("text") == summary
        return (content[1:] or None) if leads else content
    if summary is not None and isinstance(content, str) and content.startswith(summary):
        return content[len(summary) :].removeprefix("\n\n") or None
    return content


def as_shown(message: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a message whose content is not the stored one, without what would be sent in place of that."""
    return {name: value for name, value in message.items() if name != _CONTENT_AS_SENT}
