"""A pass, from its first row to its last: begun, renewed, failed, given up for gone. See `committing` for its end.

Invariant: the running row is the lock, one a session by a unique index. Whoever begins settles a row whose maker is
gone first, in the same transaction. Appends never ask for it.

Not for: planning and summaries, which happen outside every transaction. Waiting for another's pass was rejected: the
caller's turn goes on without one.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_state.compaction.generations import effective, rows
from hermes_state.compaction.generations.makers import Watch
from hermes_state.compaction.generations.records import Draft, Generation, LiveView, Running, error_json
from hermes_state.compaction.generations.states import NEXT, Event
from hermes_state.conversation.lineage import segments
from hermes_state.conversation.session_rows import replaced, wall_time
from hermes_state.errors import CompactionLost, CompactionRunning, InvalidInput, StateError, ViewMoved

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Transaction
    from hermes_state.engine.core import Core

TERM_SECONDS = 60.0  # what one renewal gives: a maker that renews at a third of it may miss two in a row


def begin(
    core: Core, view: LiveView, draft: Draft, *, watch: Watch, term_seconds: float = TERM_SECONDS,
    deadline_seconds: float | None = None,
) -> Running:
    """Begin a pass over `view`: one short transaction at "power" that adds the running row.

    `deadline_seconds`: how long to wait for the write lock; None: as long as every write.

    Raises `CompactionRunning` (another maker is at work), `ViewMoved` (the session is no longer seen as in `view`),
    `InvalidInput` (a draft that does not fit the view), `SessionReplaced`, `CannotOpen`, and as every write.
    """
    draft = tight(view, draft)
    source = taken_up(view, draft)
    identity = watch.identity

    def work(tx: Transaction) -> Generation:
        session_id = _session_id(tx, view.session_no)
        at = wall_time(core.clock)
        other = rows.running_of(tx, view.session_no)
        if other is not None:
            because = watch.gone(other)
            if because is None:
                raise _is_running(tx, session_id, other)
            settle(tx, other, because, at)
        change = moved(tx, view)
        if change is not None:
            raise ViewMoved(
                f"Session {session_id!r} of {tx.path} is no longer seen as it was planned on: {change[1]}.",
                hint="Plan again.", path=tx.path, session_id=session_id, because=change[0],
            )
        clock, domain = core.clock, core.clock.domain()
        tx.execute(
            "INSERT INTO compactions (session_no, generation, parent_id, state, cut_at, watermark, edit_mark, anchors,"
            " source_rows, summarizer, window, tokenizer, tokens_fixed, tokens_reserved, tokens_before, policy, reason,"
            " turn, model, owner, boot_id, time_namespace, expires_boottime, term_seconds, started_at)"
            " VALUES (?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                view.session_no, _next_number(tx, view), None if view.generation is None else view.generation.id,
                draft.cut_at, view.watermark, view.edit_mark, rows.positions_json(draft.anchors), len(source),
                draft.summarizer, draft.window, draft.tokenizer, draft.tokens_fixed, draft.tokens_reserved,
                draft.tokens_before, draft.policy, draft.reason, view.turn, view.model, identity.to_json(),
                domain.boot_id, domain.time_namespace, clock.boottime() + term_seconds, term_seconds, at,
            ),
        )
        made = rows.one(tx, tx.last_insert_rowid())
        assert made is not None  # inserted just now
        return made

    made = core.write(work, durability="power", deadline_seconds=deadline_seconds)
    return Running(generation=made, view=view, source=source)


def taken_up(view: LiveView, draft: Draft) -> tuple[int, ...]:
    """The positions that a draft takes out of a view. Raises `InvalidInput` when the draft does not fit the view."""
    lowest = effective.FIRST if view.generation is None else view.generation.cut_at
    if not lowest <= draft.cut_at <= view.watermark + 1:
        raise InvalidInput(
            f"A tail cannot begin at position {draft.cut_at}: the view has {lowest} to {view.watermark + 1}.",
            hint="Plan on the view that is given to begin().", argument="cut_at",
        )
    anchors, below = set(draft.anchors), [one for one in view.row_positions if one < draft.cut_at]
    stray = sorted(anchors.difference(below))
    if stray:
        raise InvalidInput(
            f"Position {stray[0]} cannot be an anchor: it is no message of the view before {draft.cut_at}.",
            hint="Anchors are messages of the view that stay before the tail.", argument="anchors",
        )
    return tuple(one for one in below if one not in anchors)


def tight(view: LiveView, draft: Draft) -> Draft:
    """The same draft with its tail beginning right after the last message that it takes out.

    The view it makes is the same; a branch that shares just what it covers can be seen through it.
    """
    source = taken_up(view, draft)
    lowest = view.generation.cut_at if view.generation is not None else min([draft.cut_at, *view.row_positions])
    cut_at = max([lowest, *(one + 1 for one in source[-1:])])
    return replace(draft, cut_at=cut_at, anchors=[one for one in draft.anchors if one < cut_at])


def renew(core: Core, running: Running) -> Running:
    """Give a pass another term, by a transaction of its own. Raises `CompactionLost` when it has ended or is gone."""

    def work(tx: Transaction) -> Generation:
        one = running.generation
        found = rows.one(tx, one.id)
        if found is None or found.state != "running" or found.owner_text != one.owner_text:
            raise _lost(tx, one, found)
        clock, domain = core.clock, core.clock.domain()
        tx.execute(
            "UPDATE compactions SET renewals = renewals + 1, expires_boottime = ?, boot_id = ?, time_namespace = ?"
            " WHERE id = ?",
            (clock.boottime() + (one.term_seconds or TERM_SECONDS), domain.boot_id, domain.time_namespace, one.id),
        )
        renewed = rows.one(tx, one.id)
        assert renewed is not None  # updated just now
        return renewed

    return replace(running, generation=core.write(work))


def fail(core: Core, running: Running, error: BaseException) -> Generation | None:
    """End a pass that its maker gives up; returns the row as it stands, None when it is gone with its session.

    What has ended already stays as it is. What is no `Exception` (an interrupt, a cancelled await, the end of the
    program) is `cancelled`: it came from outside, and says nothing about the pass.
    """
    kind = type(error).__name__
    if isinstance(error, StateError):
        code, message = error.code, str(error)
    elif isinstance(error, (Exception, BaseExceptionGroup)) and not isinstance(error, CancelledError):
        code, message = "summarizer_failed", str(error) or kind
    else:
        code, message = "cancelled", f"The pass was ended from outside: {kind}."
    text = error_json(code, message, type=kind)

    def work(tx: Transaction) -> Generation | None:
        found = rows.one(tx, running.generation.id)
        if found is not None and found.state == "running":
            end(tx, found, Event.FAILED, text, wall_time(core.clock))
            found = rows.one(tx, found.id)
        return found

    return core.write(work, durability="power")


def settle_stale(core: Core, watch: Watch) -> tuple[Generation, ...]:
    """End every running row of the store whose maker is gone; returns them as they stand now. One look when none is."""
    with core.reader() as reader:
        running = rows.all_running(reader)
    gone = [(one, because) for one in running if (because := watch.gone(one)) is not None]
    if not gone:
        return ()

    def work(tx: Transaction) -> tuple[Generation, ...]:
        settled = []
        for one, because in gone:
            found = rows.one(tx, one.id)
            # Renewed or ended since it was judged: not ours to end.
            if found is not None and found.state == "running" and found.renewals == one.renewals:
                settle(tx, found, because, wall_time(core.clock))
                settled.append(rows.one(tx, one.id) or found)
        return tuple(settled)

    return core.write(work, durability="power")


def settle(tx: Transaction, one: Generation, because: str, at: float) -> None:
    """End a running row whose maker is gone."""
    owner = one.owner
    message = f"Generation {one.generation} was not finished: {because}."
    end(tx, one, Event.GONE, error_json("maker_gone", message, pid=None if owner is None else owner.pid), at)


def end(tx: Transaction, one: Generation, event: Event, error: str, at: float) -> None:
    """Give a row the state that an event leads to, and its error."""
    tx.execute(
        "UPDATE compactions SET state = ?, error = ?, ended_at = coalesce(ended_at, ?) WHERE id = ?",
        (NEXT[one.state, event], error, at, one.id),
    )


def moved(reader: Reader, view: LiveView) -> tuple[str, str] | None:
    """What about the session is no longer as in `view`, as a code and in words; None when all is.

    Messages appended since do not count: they are tail.
    """
    row = reader.row("SELECT state, model FROM sessions WHERE no = ?", (view.session_no,))
    if row is None:
        return "session_deleted", "it was deleted"
    if row[0] == "replaced":
        return "session_replaced", "another session goes on for it"
    head = rows.head_of(reader, view.session_no)
    if (head.id, head.moves) != (view.head_id, view.head_moves):
        return "head_moved", "it is seen through another generation now"
    if effective.story_of(reader, view.session_no).edit_mark != view.edit_mark:
        return "view_edited", "messages were taken back or brought back"
    if row[1] != view.model:
        return "model_changed", f"its model is {row[1]} now and was {view.model}"
    return None


def lease_ran_out(clock: Clock, one: Generation) -> bool:
    """Whether the maker of a running row was away for too long."""
    return not one.domain.comparable(clock.domain()) or clock.boottime() >= (one.expires_boottime or 0.0)


def _next_number(tx: Transaction, view: LiveView) -> int:
    """Above those of what a branch shares, too, so that one number means one generation there."""
    return 1 + max(
        int(tx.rows("SELECT coalesce(max(generation), 0) FROM compactions WHERE session_no = ?", (no,))[0][0])
        for no in {part.session_no for part in segments(tx, view.session_no)}
    )


def _session_id(tx: Transaction, no: int) -> str:
    row = tx.row("SELECT id, state FROM sessions WHERE no = ?", (no,))
    if row is None or row[1] == "replaced":
        raise replaced(tx, "" if row is None else str(row[0]), no)
    return str(row[0])


def _is_running(tx: Transaction, session_id: str, other: Generation) -> CompactionRunning:
    owner = other.owner
    who = "an owner that this version cannot read" if owner is None else f"process {owner.pid} on {owner.host}"
    return CompactionRunning(
        f"Session {session_id!r} of {tx.path} is being compacted by {who} since"
        f" {_clock_time(other.started_at)}.",
        hint="Go on without; the pass of that process is seen as soon as it is done.", path=tx.path,
        session_id=session_id, owner=owner, pid=None if owner is None else owner.pid, started_at=other.started_at,
    )


def _lost(tx: Transaction, one: Generation, found: Generation | None) -> CompactionLost:
    state = None if found is None else found.state
    what = "is gone" if found is None else f"has ended: it is {state}"
    # The word of what ended it, as a commit that came too late would have it.
    because = "session_deleted"
    if found is not None:
        code = str((found.error or {}).get("code", "lease_lost"))
        because = "lease_lost" if code == "maker_gone" else code
    return CompactionLost(
        f"Generation {one.generation} of a session of {tx.path} {what}.",
        hint="Stop this work; what was said is all there.", path=tx.path, compaction_id=one.id, state=state,
        because=because,
    )


def _clock_time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
