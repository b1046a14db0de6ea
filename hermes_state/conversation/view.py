"""Which messages of a session are to be seen: its own, what it shares with its parent, less what edits hide.

Invariant: the view is computed from rows that never change; nothing flips a flag on a message. All positions of a view
lie on one axis: the session's own messages are at their `seq` (1, 2, ...), those that a branch shares with its parent
are at 0, -1, ..., so that one edit of a branch can reach back into what it shares. An edit counts until a restore takes
it back; in a branch, edits that were made to its parent after it branched off do not count.

Not for: the text of messages. A visible flag on each message was rejected: a compaction would rewrite every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hermes_state.conversation.lineage import Segment
from hermes_state.conversation.session_rows import Reads

Action = Literal["rewind", "compact"]
Range = tuple[int, int]

_EDITS = (
    "SELECT id, action, from_seq, to_seq FROM view_edits e WHERE session_no = ?1 AND id <= ?2 AND action <> 'restore'"
    " AND NOT EXISTS (SELECT 1 FROM view_edits r WHERE r.undoes = e.id AND r.id <= ?2) ORDER BY id"
)
_LAST = 2**63 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A run of one session's messages in a view."""

    session_no: int
    # positions of its first and last possible message, and what a `seq` is away from its position
    first: int
    last: int
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Whose messages a session is made of, oldest first, and the positions that are hidden."""

    parts: tuple[Part, ...]
    # sorted and apart from each other
    rewound: tuple[Range, ...]
    compacted: tuple[Range, ...]

    def hidden(self, position: int) -> Action | None:
        """What hides a position; a rewind wins, since it hides from more."""
        if _inside(self.rewound, position):
            return "rewind"
        return "compact" if _inside(self.compacted, position) else None

    def visible(self, *hiding: Action) -> list[tuple[int, int, int, int]]:
        """Runs `(session_no, first seq, last seq, offset)` of what the given actions leave, oldest first."""
        gone = merged([
            *(self.rewound if "rewind" in hiding else ()), *(self.compacted if "compact" in hiding else ()),
        ])
        return [
            (part.session_no, first - part.offset, last - part.offset, part.offset)
            for part in self.parts
            for first, last in without(part.first, part.last, gone)
        ]


def view_of(reader: Reads, segments: Sequence[Segment]) -> View:
    """The view of one session, from its segments oldest first (`lineage.segments`)."""
    parts: list[Part] = []
    rewound: list[Range] = []
    compacted: list[Range] = []
    offset, last = 0, _LAST
    for segment in reversed(segments):
        if segment.upto_seq is not None:
            offset, last = offset - segment.upto_seq, min(offset, last)
        bound = _LAST if segment.upto_edit is None else segment.upto_edit
        for _id, action, first, to in reader.rows(_EDITS, (segment.session_no, bound)):
            # An edit of a parent reaches no further than what is shared of it.
            if first + offset <= last:
                (rewound if action == "rewind" else compacted).append((first + offset, min(to + offset, last)))
        parts.append(Part(session_no=segment.session_no, first=1 + offset, last=last, offset=offset))
    return View(parts=tuple(reversed(parts)), rewound=merged(rewound), compacted=merged(compacted))


def merged(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """The same positions as sorted ranges that neither overlap nor touch."""
    out: list[Range] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return tuple(out)


def without(first: int, last: int, gone: Sequence[Range]) -> list[Range]:
    """What of `first`..`last` lies in none of the ranges `gone`, which are sorted and apart."""
    out: list[Range] = []
    for start, end in gone:
        if end < first:
            continue
        if start > last:
            break
        if start > first:
            out.append((first, start - 1))
        first = end + 1
    if first <= last:
        out.append((first, last))
    return out


def _inside(ranges: Sequence[Range], position: int) -> bool:
    return any(first <= position <= last for first, last in ranges)
