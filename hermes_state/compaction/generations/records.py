"""What the rows of compactions are to the code that works with them.

Invariant: records are frozen and hold values only. Positions are those of the view of the session that a caller asked
about (see conversation/view.py), also where the row belongs to a session that it branched off: `Generation.shifted`.

Not for: SQL (see `rows`), nor what a model is sent (see `live`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hermes_state.clock import ClockDomain
from hermes_state.conversation.session_rows import scrub
from hermes_state.errors import InvalidInput
from hermes_state.owners import OwnerIdentity

if TYPE_CHECKING:
    from hermes_state.compaction.clips import Clip

State = Literal["running", "done", "failed", "superseded"]
Form = Literal["model", "extractive", "none"]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One row of compactions."""

    # number of the row in the store; `parent_id`: the row that the view it was made from was seen through
    id: int
    parent_id: int | None
    # the session that it was made in, and its number there
    session_no: int
    generation: int
    state: State
    # first position of the tail; newest position when the plan was read; newest view edit then
    cut_at: int
    watermark: int
    edit_mark: int
    # positions below `cut_at` that stay as they are, ascending
    anchors: tuple[int, ...]
    # messages that this pass took out of the view, and the proof which (None before it is done)
    source_rows: int
    source_digest: str | None
    # None: not made yet, none was needed (form "none": the parent's goes on), or blanked by a deletion
    summary: str | None
    form: Form | None
    summarizer: str | None
    prompt_digest: str | None
    # tokens, by `tokenizer`
    window: int
    tokenizer: str
    tokens_fixed: int
    tokens_reserved: int
    tokens_before: int
    # of the view that was planned: what was said while the summary was made is not in it
    tokens_after: int | None
    policy: str
    # size, overflow, manual, window, or work: what was done since the pass before filled the window
    reason: str
    # user messages in the view's session when the plan was read; the session's model then
    turn: int
    model: str | None
    # what ended it, when it failed or was superseded: `code`, `message`, and facts
    error: Mapping[str, Any] | None
    # the maker, as JSON; `owner` reads it
    owner_text: str | None
    renewals: int
    domain: ClockDomain
    expires_boottime: float | None
    term_seconds: float | None
    # epoch seconds UTC
    started_at: float
    ended_at: float | None
    # its anchors cannot be read: which messages it keeps is not known, and no view goes through it
    damaged: bool = False

    @property
    def owner(self) -> OwnerIdentity | None:
        """Who made it, None when that cannot be read."""
        if self.owner_text is None:
            return None
        try:
            return OwnerIdentity.from_json(self.owner_text)
        except InvalidInput:
            return None

    def shifted(self, by: int) -> Generation:
        """The same with every position moved, for the view of a session that shares what this one covers."""
        if not by:
            return self
        return replace(
            self, cut_at=self.cut_at + by, watermark=self.watermark + by,
            anchors=tuple(position + by for position in self.anchors),
        )

    def document(self) -> dict[str, Any]:
        """The row as JSON values, for `--json` and exports; the owner as text."""
        left = ("domain", "error", "damaged")
        record = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in left}
        record.update(
            anchors=list(self.anchors), error=None if self.error is None else dict(self.error),
            boot_id=self.domain.boot_id, time_namespace=self.domain.time_namespace,
        )
        return record


@dataclass(frozen=True, kw_only=True)
class LiveView:
    """What a model gets of a session, and what each message of it is; made in one snapshot.

    `messages`, `positions`, `ids`, `token_counts` are of one length, item by item. What is sent of `messages` is
    `late.as_sent` of them.
    """

    session_no: int
    # OpenAI chat shape, calls and results paired, the summary first, clips applied
    messages: list[dict[str, Any]]
    # where each message is, None for one that is no row: a summary alone, a result that was not recorded
    positions: tuple[int | None, ...]
    # message ids; None as above
    ids: tuple[int | None, ...]
    # as the caller counted each row when appending it; None: not counted, or shown otherwise than it is stored
    token_counts: tuple[int | None, ...]
    # every row that is in the view, in order, also those that pairing leaves out: what a pass may take up
    row_positions: tuple[int, ...]
    row_ids: tuple[int, ...]
    # the clips in force, by position
    clips: Mapping[int, Clip]
    # the generation in effect, in this view's positions; None: the whole history
    generation: Generation | None
    # the text at the beginning of the view, None without one; `summary_at`: its place in `messages` (merged into the
    # user row there when `positions` has one)
    summary: str | None
    summary_at: int | None
    # the head as it stands (its generation may be another than the effective one), and how often it was moved: what a
    # commit compares. (None, 0): never compacted
    head_id: int | None
    head_moves: int
    # newest view edit and newest position at that moment; the newest position is 0 or below when a session is empty
    edit_mark: int
    watermark: int
    # user messages of the session's view so far; the session's model
    turn: int
    model: str | None


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a pass is about to make, before there is a summary."""

    # first position of the tail: above the watermark at most by 1, and never below the cut of the view it is made from
    cut_at: int
    # positions of rows of the view below `cut_at` that stay; whatever else is below is summarised
    anchors: Sequence[int] = ()
    window: int
    tokenizer: str
    tokens_fixed: int
    tokens_reserved: int
    tokens_before: int
    policy: str = "default"
    # size, overflow, manual, window, work
    reason: str = "size"
    summarizer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a pass has made."""

    # None with form "none", for which the draft summarises nothing
    summary: str | None
    form: Form
    tokens_after: int
    # what is shown shortened, by position in the view; what the parent clips and is still shown stays clipped
    clips: Mapping[int, Clip] = field(default_factory=dict)
    summarizer: str | None = None
    prompt_digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class Running:
    """A pass that has begun: the row that is its lock, and what it takes up."""

    generation: Generation
    view: LiveView
    # positions that are summarised, ascending
    source: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Verified:
    """Whether a generation stands for what it says."""

    generation: int
    # the digests agree, for it and for everything it was made from
    ok: bool
    # in words: what differs; None when ok
    because: str | None
    # messages that were looked at
    rows: int


def error_json(code: str, message: str, **facts: Any) -> str:
    """The `error` of a row."""
    fields = {"code": code, "message": message, **facts}
    return scrub(json.dumps(fields, sort_keys=True, ensure_ascii=False, default=str))
