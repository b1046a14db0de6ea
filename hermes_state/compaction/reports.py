"""From what a pass came to, to what its caller is told.

Invariant: one function for each way a pass may end, all over the same numbers; a view that does not fit and that no
pass can help is always told what fills it.

Not for: deciding (see `guards`). Building outcomes where they arise was rejected: each place forgot another field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hermes_state.compaction.fills import advice_for, fillings
from hermes_state.compaction.outcomes import Filling, Next, Outcome, State
from hermes_state.compaction.tokens import request_tokens

if TYPE_CHECKING:
    from hermes_state.compaction.generations.records import Generation
    from hermes_state.compaction.looking import Look, NoRoom
    from hermes_state.errors import StateError


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


def compacted(seen: Look, done: Generation, messages: Sequence[dict[str, Any]], notes: Sequence[str]) -> Outcome:
    """A generation was made and is the head."""
    before, after = done.tokens_before, done.tokens_after or 0
    fits = after - _system(seen) <= seen.settings.usable
    return _outcome(
        seen, "compacted", seen.verdict.why if fits else "still_too_large",
        f"{before} tokens became {after}" + ("." if fits else "; that does not fit yet, one more pass may help."),
        generation=done.generation, tokens_before=before, tokens_after=after, fits=fits, form=done.form, warnings=notes,
    )


def busy(seen: Look, error: StateError) -> Outcome:
    """Somebody else is at it: the turn goes on without."""
    return _outcome(seen, "not_compacted", "running", error.message, error=error)


def failed(seen: Look, error: StateError) -> Outcome:
    """An error of storage or locks, or a result that was of no use; nothing changed."""
    state: State = "given_up" if error.code == "inflation" and not seen.now.fits else "not_compacted"
    return _outcome(seen, state, error.code, error.message, error=error)


def overtaken(seen: Look, by: StateError | Generation) -> Outcome:
    """The session changed meanwhile; what was made is kept for people and seen by nobody."""
    if isinstance(by, Exception):
        return _outcome(seen, "superseded", getattr(by, "because", None) or by.code, by.message, error=by)
    error = by.error or {}
    return _outcome(
        seen, "superseded", str(error.get("code", "superseded")), str(error.get("message", "The session changed.")),
        generation=by.generation,
    )


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
    fills: Sequence[Filling] = ()
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
