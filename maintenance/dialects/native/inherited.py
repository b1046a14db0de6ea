"""What a branch shares with a parent that was deleted: from then on the branch alone shows it.

Invariant: such messages belong to the branch wherever it is shown or exported, in front of its own and on one row of
numbers with them, so that nothing of a conversation is lost with the session that it began in.

Not for: branches whose parent is there; those share, and the parent's record has the messages. Giving the messages to
the branch when the parent is deleted was rejected by the library: it would give them new ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maintenance.dialects.cells import key_bytes

if TYPE_CHECKING:
    from hermes_state.conversation.view import View
    from hermes_state.engine import Reader


@dataclass(frozen=True, kw_only=True)
class Story:
    """The messages that a session is shown with."""

    session_no: int  # the session
    view: View  # what its edits hide, by position
    # (session number, first seq, last seq, position minus seq), oldest first
    runs: tuple[tuple[int, int, int, int], ...]
    shift: int  # added to a position it gives the number in a record; 0 unless something is inherited

    def number(self, session_no: int, seq: int) -> int:
        """The position of a message of one of the runs."""
        return next(seq + offset for no, low, high, offset in self.runs if no == session_no and low <= seq <= high)


def story_of(reader: Reader, session_id: str) -> Story | None:
    """The messages of a session with what it inherited, None when there is no such session."""
    from hermes_state.conversation.lineage import segments
    from hermes_state.conversation.view import view_of

    row = reader.row(
        "SELECT s.no, s.relation = 'branch' AND EXISTS (SELECT 1 FROM sessions AS p WHERE p.no = s.parent_no"
        " AND p.hidden = 1 AND p.active_at = 0) FROM sessions AS s WHERE s.id = CAST(? AS TEXT)",
        (key_bytes(session_id),),
    )
    if row is None:
        return None
    no, inherits = int(row[0]), bool(row[1])
    view = view_of(reader, segments(reader, no))
    parts = [part for part in view.parts if inherits or part.session_no == no]
    runs = tuple((part.session_no, part.first - part.offset, part.last - part.offset, part.offset) for part in parts)
    return Story(session_no=no, view=view, runs=runs, shift=1 - parts[0].first if inherits else 0)


def story_ids(reader: Reader, story: Story) -> list[int]:
    """The ids of all its messages, in order."""
    found: list[int] = []
    for session_no, low, high, _offset in story.runs:
        rows = reader.iterate(
            "SELECT id FROM messages WHERE session_no = ? AND seq BETWEEN ? AND ? ORDER BY seq", (session_no, low, high)
        )
        found.extend(int(row[0]) for row in rows)
    return found
