"""The filters that list, export, archive and prune share.

Invariant: filters are values; what they mean is said twice, in SQL (`conditions.py`) and in Python (`predicate.py`),
and a property test holds the two equal. All filters must hold at once. Wildcards are ordinary characters.

Not for: what may not be removed (`retention.py`). A dict of keyword arguments was rejected: a misspelt filter would
then widen a delete.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, Literal

from hermes_state.errors import InvalidInput
from maintenance.selection.ages import AgeLimit

LARGEST_COUNT = 2**53


@dataclass(frozen=True, kw_only=True)
class Filters:
    """One choice of sessions. The age of a session is the age of its last activity."""

    older_than: AgeLimit | None = None  # last activity longer ago than this, by source
    newer_than: float | None = None  # seconds: last activity within this time
    before: float | None = None  # epoch seconds: last activity before
    after: float | None = None  # epoch seconds: last activity at or after
    sources: tuple[str, ...] = ()  # exact, any of them
    title: str = ""  # part of the title, A-Z as a-z
    model: str = ""  # part of the model name, A-Z as a-z
    branch: str = ""  # part of the git branch, A-Z as a-z
    workspace: str = ""  # part of the project path, A-Z as a-z
    end_reason: str = ""  # exact
    provider: str = ""  # exact, A-Z as a-z
    cwd: str = ""  # this directory or one below it
    user: str = ""  # exact
    chat_id: str = ""  # exact
    chat_type: str = ""  # exact
    min_messages: int | None = None  # messages as counted by the file
    max_messages: int | None = None  # messages as counted by the file
    min_tokens: int | None = None  # input and output tokens together
    max_tokens: int | None = None  # input and output tokens together
    min_tool_calls: int | None = None  # tool calls as counted by the file
    max_tool_calls: int | None = None  # tool calls as counted by the file
    min_cost: float | None = None  # USD, actual cost else the estimate; an unknown cost never matches
    max_cost: float | None = None  # USD, actual cost else the estimate; an unknown cost never matches
    state: Literal["any", "ended", "open"] = "any"  # whether something ended it
    never_active: bool = False  # only gateway sessions that never had a turn
    include_archived: bool = False  # archived sessions too
    include_pinned: bool = False  # bulk removal may take pinned sessions; choosing is not affected
    include_delegates: bool = False  # delegates as entries of their own, not only with their owner
    include_hidden: bool = False  # special hidden rows too; no bulk removal takes them
    hidden_sources: tuple[str, ...] = ()  # sources that a listing leaves out

    def __post_init__(self) -> None:
        for name in ("messages", "tokens", "tool_calls", "cost"):
            low, high = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            option = name.replace("_", "-")
            for end, value in (("min", low), ("max", high)):
                if value is not None and not 0 <= value <= LARGEST_COUNT:
                    raise InvalidInput(
                        f"--{end}-{option}: {value} is not a number from 0 to {LARGEST_COUNT}.",
                        option=f"--{end}-{option}",
                        value=value,
                    )
            if low is not None and high is not None and low > high:
                raise InvalidInput(
                    f"--min-{option} {low} is more than --max-{option} {high}, so no session can match.",
                    option=f"--min-{option}",
                    value=low,
                )

    @property
    def has_age(self) -> bool:
        """Whether a time was given, be it zero."""
        return any(value is not None for value in (self.older_than, self.newer_than, self.before, self.after))

    @property
    def narrows(self) -> bool:
        """Whether any filter can leave a session out. One that is zero or empty cannot, and so is none."""
        if self.older_than is not None and not self.older_than.is_zero:
            return True
        maxima = (self.max_messages, self.max_tokens, self.max_tool_calls, self.max_cost)
        times = (self.newer_than, self.before, self.after)
        texts = (self.sources, self.title, self.model, self.branch, self.workspace, self.end_reason, self.provider)
        places = (self.cwd, self.user, self.chat_id, self.chat_type)
        minima = (self.min_messages, self.min_tokens, self.min_tool_calls, self.min_cost)
        return (
            any((*times, *texts, *places, *minima, self.never_active))
            or any(maximum is not None for maximum in maxima)
            or self.state != "any"
        )

    @property
    def selects_everything(self) -> bool:
        """Whether no condition on a row is left, so that rows need not be looked at."""
        neutral = {"include_archived", "include_pinned", "include_delegates", "include_hidden", "hidden_sources"}
        default = Filters()
        return all(
            getattr(self, item.name) == getattr(default, item.name) for item in fields(self) if item.name not in neutral
        )

    def facts(self) -> dict[str, Any]:
        """The filters that were set, as plain JSON, for a plan and the delete ledger."""
        default = Filters()
        found: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value == getattr(default, item.name):
                continue
            if isinstance(value, AgeLimit):
                value = {"seconds": value.default, "seconds_by_source": dict(value.by_source)}
            found[item.name] = list(value) if isinstance(value, tuple) else value
        return found


def directory(text: str) -> str:
    """A directory filter as paths are stored: absolute when it was given relative to here or to the home."""
    if text.startswith(("~", ".", "/")):
        text = os.path.abspath(os.path.expanduser(text))
    return text.rstrip("/\\") or text[:1]
