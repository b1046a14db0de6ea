"""What a pass sees before it begins: the view, earlier passes, the window, the plan, and the guards' verdict.

Invariant: one snapshot, one counter. Whatever is compared (trigger, before, after, worth) is counted by that counter
over whole messages as they are sent; numbers that other counters left in rows are not mixed in. Nothing is changed.

Not for: carrying a plan out (see `passes`). Trusting the token counts of rows was rejected: who counted them, and with
what, is not known, and a basis that differs between before and after made 96 % "saved" of a pass that saved nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hermes_state.compaction.generations import LiveView, live_view, rows
from hermes_state.compaction.generations.records import Draft, Generation
from hermes_state.compaction.generations.running import tight
from hermes_state.compaction.guards import (
    FITS_PERCENT,
    REMEMBERED,
    WORK,
    Now,
    Past,
    Verdict,
    asks_summarizer,
    before,
)
from hermes_state.compaction.options import EXTRACTIVE, Asked
from hermes_state.compaction.outcomes import Settings
from hermes_state.compaction.planning import Budget, Plan, plan_rows
from hermes_state.compaction.planning.budget import shares
from hermes_state.compaction.tokens import Scaled, TokenCounter, as_counter, request_tokens
from hermes_state.compaction.tokens.factors import factor_of
from hermes_state.compaction.windows.records import Window
from hermes_state.compaction.windows.rows import resolve
from hermes_state.conversation.session_rows import session_no
from hermes_state.errors import NotFound, PrefixTooLarge

if TYPE_CHECKING:
    from hermes_state.engine.core import Core

@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen."""

    asked: Asked
    view: LiveView
    window: int | Window  # a number: the caller named it
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
        worked=_worked(view, past, planned, counter, asked),
    )
    remembered = [past_of(one) for one in past]
    asks = asks_summarizer(now, remembered, asked.limits)
    return Look(
        asked=asked, view=view, window=window, counter=counter, plan=planned,
        settings=settings, now=now, verdict=before(now, remembered, asked.limits), asks=asks,
        draft=replace(
            draft, reason=_reason(asked, view, now), summarizer=settings.summarizer if asks.go else EXTRACTIVE
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
    # A result that came late is shown where its call is: what was said before it and stays lies below the cut then.
    cut_at = max([cut_at, *(at + 1 for at in gone if at is not None)])
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
    return Settings(
        window=budget.window, window_kind="given" if isinstance(window, int) else window.kind, policy=asked.policy,
        counter=counter.name, factor=factor, fixed=budget.fixed, reserve=budget.reserve,
        reserve_asked=asked.reply_reserve, usable=budget.usable, estimated=budget.estimated,
        trigger=budget.trigger, low_water=budget.low_water, summary=budget.summary, tail=budget.tail,
        anchors=budget.anchors, worth=budget.worth, turns_between=asked.limits.turns_between,
        steps_between=asked.limits.steps_between, burst=asked.limits.burst,
        deadline_seconds=asked.deadline, summarizer=asked.summarizer_name,
    )


def _worked(view: LiveView, past: Sequence[Generation], planned: Plan, counter: TokenCounter, asked: Asked) -> bool:
    """Whether what came since the last pass is work that a model did in the window it was given.

    That is so many answers of it, each with what its calls gave, and all but the newest within the window: every one of
    them was asked for with a request that fitted. What a caller puts on top of a full view is not.
    """
    last = next((one for one in reversed(past) if one.state == "done"), None)
    if last is None:
        return False
    answers = [
        place for place, position in enumerate(view.positions)
        if position is not None and position > last.watermark and view.messages[place]["role"] == "assistant"
    ]
    if len(answers) < max(asked.limits.steps_between, 1):
        return False
    newest = request_tokens(view.messages[answers[-1]:], counter)
    return (planned.tokens_before - planned.budget.fixed - newest) * 100 <= planned.budget.usable * FITS_PERCENT


def _reason(asked: Asked, view: LiveView, now: Now) -> str:
    """Why a pass is made. One of its own accord after the window became smaller is made for the window's sake."""
    last = view.generation
    if asked.trigger == "size" and last is not None and last.window > now.window:
        return "window"
    return WORK if now.worked and not now.fits and asked.trigger in ("size", "overflow") else asked.trigger


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
