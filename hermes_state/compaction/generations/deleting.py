"""What a deletion of messages and sessions does to generations, in the deletion's own transaction.

Invariant: no text of a deleted message stays in a summary. A generation that covers it, and whatever was made from
that one, is superseded and blanked; each head that was one of them moves to the nearest before. Of a deleted session
only those generations stay through which a branch is seen.

Not for: deciding what is deleted (see conversation/single_deletes.py and removal.py). Making the summary anew was
rejected: a deletion must not wait for a model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from hermes_state.changes import record
from hermes_state.compaction.generations import effective, rows
from hermes_state.compaction.generations.records import Generation, error_json
from hermes_state.compaction.generations.states import NEXT, Event

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

# The sessions that show message ?2 of session ?1, with its position in each: itself, and what shares it.
_SHOWING = """
WITH RECURSIVE showing (no, at, step) AS (
    SELECT ?1, ?2, 0
    UNION SELECT c.no, at - c.branched_at_seq, step + 1 FROM showing JOIN sessions c ON c.parent_no = showing.no
        WHERE c.branched_at_seq >= at AND c.relation IN ('branch', 'continuation') AND step < 1000
)
SELECT no, at FROM showing
"""
# Whatever was made from the rows of ?1, and they themselves.
_MADE_FROM = """
WITH RECURSIVE made (id) AS (
    SELECT value FROM json_each(?1) UNION SELECT c.id FROM made JOIN compactions c ON c.parent_id = made.id
)
SELECT id FROM made ORDER BY id
"""
# Those of session ?1 through which no session is seen, now or after going back.
_DROP = """
DELETE FROM compactions WHERE session_no = ?1 AND id NOT IN (
    WITH RECURSIVE used (id) AS (
        SELECT compaction_id FROM compaction_heads WHERE compaction_id IS NOT NULL
        UNION SELECT c.parent_id FROM used JOIN compactions c ON c.id = used.id WHERE c.parent_id IS NOT NULL
    ) SELECT id FROM used
)
"""


def messages_deleted(tx: Transaction, deleted: Iterable[tuple[int, int]], at: float) -> int:
    """After messages `(session number, seq)` were deleted: blank what covers them. Returns how many generations."""
    if tx.row("SELECT 1 FROM compactions LIMIT 1") is None:
        return 0
    covering: set[int] = set()
    places: dict[int, set[int]] = {}
    for session_no, seq in deleted:
        for no, position in tx.rows(_SHOWING, (session_no, seq)):
            places.setdefault(no, set()).add(position)
    for no, positions in places.items():
        story = effective.story_of(tx, no)
        for one in rows.of_session(tx, no):
            if _covers(tx, story, one, positions):
                covering.add(one.id)
            for position in positions:
                tx.execute("DELETE FROM compaction_clips WHERE compaction_id = ? AND position = ?", (one.id, position))
    blanked = [id for (id,) in tx.rows(_MADE_FROM, (rows.positions_json(list(covering)),))]
    for id in blanked:
        _blank(tx, id, at)
    _move_heads_off(tx, set(blanked), at)
    return len(blanked)


def drop_unused(tx: Transaction, no: int) -> None:
    """After a session or a branch of it was taken out: remove the generations through which nobody is seen now."""
    tx.execute(_DROP, (no,))


def _covers(tx: Transaction, story: effective.Story, one: Generation, positions: Collection[int]) -> bool:
    """Whether the summary of a generation was made of one of these positions; a running one's is being made."""
    below = {position for position in positions if position < one.cut_at and position not in one.anchors}
    if not below:
        return False
    then = effective.view_at(tx, story, one.edit_mark)
    return any(then.hidden(position) is None for position in below)


def _blank(tx: Transaction, id: int, at: float) -> None:
    one = rows.one(tx, id)
    assert one is not None  # found in this transaction
    state = NEXT[one.state, Event.MESSAGE_DELETED]
    error = None
    if state != one.state:
        error = error_json("message_deleted", f"A message that generation {one.generation} covers was deleted.")
    tx.execute(
        "UPDATE compactions SET state = ?, summary = NULL, error = coalesce(?, error),"
        " ended_at = coalesce(ended_at, ?) WHERE id = ?",
        (state, error, at, id),
    )
    tx.execute("DELETE FROM compaction_clips WHERE compaction_id = ?", (id,))


def _move_heads_off(tx: Transaction, blanked: Collection[int], at: float) -> None:
    for no, session_id, id in tx.rows(
        "SELECT h.session_no, s.id, h.compaction_id FROM compaction_heads h JOIN sessions s ON s.no = h.session_no"
        " WHERE h.compaction_id IN (SELECT value FROM json_each(?))", (rows.positions_json(list(blanked)),)
    ):
        nearest = next((one.id for one in rows.chain(tx, id) if one.id not in blanked and one.state == "done"), None)
        tx.execute(
            "UPDATE compaction_heads SET compaction_id = ?, moves = moves + 1 WHERE session_no = ?", (nearest, no)
        )
        record(tx, "compaction_heads", session_id, "update", at)
