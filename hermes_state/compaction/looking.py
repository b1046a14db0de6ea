"""What a pass sees before it begins: the view, earlier passes, the window, the plan, and the guards' verdict.

Invariant: one snapshot, one counter. Whatever is compared (trigger, before, after, worth) is counted by that counter
over whole messages as they are sent; numbers that other counters left in rows are not mixed in. Nothing is changed.

Not for: carrying a plan out (see `passes`). Trusting the token counts of rows was rejected: who counted them, and with
what, is not known, and a basis that differs between before and after made 96 % "saved" of a pass that saved nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from hermes_state.compaction.generations import LiveView, live_view, rows
from hermes_state.compaction.generations.records import Draft, Generation
from hermes_state.compaction.generations.running import tight
from hermes_state.compaction.guards import DEFAULTS, REMEMBERED, Limits, Now, Past, Verdict, asks_summarizer, before
from hermes_state.compaction.outcomes import Settings, Trigger
from hermes_state.compaction.planning import Budget, Plan, plan_rows
from hermes_state.compaction.planning.budget import shares
from hermes_state.compaction.summary.requests import name_of
from hermes_state.compaction.tokens import Scaled, TokenCounter, as_counter, request_tokens
from hermes_state.compaction.tokens.factors import factor_of
from hermes_state.compaction.windows.records import LARGEST, Window
from hermes_state.compaction.windows.rows import resolve
from hermes_state.conversation.session_rows import session_no
from hermes_state.errors import InvalidInput, NotFound, PrefixTooLarge

if TYPE_CHECKING:
    from hermes_state.compaction.summary import Summarizer
    from hermes_state.engine.core import Core

EXTRACTIVE = "extractive"


class Options(TypedDict, total=False):
    """The options of `store.compaction`'s methods; `Asked` has their meanings and defaults."""

    window: int | Window | None
    model: str
    endpoint: str
    policy: str
    fixed_tokens: int
    reply_reserve: int | None
    summarizer: Summarizer | None
    summarizer_window: int | None
    counter: TokenCounter | Callable[[str], int] | None
    trigger: Trigger
    deadline: float
    limits: Limits


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a caller asked for."""

    session_id: str
    # tokens, a window that was resolved elsewhere, or None: what is known of the model at the endpoint
    window: int | Window | None = None
    # "": the session's own model
    model: str = ""
    endpoint: str = ""
    policy: str = "default"
    fixed_tokens: int = 0
    reply_reserve: int | None = None
    # None: extractive
    summarizer: Summarizer | None = None
    # None: the window of the session's model
    summarizer_window: int | None = None
    counter: TokenCounter | Callable[[str], int] | None = None
    trigger: Trigger = "size"
    # seconds for all of the summariser's work
    deadline: float = 300.0
    limits: Limits = DEFAULTS


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen."""

    asked: Asked
    view: LiveView
    window: Window | None  # None: the caller named a number
    counter: TokenCounter
    plan: Plan
    settings: Settings
    now: Now
    # whether a pass may be made, and whether the summariser is asked in it
    verdict: Verdict
    asks: Verdict
    # what the row of the pass would say
    draft: Draft


@dataclass(frozen=True, kw_only=True)
class NoRoom:
    """What was seen of a session whose fixed prefix leaves nothing for a conversation."""

    asked: Asked
    view: LiveView
    counter: TokenCounter
    # as they were used, with what is left of the window in them: less than a pass needs
    settings: Settings
    error: PrefixTooLarge


def look(core: Core, asked: Asked) -> Look | NoRoom:
    """Look at a session. Raises `SessionNotFound`, `SessionDeleted`, `NotFound`, `InvalidInput`, `Corrupt`."""
    with core.reader() as reader, reader.snapshot():
        no = session_no(reader, asked.session_id)
        view = live_view(reader, no)
        past = rows.newest_of(reader, no, REMEMBERED)[::-1]
        model = asked.model or view.model or ""
        if asked.window is None and not model:
            raise NotFound(
                f"Session {asked.session_id!r} of {reader.path} has no model, so its window is not known.",
                hint="Give the window in tokens, or the model and its endpoint: --window N or --model MODEL@ENDPOINT.",
                path=reader.path, session_id=asked.session_id,
            )
        window = resolve(reader, model, asked.endpoint) if asked.window is None else asked.window
        counter = as_counter(asked.counter)
        factor = factor_of(reader, model, asked.endpoint, counter.name).factor if model else 1.0
    if factor != 1.0 and not isinstance(counter, Scaled):
        counter = Scaled(base=counter, factor=factor)
    tokens = window if isinstance(window, int) else window.tokens
    try:
        planned = plan_rows(
            view.messages, window=tokens, policy=asked.policy, count=counter, fixed_tokens=asked.fixed_tokens,
            reply_reserve=asked.reply_reserve, summary_at=view.summary_at, summary=view.summary,
            force=asked.trigger in ("overflow", "manual"),
        )
    except PrefixTooLarge as error:
        facts = error.facts
        left = shares(
            facts["window"], fixed=facts["fixed"], reserve=facts["reserve"], usable=max(facts["usable"], 0)
        )
        return NoRoom(
            asked=asked, view=view, counter=counter, error=error,
            settings=_settings(asked, left, window, counter, factor),
        )
    settings = _settings(asked, planned.budget, window, counter, factor)
    draft = draft_of(view, planned, asked, counter)
    parent_id = None if view.generation is None else view.generation.id
    taken = sum(at < draft.cut_at for at in view.row_positions) - len(draft.anchors)
    now = Now(
        trigger=asked.trigger, turn=view.turn, at=core.clock.now(), window=tokens, edit_mark=view.edit_mark,
        usable=planned.budget.usable, worth=planned.budget.worth,
        tokens_before=planned.tokens_before - planned.budget.fixed,
        tokens_after_at_most=planned.tokens_after_at_most - planned.budget.fixed,
        source_key=source_key(parent_id, draft.cut_at, draft.anchors, view.edit_mark, taken),
        summarizer=settings.summarizer, needed=planned.needed,
        refused=asked.trigger == "overflow",
    )
    remembered = [past_of(one) for one in past]
    asks = asks_summarizer(now, remembered, asked.limits)
    return Look(
        asked=asked, view=view, window=None if isinstance(window, int) else window, counter=counter, plan=planned,
        settings=settings, now=now, verdict=before(now, remembered, asked.limits), asks=asks,
        draft=replace(
            draft, reason=_reason(asked, view, tokens), summarizer=settings.summarizer if asks.go else EXTRACTIVE
        ),
    )


