"""What branches share of sessions that were deleted: found as theirs, or not at all.

Invariant: a kept message is found once, under the branch that `lineage.shown_under` names among those that are asked
for, and hidden by what hides it there. What a deletion is still removing is in no such run and is never found.

Not for: what branches share of living sessions, which is found there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hermes_state.conversation.lineage import reaches, segments
from hermes_state.conversation.session_rows import left_over
from hermes_state.engine import Reader

Edit = tuple[int, int, str, int]  # first seq, last seq, action, edit id

# The branches below each deleted session, nearest first.
_BRANCHES = f"""
WITH RECURSIVE below (kept, no, step) AS (
    SELECT s.no, c.no, 1 FROM sessions s JOIN sessions c ON c.parent_no = s.no AND c.relation = 'branch'
        WHERE s.active_at = 0 AND {left_over('s')}
    UNION SELECT below.kept, c.no, step + 1 FROM below JOIN sessions s ON s.no = below.no
        JOIN sessions c ON c.parent_no = s.no AND c.relation = 'branch' WHERE {left_over('s')} AND step < 1000
)
SELECT below.kept, s.no, s.id FROM below JOIN sessions s ON s.no = below.no
WHERE NOT {left_over('s')} AND (?1 OR (s.archived_at IS NULL AND s.hidden = 0)) AND (?2 IS NULL OR s.no = ?2)
ORDER BY below.kept, below.step, s.no
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """A run of messages of a deleted session, and the branch that shows it."""

    session_no: int
    first: int
    last: int
    branch_no: int
    branch_id: str


def kept_runs(
    reader: Reader, *, include_archived: bool, branch_no: int | None, branches: Collection[int] | None
) -> tuple[Kept, ...]:
    """The runs that the branches asked for show: of one branch, of several, or of all (None)."""
    found: list[Kept] = []
    for session_no, no, branch_id in reader.rows(_BRANCHES, (int(include_archived), branch_no)):
        if branches is not None and no not in branches:
            continue
        shares = segments(reader, no)
        last = next(
            (last for part, last in zip(shares, reaches(shares), strict=True) if part.session_no == session_no), None
        ) or 0
        # What a nearer branch shows is that one's.
        shown = max((one.last for one in found if one.session_no == session_no), default=0)
        if last > shown:
            found.append(Kept(session_no, shown + 1, last, no, branch_id))
    return tuple(found)


def edits_of(reader: Reader, kept: Kept) -> list[Edit]:
    """The edits in effect for a run, as numbers of its session: those made to the branch, and what it took over."""
    found: list[Edit] = []
    behind = 0  # what a message's number in the kept session is above its number on this segment's axis
    parts = segments(reader, kept.branch_no)
    start = next(number for number, part in enumerate(parts) if part.session_no == kept.session_no)
    for part in parts[start:]:
        bound = 2**63 - 1 if part.upto_edit is None else part.upto_edit
        for first, last, action, edit in reader.rows(
            "SELECT from_seq, to_seq, action, id FROM view_edits e WHERE session_no = ?1 AND id <= ?2"
            " AND action <> 'restore'"
            " AND NOT EXISTS (SELECT 1 FROM view_edits r WHERE r.undoes = e.id AND r.id <= ?2)",
            (part.session_no, bound),
        ):
            clipped = max(first + behind, kept.first), min(last + behind, kept.last)
            if clipped[0] <= clipped[1]:
                found.append((*clipped, action, edit))
        behind += part.upto_seq or 0
    return found
