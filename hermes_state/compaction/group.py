"""`store.compaction`: everything a program does with compaction.

Invariant: nothing here keeps state between calls but who was seen at work (`Watch`): guards and verdicts come from
rows, so another process and the next start say the same. A pass that cannot write, or finds another one at work, gives
an outcome that says so; the caller's turn goes on.

Not for: the one view that models get, which is `store.messages.context`. A background thread that compacts by itself
was rejected: it would change the prefix in the middle of a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from hermes_state.compaction.asking import Threads, run_steps, run_steps_async
from hermes_state.compaction.generations import (
    Generation,
    LiveView,
    Verified,
    Watch,
    generations_of,
    live_view,
    recover,
    rollback,
    rotate,
    running_of,
    settle_stale,
    verify,
)
from hermes_state.compaction.looking import NoRoom, look
from hermes_state.compaction.options import Options, asked_for
from hermes_state.compaction.outcomes import Outcome
from hermes_state.compaction.passes import steps
from hermes_state.compaction.preparing import prepared
from hermes_state.compaction.reports import not_made, prefix_does_not_fit, would_be_made
from hermes_state.compaction.tokens import TokenCounter, as_counter
from hermes_state.compaction.tokens.factors import Factors, Lesson, valid_counted
from hermes_state.compaction.windows.records import Refusal, Window
from hermes_state.compaction.windows.refusals import refusal_of
from hermes_state.compaction.windows.store import Windows
from hermes_state.conversation.session_rows import session_no, valid_number
from hermes_state.errors import LockTimeout

if TYPE_CHECKING:
    from hermes_state.compaction.planning import Plan
    from hermes_state.conversation.records import Message
    from hermes_state.engine.core import Core


@dataclass(frozen=True, kw_only=True)
class Status:
    """How compaction stands for a session, also of a pass that another process makes."""

    session_id: str
    # the generation that the session is seen through; None: the whole history
    generation: Generation | None
    # the pass that is being made; its maker may be gone, which the next pass finds out
    running: Generation | None
    # the pass that was begun last, however it ended
    newest: Generation | None
    # messages of the view, and how many passes were begun
    messages: int
    passes: int


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What an error of a model server means."""

    # whether to compact with `trigger="overflow"` and send again; False: the error has another cause
    compact: bool
    # what the server said; None: it is no refusal for length
    refusal: Refusal | None
    # the window that was learned; None: it named none, or nobody said of which model
    window: Window | None


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the usage of one answered request taught."""

    # the factor from counted to real tokens, and what became of the report
    lesson: Lesson
    # the window that was learned, when the server had cut the request; None: it had not
    window: Window | None


class Compaction:
    """Compact sessions, and see them through any of their generations. Safe for threads.

    Arguments that several methods share: `window` in tokens, or a `Window`, or None for what is known of `model` (""
    for the session's own) at `endpoint`. `fixed_tokens`: what precedes the conversation in each request, as system
    prompt and tool schemas. `reply_reserve`: tokens kept for the reply, an eighth of the window by default. `counter`:
    a `TokenCounter`, a function from text to tokens, or None for the built-in estimate; what was learned from usage is
    applied to it. `policy`: "default", or "hermes" for hermes-agent's boundaries.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._watch = Watch(core)
        if not core.read_only:
            # A pass whose maker died is ended when the next program looks. A store that is locked now is not in the
            # way of reading: `begin` settles it again before every pass.
            with suppress(LockTimeout):
                settle_stale(core, self._watch)

    def plan(self, session_id: str, **options: Unpack[Options]) -> Plan:
        """What a pass over the session would take and keep; pure arithmetic over its view, nothing is changed.

        Options: `window`, `model`, `endpoint`, `policy`, `fixed_tokens`, `reply_reserve`, `counter`, `trigger`. Raises
        `PrefixTooLarge`, `NotFound` (no window is known), `SessionNotFound`, `SessionDeleted`, `InvalidInput`.
        """
        seen = look(self._core, asked_for(session_id, options))
        if isinstance(seen, NoRoom):
            raise seen.error
        return seen.plan

    def preview(self, session_id: str, **options: Unpack[Options]) -> Outcome:
        """What `compact` with the same options would begin with, guards included; nothing is changed.

        State "compacted" means that a pass would be made; `tokens_after` is then what it leaves at most.
        """
        seen = look(self._core, asked_for(session_id, options))
        if isinstance(seen, NoRoom):
            return prefix_does_not_fit(seen)
        return would_be_made(prepared(seen).seen) if seen.verdict.go else not_made(seen)

    def compact(self, session_id: str, **options: Unpack[Options]) -> Outcome:
        """Make one pass when it is due and worth it, and say what became of it.

        Options besides the shared ones: `summarizer` (a function of a `SummaryRequest`, sync or async; None:
        extractive) and `summarizer_window` (its own, by default `window`), `trigger` ("size": when the view is beyond
        the trigger; "overflow": a server refused the request, see `refused`; "manual": a person asked), `deadline`
        (seconds for the summariser in all, 300), `limits` (`guards.Limits`).

        The summariser runs in a thread of its own and is left behind at the deadline; then, and whenever its answer
        cannot be used, the built-in extract stands in. An interrupt leaves the view as it was, the row says
        `cancelled`, and the next call works at once. `tokens_after` and `fits` are of the view as it is when the pass
        is over, with what was said meanwhile. Errors of storage, locks and another pass at work are outcomes, but with
        "manual" the first two are raised. Raises `SessionNotFound`, `SessionDeleted`, `NotFound` (no window is known),
        `InvalidInput`, `Corrupt`.
        """
        return run_steps(steps(self._core, self._watch, asked_for(session_id, options)))

    async def acompact(self, session_id: str, *, threads: Threads, **options: Unpack[Options]) -> Outcome:
        """`compact` for a loop: use `store.aio.compaction.compact`, which calls this.

        An asynchronous summariser runs on the loop, any other in a thread of its own. A cancelled await leaves the view
        as it was.
        """
        asked = asked_for(session_id, options)
        return await run_steps_async(steps(self._core, self._watch, asked), threads)

    # --- generations -----------------------------------------------------------------------------------------

    def generations(self, session_id: str) -> tuple[Generation, ...]:
        """Every pass over the session however it ended, oldest first, and those that it has taken over as a branch."""
        with self._core.reader() as reader, reader.snapshot():
            return generations_of(reader, session_no(reader, session_id))

    def view(self, session_id: str, *, as_of: int | None = None, extras: bool = False) -> LiveView:
        """What a model gets of the session now, or as if it were seen through generation `as_of` (0: all of it).

        Raises `NotFound` (no such generation that is done), `InvalidInput`, `SessionNotFound`, `SessionDeleted`,
        `Corrupt`.
        """
        if as_of is not None:
            valid_number("as_of", as_of)
        with self._core.reader() as reader, reader.snapshot():
            return live_view(reader, session_no(reader, session_id), as_of=as_of, extras=extras)

    def rollback(self, session_id: str, generation: int) -> Generation | None:
        """See the session through one of its done generations from now on; 0: through none. See `heads.rollback`."""
        return rollback(self._core, session_id, generation)

    def recover(self, session_id: str, seq: int) -> Message:
        """The whole message at a place that a shortened one names: `recover(seq)`. Raises `NotFound`."""
        with self._core.reader() as reader, reader.snapshot():
            return recover(reader, session_no(reader, session_id), seq)

    def rotate(self, session_id: str, new_id: str | None = None) -> str:
        """Let a new session take over, seen as this one is; returns its id. See `rotating.rotate`."""
        return rotate(self._core, session_id, new_id)

    def verify(self, session_id: str, generation: int) -> Verified:
        """Whether a generation stands for the messages that it says; reads every message below its cut."""
        with self._core.reader() as reader, reader.snapshot():
            return verify(reader, session_no(reader, session_id), generation)

    def status(self, session_id: str) -> Status:
        """How compaction stands for the session: by its rows, so also of a pass that another process makes."""
        with self._core.reader() as reader, reader.snapshot():
            no = session_no(reader, session_id)
            view, made = live_view(reader, no), generations_of(reader, no)
            return Status(
                session_id=session_id, generation=view.generation, running=running_of(reader, no),
                newest=made[-1] if made else None, messages=len(view.messages), passes=len(made),
            )

    # --- what servers teach ----------------------------------------------------------------------------------

    def observe(
        self, model: str, endpoint: str, counted: int, usage: Mapping[str, Any] | int | None, *,
        counter: TokenCounter | str | None = None, window: int | None = None,
    ) -> Observed:
        """Learn from the usage of an answered request what a counted token is worth, and whether it was cut.

        `counted`: the whole request by `counter` (None: the estimate), without any learned factor. `usage`: as the
        server gave it. `window`: what was thought to be the window. A server that read much less than it was sent
        (Ollama cuts from the front) teaches a smaller window instead of a factor.
        """
        by = counter if isinstance(counter, str) else as_counter(counter)
        lesson = Factors(self._core).learn(model, endpoint, by, counted, usage, window=window)
        learned = None
        if lesson.truncation is not None and endpoint:
            learned = Windows(self._core).learn(model, endpoint, lesson.truncation)
        return Observed(lesson=lesson, window=learned)

    def refused(
        self, session_id: str, status: int, body: str | bytes | Mapping[str, Any] | None, *, model: str = "",
        endpoint: str = "", counted: int | None = None, counter: TokenCounter | str | None = None,
    ) -> Refused:
        """What an HTTP error of a model server means: only a refusal for length calls for a pass.

        Learns the window that it names for `model` ("": the session's) at `endpoint`, and with `counted` (the request
        by `counter`, without any factor) what a counted token is worth. Raises `SessionNotFound`, `SessionDeleted`,
        `InvalidInput`.
        """
        if counted is not None:
            valid_counted(counted)
        with self._core.reader() as reader, reader.snapshot():
            no = session_no(reader, session_id)
            model = model or next(iter(reader.rows("SELECT model FROM sessions WHERE no = ?", (no,))))[0] or ""
        refusal = refusal_of(status, body)
        if refusal is None:
            return Refused(compact=False, refusal=None, window=None)
        learned = None
        if model and endpoint:
            learned = Windows(self._core).learn(model, endpoint, refusal)
            if counted is not None and refusal.prompt_tokens is not None:
                by = counter if isinstance(counter, str) else as_counter(counter)
                Factors(self._core).learn(model, endpoint, by, counted, refusal.prompt_tokens)
        return Refused(compact=True, refusal=refusal, window=learned)
