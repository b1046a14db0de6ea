"""Whether a pass may be made now, and whether what it made may be kept: decided from the rows of earlier passes alone.

Invariant: pure functions of the newest rows, the clock's time and the budget, so a restart and another process come
to the same verdict. Nothing that a pass would do is worth it when it frees less than `worth`, before as after, counted
on one basis; what failed on the very same messages is not tried on them again; passes that come too close wait, first
for user messages, then for time, then until something changes.

    the view             fits                               does not fit, or the server refused it
    after work           one per `turns_between` messages   always: `steps_between` answers that each fitted are work
    without work         the same                           `burst` in as many messages, then `ladder`, then given up
    failures in a row    `ladder`, then given up            the same
    a manual pass        only worth-it and no-inflation     the same

What lets a verdict go again: another window, a rewind or deletion in the session, another summariser (for failures), a
manual pass. A pass that its caller cancelled counts for nothing.

A turn may go on for days: what is bounded is not how many passes it takes, but how many without work between them.
Each pass after work makes up for one without, so at least half of all passes have some.

Not for: reading rows. Counting in memory was rejected: every restart began with a clean record. One success that clears
the record was rejected: 108 passes in a night each "succeeded".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hermes_state.compaction.outcomes import Trigger

REMEMBERED = 32  # rows that a verdict may look at; the longest ladder with its bursts needs fewer

# How full a view may be and still count as one that fits. What a template writes around messages and calls was up to
# 4 % more than was counted (300 turns at 4,096, three tokenizers); the trigger is at 85 %, so a pass may wait between.
FITS_PERCENT = 93

# Codes in a row's `error` that say that what was made was of no use, and would be of none again.
USELESS = frozenset({"inflation"})
# Codes of rows whose process ended in the middle: the next one goes on at once, but not for ever.
DIED = frozenset({"maker_gone"})
# Codes of rows that their caller ended, by an interrupt or a cancelled await: no failure, however many.
CANCELLED = frozenset({"cancelled"})
# The `reason` of a row whose pass was due because of work done since the one before.
WORK = "work"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How often passes may be made. The defaults suit windows from 4K to 128K."""

    # user messages between two passes while the view fits
    turns_between: int = 8
    # passes without work between them in `turns_between` user messages before the ladder, where the view does not fit
    burst: int = 4
    # answers of the model since the last pass, each to a request that fitted, that are work
    steps_between: int = 2
    # seconds after the first, second, ... failure or pass too many; after the last of them it is given up
    ladder: tuple[float, ...] = (60.0, 300.0, 900.0)
    # passes whose process ended, or that the session overtook, before they count as failures
    accidents: int = 2


DEFAULTS = Limits()


@dataclass(frozen=True, kw_only=True)
class Past:
    """What a verdict reads of one earlier pass."""

    generation: int
    state: Literal["running", "done", "failed", "superseded"]
    trigger: str  # the `reason` of its row
    turn: int  # user messages of the session then
    started_at: float  # epoch seconds
    ended_at: float | None
    window: int
    edit_mark: int  # newest view edit then
    source_key: str | None  # of the messages to be taken out of the view; the same messages have the same
    summarizer: str | None  # the one that was asked; its failures count against it
    form: str | None
    error: str | None  # code of what ended it
    # code of what was wrong with the summariser's answer when another form stood in for it
    fallback: str | None = None
    made: bool = True  # of a superseded row: whether it was done once, before a message that it covers was deleted
    tokens_before: int = 0

    @property
    def worked(self) -> bool:
        """Whether work since the pass before made it due."""
        return self.trigger == WORK


