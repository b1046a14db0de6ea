"""Which generation a session is really seen through, and which of its rows are then to be seen.

Invariant: nothing is flipped. The effective generation is the first of the head, its parent, that one's parent, ...
that is done and still stands for what it took out: nothing that it covers was rewound since (a restore brings it back
by itself), and in a branch nothing that it covers lies beyond what is shared. With none of these: the whole history.

What a rewind had hidden when a generation was made is in no summary. When it is restored later, below the cut, it is
shown as it is, like an anchor: nothing leaves a view without something that stands for it.

Not for: reading messages (see `live`). Marking generations as invalid at every rewind was rejected: the restore would
have to find them again, and a crash between the two rows would lose one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hermes_state.compaction.generations import rows
from hermes_state.compaction.generations.records import Generation
from hermes_state.conversation.lineage import Segment, segments
from hermes_state.conversation.session_rows import Reads
from hermes_state.conversation.view import Range, View, merged, view_of, without

_LAST = 2**63 - 1
FIRST = -_LAST  # below every position


@dataclass(frozen=True, kw_only=True)
class Story:
    """What a session's messages are: where they come from, and the newest view edit that counts for them."""

    no: int
    segments: tuple[Segment, ...]
    view: View
    edit_mark: int

    def shift(self, session_no: int) -> int | None:
        """What a position of that session's view is away from the same one here; None when it is no part of this."""
        return next((part.offset for part in self.view.parts if part.session_no == session_no), None)

    def last(self, session_no: int) -> int:
        """The last position that is shared of that session."""
        return next(part.last for part in self.view.parts if part.session_no == session_no)


def story_of(reader: Reads, no: int) -> Story:
    """The story of a session, which may also be one that only branches still show."""
    found = segments(reader, no)
    mark = 0
    for segment in found:
        bound = _LAST if segment.upto_edit is None else segment.upto_edit
        newest = reader.rows("SELECT max(id) FROM view_edits WHERE session_no = ? AND id <= ?", (
            segment.session_no, bound,
        ))[0][0]
        mark = max(mark, newest or 0)
    return Story(no=no, segments=tuple(found), view=view_of(reader, found), edit_mark=mark)


def view_at(reader: Reads, story: Story, mark: int) -> View:
    """The story's view as it was when `mark` was its newest edit."""
    if story.edit_mark <= mark:
        return story.view
    return view_of(reader, [
        replace(part, upto_edit=mark if part.upto_edit is None else min(part.upto_edit, mark))
        for part in story.segments
    ])


def effective(reader: Reads, story: Story, id: int | None) -> Generation | None:
    """The first of row `id` and its parents that holds for the story, in the story's positions."""
    seen: set[int] = set()
    while id is not None and id not in seen:
        seen.add(id)
        found = rows.one(reader, id)
        if found is None:
            return None
        here = placed_in(story, found)
        if here is not None and holds(reader, story, here):
            return here
        id = found.parent_id
    return None


def placed_in(story: Story, generation: Generation) -> Generation | None:
    """The generation in the story's positions; None when it was made of what is no part of the story."""
    shift = story.shift(generation.session_no)
    return None if shift is None else generation.shifted(shift)


def holds(reader: Reads, story: Story, generation: Generation) -> bool:
    """Whether a generation, in the story's positions, stands for what it took out."""
    if generation.damaged:
        return False
    if generation.state != "done" or generation.cut_at > min(story.last(generation.session_no), _LAST - 1) + 1:
        return False
    then = view_at(reader, story, generation.edit_mark)
    if then is story.view:
        return True
    kept = merged([*((one, one) for one in generation.anchors), *then.compacted])
    newly = [
        (first, min(last, generation.cut_at - 1))
        for first, last in less(story.view.rewound, then.rewound) if first < generation.cut_at
    ]
    return not _has_messages(reader, story, less(newly, kept))


def _has_messages(reader: Reads, story: Story, ranges: Sequence[Range]) -> bool:
    """Whether any message is there in these ranges; numbers that were deleted before are none."""
    return any(
        reader.row(
            "SELECT 1 FROM messages WHERE session_no = ? AND seq BETWEEN ? AND ? LIMIT 1",
            (part.session_no, max(first, part.first) - part.offset, min(last, part.last) - part.offset),
        )
        for first, last in ranges for part in story.view.parts
        if max(first, part.first) <= min(last, part.last)
    )


def shown(reader: Reads, story: Story, generation: Generation | None, *, now: View | None = None) -> list[Range]:
    """The positions that a generation leaves to be seen, in runs; what edits hide is not taken off here."""
    if generation is None:
        return [(FIRST, _LAST)]
    then = view_at(reader, story, generation.edit_mark)
    now = story.view if now is None else now
    late = [
        (first, min(last, generation.cut_at - 1))
        for first, last in less(then.rewound, now.rewound) if first < generation.cut_at
    ]
    return list(merged([*((one, one) for one in generation.anchors), *late, (generation.cut_at, _LAST)]))


def seen_view(reader: Reads, no: int) -> View:
    """The view of a session in which what its effective generation took out counts as compacted."""
    story = story_of(reader, no)
    generation = effective(reader, story, rows.head_of(reader, no).id)
    if generation is None:
        return story.view
    gone = less([(FIRST, _LAST)], shown(reader, story, generation))
    return replace(story.view, compacted=merged([*story.view.compacted, *gone]))


def runs(view: View, ranges: Sequence[Range]) -> list[tuple[int, int, int, int]]:
    """What edits leave of these ranges, as runs `(session_no, first seq, last seq, offset)`, oldest first."""
    return [
        (session_no, max(first, low - offset), min(last, high - offset), offset)
        for session_no, first, last, offset in view.visible("rewind", "compact")
        for low, high in ranges
        if max(first + offset, low) <= min(last + offset, high)
    ]


def less(ranges: Iterable[Range], gone: Sequence[Range]) -> list[Range]:
    """What of `ranges` lies in none of `gone`, which are sorted and apart."""
    return [left for first, last in ranges for left in without(first, last, gone)]


def reachable(reader: Reads, story: Story) -> dict[int, Generation]:
    """Every done generation that the session may be seen through, by number, in the story's positions.

    Its own, those that its head was made from, and those of what it shares that cover nothing else. Where two have one
    number it is the session's own.
    """
    found: dict[int, Generation] = {}
    for segment in story.segments:
        last = min(story.last(segment.session_no), _LAST - 1)
        for one in rows.of_session(reader, segment.session_no):
            here = placed_in(story, one)
            if here is None or one.state != "done" or here.cut_at > last + 1:
                continue
            if segment.upto_edit is None or one.edit_mark <= segment.upto_edit:
                found[one.generation] = here
    return found
