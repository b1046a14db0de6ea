"""What a pass tells its caller.

Invariant: every pass, also one that did nothing, says in a word why (`why`), in one sentence what that means, and what
the caller does next; what was not possible says what fills the window. Tokens are of one counter, before and after
alike, and of messages only; the fixed part and the reply's part stand beside them.

Not for: rows (see `generations`). A boolean "made progress" was rejected: a caller that gets it compacts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hermes_state.compaction.planning import Plan

State = Literal["compacted", "not_needed", "not_compacted", "given_up", "superseded"]
Trigger = Literal["size", "overflow", "manual", "window"]
Next = Literal["resend", "await_user"]


@dataclass(frozen=True, kw_only=True)
class Filling:
    """One thing that fills the window."""

    # fixed (system prompt and tools), reserve (kept for the reply), summary, anchor, message, rest
    what: Literal["fixed", "reserve", "summary", "anchor", "message", "rest"]
    tokens: int
    # positions of the messages meant; empty for what is none
    positions: tuple[int, ...] = ()
    # for people: whose message, or what to do about it
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The values that were in force, each as it was used, not as it was asked for."""

    window: int  # tokens
    window_kind: str  # declared, served, learned, trained, or given: the caller named it
    policy: str
    counter: str  # name of the counter of every number of tokens
    factor: float  # real tokens for one counted, learned from usage; 1.0 when nothing was
    fixed: int  # system prompt and tool schemas, tokens
    reserve: int  # kept for the reply, tokens
    reserve_asked: int | None  # what the caller wanted kept; more than `reserve`: lowered to a quarter of the window
    usable: int  # window - fixed - reserve; 512 when `estimated`
    estimated: bool  # by the estimate alone the fixed part leaves no room: the smallest view is made
    trigger: int  # from so many tokens of messages on a pass is due
    low_water: int  # what a pass aims at
    summary: int  # most tokens of a summary
    tail: int  # most tokens of the tail
    anchors: int  # most tokens of required messages before they are clipped
    worth: int  # tokens that a pass must free, else it is not made, or not kept
    turns_between: int  # user messages between two passes while the view fits
    steps_between: int  # answers of the model since the last pass that are work: then a full view gets its pass always
    burst: int  # passes without work between them in `turns_between` user messages, where the view does not fit
    deadline_seconds: float  # for all of the summariser's work in one pass
    summarizer: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a pass came to."""

    session_id: str
    # compacted: the view is another one now; not_needed: it has room; not_compacted: not now (`retry_*`); given_up: no
    # pass can help before something changes (`fills`, `advice`); superseded: the session changed meanwhile
    state: State
    # one stable word, see docs/compaction.md
    why: str
    # the same as a sentence for people
    detail: str
    # resend: a reply is owed, send the view again; await_user: nothing is owed
    next: Next
    # the generation that was made, or the one the view is seen through; None: the whole history
    generation: int | None
    # of the messages of the view, by `counter`; after: None unless a view was made
    tokens_before: int
    tokens_after: int | None
    tokens_fixed: int
    tokens_reserved: int
    window: int
    counter: str
    # whether the next request is within window - fixed - reserve, by the view as it is when this is told; None: by the
    # estimate, the only count there is, it is not, and the estimate may be too high (`settings.estimated`): try
    fits: bool | None
    # None when it did not come to one
    plan: Plan | None = None
    settings: Settings | None = None
    # how the summary was made: model, extractive, none; None when no generation was made
    form: str | None = None
    # from this user message, or this many seconds on, the same call may do more; None: not by waiting
    retry_turn: int | None = None
    retry_after_seconds: float | None = None
    fills: Sequence[Filling] = ()
    advice: Sequence[str] = ()
    warnings: Sequence[str] = ()
    # the error that stood in the way, when one did; it was not raised
    error: BaseException | None = field(default=None, repr=False)

    @property
    def changed(self) -> bool:
        """Whether the view is another one than before."""
        return self.state == "compacted"

    def document(self) -> dict[str, Any]:
        """The outcome as JSON values; the plan is left out."""
        settings = self.settings
        return {
            "session_id": self.session_id, "state": self.state, "why": self.why, "detail": self.detail,
            "next": self.next, "generation": self.generation, "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after, "tokens_fixed": self.tokens_fixed,
            "tokens_reserved": self.tokens_reserved, "window": self.window, "counter": self.counter,
            "fits": self.fits, "form": self.form, "retry_turn": self.retry_turn,
            "retry_after_seconds": self.retry_after_seconds,
            "fills": [
                {"what": one.what, "tokens": one.tokens, "positions": list(one.positions), "detail": one.detail}
                for one in self.fills
            ],
            "advice": list(self.advice), "warnings": list(self.warnings),
            "settings": None if settings is None else {
                name: getattr(settings, name) for name in settings.__dataclass_fields__
            },
        }