@dataclass(frozen=True, kw_only=True)
class Now:
    """The pass that is asked for."""

    trigger: Trigger
    turn: int
    at: float  # epoch seconds
    window: int
    edit_mark: int
    usable: int  # tokens for messages
    worth: int  # tokens that it must free
    tokens_before: int
    tokens_after_at_most: int
    source_key: str | None
    summarizer: str
    needed: bool  # the plan's word: the view is beyond the trigger
    worked: bool = False  # whether there was work since the last pass

    @property
    def refused(self) -> bool:
        """Whether a server said that the request was too long."""
        return self.trigger == "overflow"

    @property
    def fits(self) -> bool:
        """Whether the view may be sent as it is, with room for what a chat template adds to what is counted."""
        return not self.refused and self.tokens_before * 100 <= self.usable * FITS_PERCENT


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether to go on. `why` is a stable word."""

    go: bool
    why: str
    detail: str
    # nothing but a change lets it go again
    final: bool = False
    retry_turn: int | None = None
    retry_after_seconds: float | None = None


GO = Verdict(go=True, why="due", detail="A pass is due.")


def before(now: Now, rows: Sequence[Past], limits: Limits = DEFAULTS) -> Verdict:
    """Whether a pass may be made. `rows`: the newest passes of the session, oldest first, at most `REMEMBERED`."""
    forced = now.refused or now.trigger == "manual"
    if not (now.needed or forced):
        return Verdict(go=False, why="room", detail=f"{now.tokens_before} tokens of {now.usable}: there is room.")
    freed = now.tokens_before - now.tokens_after_at_most
    if freed < now.worth:
        return Verdict(
            go=False, why="not_worth_it", final=not now.fits,
            detail=f"A pass would free about {max(freed, 0)} tokens; it must free {now.worth}.",
        )
    if now.trigger == "manual":
        return Verdict(go=True, why="manual", detail="It was asked for.")
    past = [row for row in rows if row.window == now.window and row.edit_mark == now.edit_mark]
    return _same_again(now, past) or _failures(now, past, limits) or _rate(now, past, limits) or GO


def after(tokens_before: int, tokens_after: int, worth: int) -> Verdict:
    """Whether what a pass made may be kept. Both counts are of the same counter over whole views."""
    freed = tokens_before - tokens_after
    if freed >= worth:
        return Verdict(go=True, why="freed", detail=f"{freed} tokens freed.")
    return Verdict(
        go=False, why="inflation",
        detail=f"The view would have {tokens_after} tokens instead of {tokens_before}; {worth} must be freed.",
    )


def asks_summarizer(now: Now, rows: Sequence[Past], limits: Limits = DEFAULTS) -> Verdict:
    """Whether the caller's summariser is asked, or the pass does without it.

    Each answer of it that could not be used makes it wait a step of the ladder, and after the last step it is left out
    until another one is given or a manual pass asks for it: a summariser that never returns costs its deadline four
    times, not in every pass.
    """
    if now.trigger == "manual":
        return GO
    own = [
        row for row in rows
        if row.summarizer == now.summarizer and row.state in ("done", "failed") and row.error not in CANCELLED | DIED
    ]
    strikes, newest = 0, 0.0
    for row in reversed(own):
        if not row.fallback:
            break
        strikes, newest = strikes + 1, max(newest, _ended(row))
    return _step(
        now, strikes, newest, limits, why="summarizer",
        what=f"The summariser {now.summarizer} gave nothing usable {strikes} times in a row",
    ) or GO


def _same_again(now: Now, past: Sequence[Past]) -> Verdict | None:
    """A fixed point: what was of no use on these messages is of no use on them again."""
    if now.source_key is None:
        return None
    for row in past:
        same = row.source_key == now.source_key and row.summarizer == now.summarizer
        if same and row.state == "failed" and row.error in USELESS:
            return Verdict(
                go=False, why="same_again", final=True,
                detail=f"Generation {row.generation} tried these very messages and was of no use ({row.error}).",
            )
    return None


def _failures(now: Now, past: Sequence[Past], limits: Limits) -> Verdict | None:
    """Failures since the last pass that was done, less some accidents, each worth a step of the ladder."""
    strikes, accidents, newest = 0, 0, 0.0
    # Nobody's failure: as if they had not been.
    past = [row for row in past if row.error not in CANCELLED]
    for row in reversed(past):
        if row.state == "done" or (row.state == "superseded" and row.made):
            break
        # Appending never makes a view smaller: where it is, messages were deleted since.
        if row.state == "running" or row.summarizer != now.summarizer or row.tokens_before > now.tokens_before:
            continue
        if row.state == "superseded" or row.error in DIED:
            accidents += 1
            if accidents <= limits.accidents:
                continue
        strikes, newest = strikes + 1, max(newest, _ended(row))
    free = min(accidents, limits.accidents)
    ended = strikes + free
    what = "The last pass has failed" if ended == 1 else f"{ended} passes in a row have failed"
    if free:
        what += f", {free} of them by no fault of theirs"
    return _step(now, strikes, newest, limits, why="cooldown", what=what)


def _rate(now: Now, past: Sequence[Past], limits: Limits) -> Verdict | None:
    made = [row for row in past if row.state == "done" and row.turn <= now.turn]
    if not made:
        return None
    if now.fits:
        due = made[-1].turn + limits.turns_between
        if now.turn >= due:
            return None
        return Verdict(
            go=False, why="too_soon", retry_turn=due,
            detail=f"The last pass was at user message {made[-1].turn}; while the view fits, the next is from"
            f" {due} on.",
        )
    recent = [row for row in made if row.turn > now.turn - limits.turns_between and row.trigger != "manual"]
    if now.worked:
        return None
    idle = _idle(recent)
    held = _step(
        now, idle - limits.burst + 1, max((_ended(row) for row in recent), default=0.0), limits, why="refilled",
        what=f"The window was full again after each of {idle} passes in {limits.turns_between} user messages, with too"
        " little work between them",
    )
    if held is None or not held.final:
        return held
    return Verdict(
        go=False, why=held.why, detail=held.detail, final=True,
        retry_turn=next(
            row.turn for row in recent if _idle([one for one in recent if one.turn > row.turn]) < limits.burst
        ) + limits.turns_between,
    )


def _idle(rows: Sequence[Past]) -> int:
    """Passes without work between them, less those that had some; oldest first."""
    found = 0
    for row in rows:
        found = max(found - 1, 0) if row.worked else found + 1
    return found


def _step(now: Now, strikes: int, newest: float, limits: Limits, *, why: str, what: str) -> Verdict | None:
    """The step of the ladder after so many strikes, None when its time is over or there was none."""
    if strikes <= 0:
        return None
    if strikes > len(limits.ladder):
        return Verdict(go=False, why=why, final=True, detail=f"{what}; it is not tried again before something changes.")
    # A clock that was set back must not make the wait longer than the step itself.
    waited = max(now.at - newest, 0.0)
    left = limits.ladder[strikes - 1] - waited
    if left <= 0:
        return None
    return Verdict(
        go=False, why=why, retry_after_seconds=left, detail=f"{what}; the next is tried in {left:.0f} s.",
    )


def _ended(row: Past) -> float:
    return row.started_at if row.ended_at is None else row.ended_at
