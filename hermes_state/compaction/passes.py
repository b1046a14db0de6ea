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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.compaction.asking import Ask, Lost, Steps
from hermes_state.compaction.generations import begin, commit, fail, renew
from hermes_state.compaction.generations.records import Made, Running
from hermes_state.compaction.guards import after
from hermes_state.compaction.looking import EXTRACTIVE, Asked, Look, NoRoom, look
from hermes_state.compaction.outcomes import Outcome
from hermes_state.compaction.reports import (
    busy,
    compacted,
    failed,
    not_made,
    overtaken,
    prefix_does_not_fit,
)
from hermes_state.compaction.sources import LABEL, labelled, said, source_messages, unlabelled
from hermes_state.compaction.summary import Checked, Summarizer, SummaryRequest, checked, extractive, requests_for
from hermes_state.compaction.tokens import request_tokens
from hermes_state.compaction.tokens.messages import MESSAGE_TOKENS
from hermes_state.errors import (
    CompactionInflated,
    CompactionLost,
    CompactionRunning,
    SessionReplaced,
    StateError,
    ViewMoved,
)

if TYPE_CHECKING:
    from hermes_state.compaction.generations import Watch
    from hermes_state.compaction.planning import Plan
    from hermes_state.engine.core import Core

TERM_SECONDS = 60.0  # of the running row's lease
# Tokens: a word for what goes, also where that is next to nothing and a pass is made for its clips.
SMALLEST_SUMMARY = 16
SUMMARY_AND_TAIL = 384  # thousandths of U: 0.40 U less 4 %
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

    Raises what `looking.look` raises. Errors of storage and locks raise only with `trigger="manual"`.
    """
    seen = look(core, asked)
    if isinstance(seen, NoRoom):
        return prefix_does_not_fit(seen)
    if not seen.verdict.go:
        return not_made(seen)
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
        return (yield from _carry_out(core, seen, running))
    except CompactionLost as error:
        return overtaken(seen, error)
    except StateError as error:
        _end(core, running, error)
        if asked.trigger == "manual" and not isinstance(error, CompactionInflated):
            raise
        return failed(seen, error)
    except BaseException as error:
        _end(core, running, error)
        raise


def _carry_out(core: Core, seen: Look, running: Running) -> Steps[Outcome]:
    summary = yield from _summarised(core, seen, running)
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
    done = commit(core, running, made)
    if done.state != "done":
        return overtaken(seen, done)
    return compacted(seen, done, view_after(seen, running, summary.text), summary.notes)


def summary_room(plan: Plan) -> int:
    """Tokens that the summary message may take: its budget, less where the tail took all of its own.

    Both together have 0.40 U, and a template writes up to 4 % more around messages than is counted (see
    `guards.FITS_PERCENT`). A tail that an anchor made larger than its budget is not made good by the summary.
    """
    if plan.tail_tokens > plan.budget.tail:
        return plan.summary_budget
    return min(plan.summary_budget, plan.budget.usable * SUMMARY_AND_TAIL // 1000 - plan.tail_tokens)


def _summarised(core: Core, seen: Look, running: Running) -> Steps[_Summary | Lost]:
    if not running.source:
        return _Summary(text=None, form="none", summarizer=EXTRACTIVE)
    source, previous = source_messages(core, seen), unlabelled(seen.view.summary)
    around = MESSAGE_TOKENS + seen.counter.count(LABEL)
    budget = max(summary_room(seen.plan) - around, SMALLEST_SUMMARY)
    summarizer = seen.asked.summarizer
    if summarizer is None or not seen.asks.go:
        text = extractive(source, budget=budget, counter=seen.counter, previous=previous) or checked(
            "", source=source, budget=budget, counter=seen.counter, previous=previous  # what it puts for no text at all
        ).text
        notes = () if summarizer is None else (f"summarizer_left_out: {seen.asks.detail}",)
        return _Summary(text=labelled(text), form="extractive", summarizer=EXTRACTIVE, notes=notes)

    def judged(answer: object) -> Checked:
        return checked(answer, source=source, budget=budget, counter=seen.counter, previous=previous)

    asked: list[SummaryRequest] = []
    answer = yield from _answers(core, seen, running, summarizer, budget, judged, asked)
    if isinstance(answer, Lost):
        return answer
    found = answer if isinstance(answer, Checked) else judged(answer)
    return _Summary(
        text=labelled(found.text), form=found.form, summarizer=seen.settings.summarizer, notes=found.notes,
        prompt_digest=asked[-1].prompt_digest() if asked else None,
    )


def _answers(
    core: Core, seen: Look, running: Running, summarizer: Summarizer, budget: int,
    judged: Callable[[object], Checked], asked: list[SummaryRequest],
) -> Steps[object]:
    """The last answer of the chain; the exception of the first request that failed; `Lost`. `asked` gets the requests.

    An answer to a part that is not a model's own is the extract of everything, and ends the chain.
    """
    clock = core.clock
    until = clock.monotonic() + seen.asked.deadline
    holds = [running]

    def keep() -> None:
        holds[0] = renew(core, holds[0])

    own_window = seen.asked.summarizer_window or seen.settings.window
    try:
        requests = requests_for(
            seen.view.messages, seen.plan.start, seen.plan.end, budget=budget, own_window=own_window,
            counter=seen.counter, previous=seen.view.summary, fixed_tokens=seen.asked.fixed_tokens,
        )
    except StateError as error:
        return error  # there is no way to ask it, as for one whose window is too small
    answer: object = None
    for request in requests:
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
