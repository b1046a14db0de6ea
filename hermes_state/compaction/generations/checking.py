"""The digest of what a generation took out of a view, made when it is and checked whenever somebody asks.

Invariant: a digest covers, in order, position and row check of each message that its own pass took out. So it costs
what the pass took out, not what lies behind it; a check goes through everything a generation was made from, and one
changed row anywhere below the cut shows. Positions are those of the session that the generation was made in.

Not for: whether a summary is true. A digest over texts was rejected: the row check is one already. One over the
parent's digest as well was rejected: the parent's row may go with a session that nobody shares any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from hermes_state.compaction.generations import effective, rows
from hermes_state.compaction.generations.effective import Story
from hermes_state.compaction.generations.live import no_generation
from hermes_state.compaction.generations.records import Generation, Verified
from hermes_state.conversation.session_rows import Reads
from hermes_state.conversation.view import Range, View, merged

Run = tuple[int, int, int, int]  # session number, first seq, last seq, offset


def source_digest(reader: Reads, taken: Iterable[Run]) -> tuple[str, int]:
    """SHA-256 in hexadecimal over the messages of these runs, and how many those are."""
    found, count = sha256(), 0
    for session_no, first, last, offset in taken:
        checks = reader.rows(
            "SELECT seq, row_check FROM messages WHERE session_no = ? AND seq BETWEEN ? AND ? ORDER BY seq",
            (session_no, first, last),
        )
        found.update("".join([f"{seq + offset}:{check}\n" for seq, check in checks]).encode())
        count += len(checks)
    return found.hexdigest(), count


def runs_at(view: View, positions: Sequence[int]) -> list[Run]:
    """The runs of messages at these positions, hidden or not."""
    return [
        (part.session_no, max(first, part.first) - part.offset, min(last, part.last) - part.offset, part.offset)
        for part in view.parts
        for first, last in merged([(one, one) for one in positions])
        if max(first, part.first) <= min(last, part.last)
    ]


def verify(reader: Reads, no: int, number: int) -> Verified:
    """Whether generation `number` of session `no`, and all that it was made from, stand for the rows they say.

    Reads every row below the cut. Raises `NotFound` when the session has no such generation that is done.
    """
    story = effective.story_of(reader, no)
    chosen = effective.reachable(reader, story).get(number)
    if chosen is None:
        raise no_generation(reader, no, number)
    looked_at = 0
    for one in rows.chain(reader, chosen.id):
        if one.state != "done":
            because = f"generation {one.generation}, which it was made from, is {one.state}"
            return Verified(generation=number, ok=False, because=because, rows=looked_at)
        if one.damaged:
            because = f"the anchors of generation {one.generation} cannot be read"
            return Verified(generation=number, ok=False, because=because, rows=looked_at)
        digest, count = source_of(reader, one)
        looked_at += count
        if count != one.source_rows:
            because = f"generation {one.generation} took up {one.source_rows} messages, and {count} are there"
            return Verified(generation=number, ok=False, because=because, rows=looked_at)
        if digest != one.source_digest:
            because = f"the messages that generation {one.generation} took up are not what they were"
            return Verified(generation=number, ok=False, because=because, rows=looked_at)
    return Verified(generation=number, ok=True, because=None, rows=looked_at)


def source_of(reader: Reads, one: Generation) -> tuple[str, int]:
    """Digest and number of the messages that a generation stands for, as they are now; `one` in its own positions."""
    story = effective.story_of(reader, one.session_no)
    parent = None if one.parent_id is None else rows.one(reader, one.parent_id)
    return source_digest(reader, _taken(reader, story, one, parent))


def _taken(reader: Reads, story: Story, one: Generation, parent: Generation | None) -> list[Run]:
    """What `one`, made in the story's session from `parent`, took out of the view it was made from."""
    then = effective.view_at(reader, story, one.edit_mark)
    before = None if parent is None else effective.placed_in(story, parent)
    seen = effective.shown(reader, story, before, now=then)
    ranges: list[Range] = [(first, min(last, one.cut_at - 1)) for first, last in seen if first < one.cut_at]
    return effective.runs(then, effective.less(ranges, [(place, place) for place in one.anchors]))
