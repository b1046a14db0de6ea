"""The end of a pass: one transaction that makes its generation the head, or says why not.

Invariant: either all of it is there (the row done, its clips, the head moved) or nothing but a superseded row that
keeps the summary for people. Everything that was planned on is compared inside that transaction; the digest of the
rows is made before it, and a message that is deleted in between ends the row itself (see `deleting`). So the
transaction writes one row, one head and the clips, however long the history is.

Not for: judging a summary. Moving the head in a second transaction was rejected: a kill in between left a done row that
nobody sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_state.changes import record
from hermes_state.compaction.clips import joined
from hermes_state.compaction.generations import rows
from hermes_state.compaction.generations.checking import runs_at, source_digest
from hermes_state.compaction.generations.effective import story_of
from hermes_state.compaction.generations.records import Generation, Made, Running, error_json
from hermes_state.compaction.generations.running import lease_ran_out, moved
from hermes_state.compaction.generations.states import NEXT, Event
from hermes_state.conversation.session_rows import optional_text, wall_time
from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.compaction.clips import Clip
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core


def commit(core: Core, running: Running, made: Made) -> Generation:
    """Make what a pass has made the way the session is seen, in one transaction at "power"; returns the row.

    `state` of it is "done", or "superseded" when something was no longer as it was planned on; `error` then has a
    `code` (lease_lost, head_moved, view_edited, model_changed, session_replaced, session_deleted, rows_gone,
    message_deleted) and a `message`. Raises `InvalidInput` for a result that does not fit the draft, and as every
    write: after an error nothing has changed, and `commit` may be called again.
    """
    _refuse_unfit(running, made)
    # A model may end in half a character, which no UTF-8 text can hold.
    made = replace(
        made, summary=optional_text("summary", made.summary), summarizer=optional_text("summarizer", made.summarizer)
    )
    generation = running.generation
    with core.reader() as reader, reader.snapshot():
        story = story_of(reader, running.view.session_no)
        digest, count = source_digest(reader, runs_at(story.view, running.source))
    earlier = running.view.clips
    clips = {
        at: clip for at in {**earlier, **made.clips}
        if _stays(generation, at) and (clip := joined(earlier.get(at), made.clips.get(at))) is not None
    }

    def work(tx: Transaction) -> Generation:
        found = rows.one(tx, generation.id)
        if found is None:
            return replace(generation, state="superseded", ended_at=wall_time(core.clock), error={
                "code": "session_deleted", "message": "The session was deleted with its generations.",
            })
        at = wall_time(core.clock)
        because = _too_late(core, tx, running, found)
        if because is None and count != len(running.source):
            because = "rows_gone", f"{len(running.source) - count} of its messages are no longer there"
        if because is not None:
            _supersede(tx, found, made, digest, because, at)
        else:
            _finish(tx, running, made, digest, clips, at)
        ended = rows.one(tx, generation.id)
        assert ended is not None  # updated just now
        return ended

    return core.write(work, durability="power")


def _refuse_unfit(running: Running, made: Made) -> None:
    if made.form == "none" and running.source:
        raise InvalidInput(
            f"{len(running.source)} messages would leave the view with nothing that stands for them.",
            hint="Give a summary, or take up no message.", argument="form",
        )
    if made.form != "none" and not made.summary:
        raise InvalidInput("A generation that summarises has a summary.", argument="summary")


def _stays(generation: Generation, position: int) -> bool:
    return position >= generation.cut_at or position in generation.anchors


def _too_late(core: Core, tx: Transaction, running: Running, found: Generation) -> tuple[str, str] | None:
    if found.state == "superseded":
        error = found.error or {}
        return str(error.get("code", "superseded")), str(error.get("message", "it was superseded"))
    if found.state != "running" or lease_ran_out(core.clock, found):
        return "lease_lost", "its lease ran out while its maker was away"
    return moved(tx, running.view)


def _supersede(
    tx: Transaction, found: Generation, made: Made, digest: str, because: tuple[str, str], at: float
) -> None:
    """Keep what was made for people; the text of a summary that covers a deleted message is not kept."""
    if found.state == "superseded":
        return
    code, why = because
    tx.execute(
        "UPDATE compactions SET state = ?, summary = ?, form = ?, tokens_after = ?, source_digest = ?,"
        " summarizer = coalesce(?, summarizer), prompt_digest = ?, error = ?, ended_at = ? WHERE id = ?",
        (
            NEXT[found.state, Event.TOO_LATE], None if code == "rows_gone" else made.summary, made.form,
            made.tokens_after, digest, made.summarizer, made.prompt_digest,
            error_json(code, f"Generation {found.generation} came too late: {why}."), at, found.id,
        ),
    )


def _finish(
    tx: Transaction, running: Running, made: Made, digest: str, clips: Mapping[int, Clip], at: float
) -> None:
    generation, view = running.generation, running.view
    tx.execute(
        "UPDATE compactions SET state = ?, summary = ?, form = ?, tokens_after = ?, source_digest = ?,"
        " summarizer = coalesce(?, summarizer), prompt_digest = ?, ended_at = ? WHERE id = ?",
        (
            NEXT["running", Event.COMMITTED], made.summary, made.form, made.tokens_after, digest, made.summarizer,
            made.prompt_digest, at, generation.id,
        ),
    )
    tx.executemany(
        "INSERT INTO compaction_clips (compaction_id, position, clip) VALUES (?, ?, ?)",
        [(generation.id, position, clip.to_json()) for position, clip in sorted(clips.items())],
    )
    move_head(tx, view.session_no, generation.id, seen=rows.Head(id=view.head_id, moves=view.head_moves))
    (session_id,) = tx.rows("SELECT id FROM sessions WHERE no = ?", (view.session_no,))[0]
    record(tx, "compactions", session_id, "update", at)


def move_head(tx: Transaction, no: int, id: int | None, *, seen: rows.Head) -> bool:
    """Make row `id` (None: the whole history) the head of a session if the head is as `seen`; whether it was."""
    if seen.moves == 0:
        return bool(tx.execute(
            "INSERT INTO compaction_heads (session_no, compaction_id) VALUES (?, ?) ON CONFLICT DO NOTHING", (no, id)
        ))
    return bool(tx.execute(
        "UPDATE compaction_heads SET compaction_id = ?, moves = moves + 1"
        " WHERE session_no = ? AND moves = ? AND compaction_id IS ?",
        (id, no, seen.moves, seen.id),
    ))
