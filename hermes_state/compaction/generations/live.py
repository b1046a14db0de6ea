"""The live view: what a model gets of a session that may have been compacted.

Invariant: the cost follows what is to be seen. Rows below the cut are not read, but for anchors, by their positions;
how many are archived behind the cut makes no difference.

Not for: turning rows into messages (see `render`). Keeping the rendered view in a table was rejected: every append
would have to rewrite it, or make it wrong.
"""

from __future__ import annotations

from typing import Any

from hermes_state.compaction.generations import effective, rows
from hermes_state.compaction.generations.effective import Story
from hermes_state.compaction.generations.records import Generation, LiveView
from hermes_state.compaction.late import with_late_results
from hermes_state.compaction.render import Live, placed
from hermes_state.conversation.context import COLUMNS, chat
from hermes_state.conversation.session_rows import Reads
from hermes_state.errors import NotFound

_RUN = (
    f"SELECT {COLUMNS}, {{extra}}, seq, id, token_count FROM messages"
    " WHERE session_no = ? AND seq BETWEEN ? AND ? ORDER BY seq"
)


def live_view(
    reader: Reads, no: int, *, as_of: int | None = None, extras: bool = False, whole: bool = False
) -> LiveView:
    """What a model gets of session `no` now; call it inside a snapshot.

    `as_of`: as if that generation of the session were its head (0: the whole history); what was rewound or said since
    is as it is now. `extras`: with the fields of `extra`, as in `Messages.context`. `whole`: nothing is shortened.
    Raises `NotFound` when the session has no such generation that is done, `Corrupt`.
    """
    story, head = effective.story_of(reader, no), rows.head_of(reader, no)
    chosen = head.id if as_of is None else generation_id(reader, story, as_of)
    generation = effective.effective(reader, story, chosen)
    clips = {} if generation is None or whole else rows.clips_of(
        reader, generation.id, story.shift(generation.session_no) or 0
    )
    live = _rows(reader, story, generation, clips, extras)
    summary = None if generation is None else rows.summary_of(reader, generation)
    messages = placed(live if generation is None else with_late_results(live), summary=summary)
    newest, model = reader.rows(
        "SELECT coalesce((SELECT max(seq) FROM messages WHERE session_no = s.no), 0), model FROM sessions s"
        " WHERE no = ?", (no,),
    )[0]
    behind = 0 if generation is None else generation.turn
    since = effective.FIRST if generation is None else generation.watermark
    return LiveView(
        session_no=no, messages=[one.message for one in messages],
        positions=tuple(None if one.row is None else one.row.position for one in messages),
        ids=tuple(None if one.row is None else one.row.id for one in messages),
        token_counts=tuple(one.token_count for one in messages),
        row_positions=tuple(row.position for row in live), row_ids=tuple(row.id for row in live if row.id is not None),
        clips=clips, generation=generation, summary=summary,
        summary_at=next((at for at, one in enumerate(messages) if one.is_summary), None),
        head_id=head.id, head_moves=head.moves, edit_mark=story.edit_mark, watermark=newest,
        turn=behind + sum(row.message["role"] == "user" and row.position > since for row in live), model=model,
    )


def generation_id(reader: Reads, story: Story, number: int) -> int | None:
    """The row of generation `number` of a story, None for 0. Raises `NotFound` when there is none that is done."""
    if number == 0:
        return None
    found = effective.reachable(reader, story).get(number)
    if found is None:
        raise no_generation(reader, story.no, number)
    return found.id


def no_generation(reader: Reads, no: int, number: int) -> NotFound:
    """The error for a generation that a session cannot be seen through."""
    (session_id,) = reader.rows("SELECT id FROM sessions WHERE no = ?", (no,))[0]
    return NotFound(
        f"Session {session_id!r} of {reader.path} has no generation {number} that it can be seen through.",
        hint="Choose one that is done; 0 is the whole history.", path=reader.path, session_id=session_id,
        generation=number,
    )


def _rows(
    reader: Reads, story: Story, generation: Generation | None, clips: dict[int, Any], extras: bool
) -> list[Live]:
    found: list[tuple[Any, ...]] = []
    offsets: list[int] = []
    statement = _RUN.format(extra="extra" if extras else "NULL")
    for session_no, first, last, offset in effective.runs(
        story.view, effective.shown(reader, story, generation)
    ):
        some = reader.rows(statement, (session_no, first, last))
        found += some
        offsets += [offset] * len(some)
    messages = chat(reader, [row[:9] for row in found])
    return [
        Live(
            message=message, position=row[9] + offset, id=row[10], token_count=row[11], clip=clips.get(row[9] + offset)
        )
        for message, row, offset in zip(messages, found, offsets, strict=True)
    ]