def past_of(generation: Generation) -> Past:
    """What a guard reads of a row. A summariser whose answer was replaced by an extract has failed once more."""
    error = generation.error or {}
    return Past(
        generation=generation.generation, state=generation.state, trigger=generation.reason, turn=generation.turn,
        started_at=generation.started_at, ended_at=generation.ended_at, window=generation.window,
        edit_mark=generation.edit_mark, source_key=source_key(
            generation.parent_id, generation.cut_at, generation.anchors, generation.edit_mark, generation.source_rows
        ), summarizer=generation.summarizer,
        form=generation.form, error=_text(error.get("code")),
        fallback=EXTRACTIVE
        if generation.form == EXTRACTIVE and generation.summarizer not in (None, EXTRACTIVE) else None,
        made=error.get("code") == "message_deleted", tokens_before=generation.tokens_before,
    )


def draft_of(view: LiveView, planned: Plan, asked: Asked, counter: TokenCounter) -> Draft:
    """A plan over a view as what a running row says; what stays below the cut is an anchor.

    The cut never goes back: what a plan begins its tail with may be an anchor of the generation before.
    """
    lowest = None if view.generation is None else view.generation.cut_at
    tail = [position for position in view.positions[planned.end:] if position is not None]
    cut_at = min(tail, default=view.watermark + 1)
    cut_at = cut_at if lowest is None else max(cut_at, lowest)
    gone = {view.positions[place] for place in planned.summarised}
    kept = set(view.row_positions) if not planned.summarised else set(view.positions) - gone
    return tight(view, Draft(
        cut_at=cut_at, anchors=sorted(at for at in kept if at is not None and at < cut_at),
        window=planned.budget.window, tokenizer=counter.name, tokens_fixed=asked.fixed_tokens,
        tokens_reserved=planned.budget.reserve, tokens_before=request_tokens(view.messages, counter),
        policy=asked.policy,
    ))


def source_key(parent_id: int | None, cut_at: int, anchors: Sequence[int], edit_mark: int, rows: int) -> str:
    """What a pass takes out of a view, as a word: messages never change, so where it was cut says which they are.

    `rows`: how many; fewer once some were deleted.
    """
    return f"{parent_id}:{cut_at}:{','.join(map(str, anchors))}:{edit_mark}:{rows}"


def _settings(
    asked: Asked, budget: Budget, window: int | Window, counter: TokenCounter, factor: float
) -> Settings:
    asks = asked.summarizer
    return Settings(
        window=budget.window, window_kind="given" if isinstance(window, int) else window.kind, policy=asked.policy,
        counter=counter.name, factor=factor, fixed=budget.fixed, reserve=budget.reserve,
        reserve_asked=asked.reply_reserve, usable=budget.usable, estimated=budget.estimated,
        trigger=budget.trigger, low_water=budget.low_water, summary=budget.summary, tail=budget.tail,
        anchors=budget.anchors, worth=budget.worth, turns_between=asked.limits.turns_between,
        deadline_seconds=asked.deadline, summarizer=EXTRACTIVE if asks is None else name_of(asks),
    )


def _reason(asked: Asked, view: LiveView, window: int) -> Trigger:
    """A pass of its own accord after the window became smaller is made for the window's sake."""
    last = view.generation
    return "window" if asked.trigger == "size" and last is not None and last.window > window else asked.trigger


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def valid(asked: Asked) -> Asked:
    """The same, or `InvalidInput` for what has no meaning."""
    window = asked.window
    if isinstance(window, bool) or not (window is None or isinstance(window, (int, Window))):
        raise InvalidInput(f"window is a whole number of tokens or a Window, not {window!r:.80}.", argument="window")
    if not isinstance(asked.limits, Limits):
        raise InvalidInput(f"limits is a Limits, not {asked.limits!r:.80}.", argument="limits")
    if asked.trigger not in ("size", "overflow", "manual", "window"):
        raise InvalidInput(
            f"trigger is size, overflow, manual or window, not {asked.trigger!r}.", argument="trigger"
        )
    if type(asked.deadline) not in (int, float) or not 0 < asked.deadline < float("inf"):
        raise InvalidInput(f"deadline is a number of seconds above 0, not {asked.deadline!r}.", argument="deadline")
    own = asked.summarizer_window
    if own is not None and (type(own) is not int or not 0 < own <= LARGEST):
        raise InvalidInput(
            f"summarizer_window is a number of tokens from 1 to {LARGEST}, or None, not {own!r:.80}.",
            argument="summarizer_window",
        )
    if asked.summarizer is not None and not callable(asked.summarizer):
        raise InvalidInput(
            f"summarizer is a function of a SummaryRequest, or None, not {asked.summarizer!r:.80}.",
            argument="summarizer",
        )
    for name, text in (("model", asked.model), ("endpoint", asked.endpoint)):
        if not isinstance(text, str):
            raise InvalidInput(f"{name} is a text, not {text!r:.80}.", argument=name)
    return asked
