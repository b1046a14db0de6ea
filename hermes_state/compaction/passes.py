"""One pass: look, plan, guards, the running row, the summary, the check, the commit.

Invariant: the running row is the only lock, and nothing but it is written before the commit; an error, an interrupt or
a lost race at any point leaves the view as it was, with the row saying what happened. The summariser works outside any
transaction. One chain of requests a pass, and the extract when that gives nothing usable: nothing leaves the view
without a usable replacement, and what replaces it is smaller by what makes a pass worth it, or it is thrown away.

The pass is a generator of requests (see `asking`), so that threads and loops run the same one.

Not for: deciding (see `guards`, `planning`), nor rows (see `generations`). Trying the summariser again within a pass
was rejected: the next pass does, after the guards had their say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_state.compaction.asking import Ask, Lost, Steps
from hermes_state.compaction.generations import begin, commit, fail, renew
from hermes_state.compaction.generations.records import Made, Running
from hermes_state.compaction.guards import after
from hermes_state.compaction.looking import Look, NoRoom, look
from hermes_state.compaction.options import EXTRACTIVE, Asked
from hermes_state.compaction.outcomes import Outcome
from hermes_state.compaction.preparing import Prepared, prepared
from hermes_state.compaction.reports import (
    busy,
    compacted,
    failed,
    not_made,
    overtaken,
    prefix_does_not_fit,
)
from hermes_state.compaction.sources import labelled, said, source_messages, unlabelled
from hermes_state.compaction.summary import Checked, Summarizer, SummaryRequest, checked, extractive
from hermes_state.compaction.tokens import request_tokens
from hermes_state.conversation.session_rows import writable_no
from hermes_state.errors import (
    CompactionInflated,
    CompactionLost,
    CompactionRunning,
    SessionDeleted,
    SessionNotFound,
    SessionReplaced,
    StateError,
    ViewMoved,
)

if TYPE_CHECKING:
    from hermes_state.compaction.generations import Watch
    from hermes_state.compaction.generations.records import Generation
    from hermes_state.engine.core import Core

TERM_SECONDS = 60.0  # of the running row's lease
LOCK_SECONDS = 2.0  # for which a turn waits for the write lock to begin a pass that nobody asked for by hand
RENEW_SECONDS = 20.0  # three renewals a term: one may fail, one may be late


@dataclass(frozen=True, kw_only=True)
class _Summary:
    text: str | None
    form: Any  # model, extractive, none
    # who was asked; "extractive" when nobody was
    summarizer: str
    notes: tuple[str, ...] = ()
    # of the last request that was put to it
    prompt_digest: str | None = None


def steps(core: Core, watch: Watch, asked: Asked) -> Steps[Outcome]:
    """One pass. Yields what a summariser is asked, is sent the answers, and returns the outcome.

    Raises what `looking.look` and `preparing.prepared` raise. Errors of storage and locks raise only
    with `trigger="manual"`.
    """
    seen = look(core, asked)
    if isinstance(seen, NoRoom):
        return prefix_does_not_fit(seen)
    if not seen.verdict.go:
        return not_made(seen)
    ready = prepared(seen)
    seen = ready.seen
    try:
        running = begin(
            core, seen.view, seen.draft, watch=watch, term_seconds=TERM_SECONDS,
            deadline_seconds=None if asked.trigger == "manual" else LOCK_SECONDS,
        )
    except CompactionRunning as error:
        return busy(seen, error)
    except (ViewMoved, SessionReplaced) as error:
        return overtaken(seen, error)
    except StateError as error:
        if asked.trigger == "manual":
            raise
        return failed(seen, error)
    try:
        done, notes = yield from _carry_out(core, ready, running)
    except CompactionLost as error:
        return overtaken(seen, error, _again(core, seen))
    except StateError as error:
        _end(core, running, error)
        if asked.trigger == "manual" and not isinstance(error, CompactionInflated):
            raise
        return failed(seen, error, _again(core, seen))
    except BaseException as error:
        _end(core, running, error)
        raise
    return _told(core, seen, done, notes)


def _told(core: Core, seen: Look, done: Generation, notes: tuple[str, ...]) -> Outcome:
    """What became of a pass, by the view as it is now: messages never wait for a pass."""
    again = _again(core, seen)
    if isinstance(again, (SessionDeleted, SessionNotFound)):
        return overtaken(seen, again, again)
    if done.state == "done":
        return compacted(seen, done, again, notes)
    return overtaken(seen, _successor(core, seen) or done, again)


def _again(core: Core, seen: Look) -> Look | NoRoom | StateError:
    """The session as the next call would see it; what is in the way of looking comes back as a value."""
    asked = replace(
        seen.asked, window=seen.window, counter=seen.counter,
        trigger="manual" if seen.asked.trigger == "manual" else "size",
    )
    try:
        return look(core, asked)
    except StateError as error:
        return error


def _successor(core: Core, seen: Look) -> SessionReplaced | None:
    """Who goes on for a session that was taken over; None when it was not."""
    try:
        with core.reader() as reader, reader.snapshot():
            writable_no(reader, seen.asked.session_id)
    except SessionReplaced as error:
        return error
    return None


def _carry_out(core: Core, ready: Prepared, running: Running) -> Steps[tuple[Generation, tuple[str, ...]]]:
    """The row as it ended, done or superseded, and what is to be told of the summary."""
    seen = ready.seen
    summary = yield from _summarised(core, ready, running)
    if isinstance(summary, Lost):
        raise summary.error
    tokens_before = running.generation.tokens_before
    tokens_after = request_tokens(view_after(seen, running, summary.text), seen.counter)
    kept = after(tokens_before, tokens_after, seen.now.worth)
    if not kept.go:
        raise CompactionInflated(
            kept.detail, hint="The view stays as it was.", path=core.path, session_id=seen.asked.session_id,
            tokens_before=tokens_before, tokens_after=tokens_after,
        )
    made = Made(
        summary=summary.text, form=summary.form, tokens_after=tokens_after, clips=clips_of(seen),
        summarizer=summary.summarizer, prompt_digest=summary.prompt_digest,
    )
    if seen.asked.summarizer is not None:
        # This machine may have slept while the summariser worked: as long as nobody gave the row up, it is ours still.
        running = renew(core, running)
    return commit(core, running, made), summary.notes


def _summarised(core: Core, ready: Prepared, running: Running) -> Steps[_Summary | Lost]:
    seen, budget = ready.seen, ready.budget
    if not running.source:
        return _Summary(text=None, form="none", summarizer=EXTRACTIVE)
    source, previous = source_messages(core, seen), unlabelled(seen.view.summary)
    summarizer = seen.asked.summarizer
    if summarizer is None or not seen.asks.go:
        text = extractive(source, budget=budget, counter=seen.counter, previous=previous) or checked(
            "", source=source, budget=budget, counter=seen.counter, previous=previous  # what it puts for no text at all
        ).text
        notes = () if summarizer is None else (f"summarizer_left_out: {seen.asks.detail}",)
        return _Summary(text=labelled(text), form="extractive", summarizer=EXTRACTIVE, notes=notes)

    def judged(answer: object) -> Checked:
        return checked(_plain(answer), source=source, budget=budget, counter=seen.counter, previous=previous)

    asked: list[SummaryRequest] = []
    answer = yield from _answers(core, ready, running, summarizer, judged, asked)
    if isinstance(answer, Lost):
        return answer
    found = answer if isinstance(answer, Checked) else judged(answer)
    return _Summary(
        text=labelled(found.text), form=found.form, summarizer=seen.settings.summarizer, notes=found.notes,
        prompt_digest=asked[-1].prompt_digest() if asked else None,
    )


def _answers(
    core: Core, ready: Prepared, running: Running, summarizer: Summarizer,
    judged: Callable[[object], Checked], asked: list[SummaryRequest],
) -> Steps[object]:
    """The last answer of the chain; the exception of the first request that failed; `Lost`. `asked` gets the requests.

    An answer to a part that is not a model's own is the extract of everything, and ends the chain.
    """
    clock, seen = core.clock, ready.seen
    until = clock.monotonic() + seen.asked.deadline
    holds = [running]

    def keep() -> None:
        holds[0] = renew(core, holds[0])

    answer: object = None
    for request in ready.requests:
        if answer is not None:
            part = judged(answer)
            if part.form != "model":
                return part
            request = request.continued(part.text)
        asked.append(request)
        answer = yield Ask(
            summarizer=summarizer, request=request, until=until, seconds=seen.asked.deadline, clock=clock, renew=keep,
            renew_seconds=RENEW_SECONDS,
        )
        if isinstance(answer, (Lost, BaseException)):
            return answer
    return answer


def _plain(answer: object) -> object:
    """An answer without code of its maker's in it: a text of a kind of its own, an error that cannot be written."""
    if isinstance(answer, str):
        return str.__str__(answer)
    if isinstance(answer, BaseException):
        try:
            str(answer)
        except Exception:
            return RuntimeError(f"{type(answer).__name__}, whose text cannot be read")
    return answer


def clips_of(seen: Look) -> dict[int, Any]:
    """The plan's clips, by position."""
    return {
        position: clip for place, clip in seen.plan.clips.items()
        if (position := seen.view.positions[place]) is not None
    }


def view_after(seen: Look, running: Running, summary: str | None) -> list[dict[str, Any]]:
    """The view that the pass would make, by the same function that makes every view."""
    from hermes_state.compaction.render import Live, render

    view, gone = seen.view, set(running.source)
    rows = []
    for place, position in enumerate(view.positions):
        if position is None or position in gone:
            continue
        rows.append(Live(
            message=said(view, place), position=position,
            clip=seen.plan.clips.get(place),
        ))
    return render(rows, summary=view.summary if summary is None else summary)


def _end(core: Core, running: Running, error: BaseException) -> None:
    """Settle the row. When even that fails the lease or the end of this process does it; the first error stands."""
    try:
        fail(core, running, error)
    except StateError as second:
        error.add_note(f"The row of the pass could not be settled: {second}")
