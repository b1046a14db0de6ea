"""From what a pass came to, to what its caller is told.

Invariant: one function for each way a pass may end, all over the same numbers; a view that does not fit and that no
pass can help is always told what fills it.

Not for: deciding (see `guards`). Building outcomes where they arise was rejected: each place forgot another field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.compaction.fills import advice_for, fillings
from hermes_state.compaction.looking import Look
from hermes_state.compaction.outcomes import Filling, Next, Outcome, State
from hermes_state.compaction.tokens import request_tokens
from hermes_state.errors import SessionReplaced, StateError

if TYPE_CHECKING:
    from hermes_state.compaction.generations.records import Generation
    from hermes_state.compaction.looking import NoRoom


def not_made(seen: Look) -> Outcome:
    """The guards, or the plan, say no."""
    verdict = seen.verdict
    if verdict.why == "room":
        return _outcome(seen, "not_needed", "room", verdict.detail)
    state: State = "given_up" if not seen.now.fits or (verdict.final and seen.now.refused) else "not_compacted"
    return _outcome(
        seen, state, verdict.why, verdict.detail, retry_turn=verdict.retry_turn,
        retry_after_seconds=verdict.retry_after_seconds,
    )


def would_be_made(seen: Look) -> Outcome:
    """What a pass would come to at most, of a look that changes nothing."""
    return _outcome(
        seen, "compacted", seen.verdict.why, seen.verdict.detail,
        tokens_after=seen.plan.tokens_after_at_most - seen.plan.budget.fixed + _system(seen),
    )


def compacted(seen: Look, done: Generation, again: Look | NoRoom | StateError, notes: Sequence[str]) -> Outcome:
    """A generation was made and is the head. `again`: what the next call would see."""
    before, made = done.tokens_before, done.tokens_after or 0
    said = f"{before} tokens became {made}"
    more: dict[str, Any] = {"generation": done.generation, "tokens_before": before, "form": done.form}
    if isinstance(again, StateError):
        return _outcome(
            seen, "compacted", seen.verdict.why, f"{said}. Whether that fits now is not known: {again.message}",
            tokens_after=made, fits=False, warnings=(*notes, f"view_unread: {again.message}"), **more,
        )
    messages = again.view.messages
    real = request_tokens(messages, seen.counter)
    if real > made:
        said += f", and messages of {real - made} tokens came meanwhile"
    usable = again.settings.usable
    filled = again.now.tokens_before if isinstance(again, Look) else real
    fits = isinstance(again, Look) and filled <= usable
    more |= {"tokens_after": real, "fits": fits, "warnings": notes}
    more["next"] = "resend" if seen.now.refused else next_of(messages)
    if fits:
        return _outcome(seen, "compacted", seen.verdict.why, f"{said}.", **more)
    said += f": {filled} of {usable} do not fit yet."
    if isinstance(again, Look) and again.verdict.go:
        return _outcome(seen, "compacted", "still_too_large", f"{said} Compact once more.", **more)
    stuck = not_made(again) if isinstance(again, Look) else prefix_does_not_fit(again)
    if stuck.retry_after_seconds is None:
        said += f" No further pass helps: {stuck.detail}"
    else:
        said += f" The next pass has to wait: {stuck.detail}"
    more |= {
        "fills": stuck.fills, "advice": stuck.advice, "retry_turn": stuck.retry_turn,
        "retry_after_seconds": stuck.retry_after_seconds,
    }
    return _outcome(seen, "compacted", "still_too_large", said, **more)


def busy(seen: Look, error: StateError) -> Outcome:
    """Somebody else is at it: the turn goes on without."""
    return _outcome(seen, "not_compacted", "running", error.message, error=error)


def failed(seen: Look, error: StateError, again: Look | NoRoom | StateError | None = None) -> Outcome:
    """An error of storage or locks, or a result that was of no use; nothing changed."""
    now = _as_it_is(again)
    state: State = "given_up" if error.code == "inflation" and not now.get("fits", seen.now.fits) else "not_compacted"
    if state == "given_up":
        now.pop("next", None)
    return _outcome(seen, state, error.code, error.message, error=error, **now)


def overtaken(
    seen: Look, by: StateError | Generation, again: Look | NoRoom | StateError | None = None
) -> Outcome:
    """The session changed meanwhile; what was made is kept for people and seen by nobody."""
    now = _as_it_is(again)
    if isinstance(by, StateError):
        if isinstance(by, SessionReplaced):
            now["advice"] = (by.hint,)
        return _outcome(seen, "superseded", getattr(by, "because", None) or by.code, by.message, error=by, **now)
    error = by.error or {}
    return _outcome(
        seen, "superseded", str(error.get("code", "superseded")), str(error.get("message", "The session changed.")),
        generation=by.generation, **now,
    )


def _as_it_is(again: Look | NoRoom | StateError | None) -> dict[str, Any]:
    """Of a pass that left its view to others: whether the view fits as it is now, and what is owed."""
    if again is None or isinstance(again, StateError):
        return {}
    return {"fits": isinstance(again, Look) and again.now.fits, "next": next_of(again.view.messages)}


def prefix_does_not_fit(seen: NoRoom) -> Outcome:
    """The system prompt and the tools leave nothing for a conversation: no pass can help."""
    asked, error, settings, messages = seen.asked, seen.error, seen.settings, seen.view.messages
    system, total = error.facts["system"], request_tokens(messages, seen.counter)
    fills = [
        Filling(what="fixed", tokens=settings.fixed - system, detail="tools and what else the caller declared"),
        Filling(what="reserve", tokens=settings.reserve, detail="kept free for the reply"),
    ]
    if system:
        fills.insert(0, Filling(what="fixed", tokens=system, detail="system messages of the session"))
    if total > system:
        fills.append(Filling(what="rest", tokens=total - system, detail="the conversation, which a pass could shorten"))
    generation = seen.view.generation
    return Outcome(
        session_id=asked.session_id, state="given_up", why=error.code, detail=error.message, next="await_user",
        generation=None if generation is None else generation.generation, tokens_before=total, tokens_after=None,
        tokens_fixed=asked.fixed_tokens, tokens_reserved=settings.reserve, window=settings.window,
        counter=settings.counter, fits=False, settings=settings, fills=fills,
        advice=advice_for(fills, settings.window), error=error,
    )


def next_of(messages: Sequence[dict[str, Any]]) -> Next:
    """Whether a turn is not over: the last word is a person's or a tool's, or calls without results."""
    last = messages[-1] if messages else None
    return "await_user" if last is None or (last["role"] == "assistant" and not last.get("tool_calls")) else "resend"


def _outcome(seen: Look, state: State, why: str, detail: str, **more: Any) -> Outcome:
    settings, view = seen.settings, seen.view
    fits = more.pop("fits", seen.now.fits)
    stuck = state == "given_up"
    fills: Sequence[Filling] = more.pop("fills", ())
    if stuck:
        fills = fillings(
            view, seen.counter, fixed=settings.fixed - _system(seen), reserve=settings.reserve, usable=settings.usable,
            anchors=seen.plan.anchors,
        )
    fields: dict[str, Any] = {
        "generation": None if view.generation is None else view.generation.generation,
        "tokens_before": seen.draft.tokens_before, "tokens_after": None,
        "next": "await_user" if stuck else "resend" if seen.now.refused else next_of(view.messages),
        "advice": advice_for(fills, settings.window) if stuck else (),
    }
    if settings.estimated:
        # By the one count there is it does not; that count may be too high.
        fits = None if fits else False
        more["warnings"] = (*more.get("warnings", ()), (
            f"prefix_estimated: by the estimate the fixed part takes {settings.fixed} of {settings.window} tokens"
            " and leaves no room; as it may be too high, the smallest view is made. Give a tokenizer as the counter to"
            " know."
        ))
    return Outcome(
        session_id=seen.asked.session_id, state=state, why=why, detail=detail, tokens_fixed=seen.asked.fixed_tokens,
        tokens_reserved=settings.reserve, window=settings.window, counter=settings.counter, fits=fits, plan=seen.plan,
        settings=settings, fills=fills, **(fields | more),
    )


def _system(seen: Look) -> int:
    """Tokens of the leading system messages of the view, which a budget counts among what is fixed."""
    return request_tokens(seen.view.messages[: seen.plan.start], seen.counter) if seen.plan.start else 0
