"""Going on in a child session after a compaction, for callers that want a session a segment.

Invariant: one transaction. The parent is replaced, the title moves, and the child is seen just as the parent was:
through the same generation and with the same tail. No message is copied: the child shares its parent's, as a branch
does, and what is said from then on is its own.

Not for: compacting (a session without a generation is rotated with its whole history). Copying the tail into the child
was rejected: search and counts then have it twice, and a kill in between left a child without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.compaction.generations.heads import take_over
from hermes_state.conversation import creation
from hermes_state.conversation.session_rows import valid_id, wall_time

if TYPE_CHECKING:
    from hermes_state.engine import Transaction
    from hermes_state.engine.core import Core


def rotate(core: Core, session_id: str, new_id: str | None = None) -> str:
    """Let a new session take over, seen as this one is; returns its id. Committed at "power".

    Raises `SessionReplaced` (another process was faster), `Refused` (it has ended), `SessionExists`, `Entombed`,
    `SessionNotFound`, `SessionDeleted`, `InvalidInput`.
    """
    if new_id is not None:
        valid_id(new_id)

    def work(tx: Transaction) -> str:
        at = wall_time(core.clock)
        child, child_id = creation.continue_session(tx, session_id, at=at, new_id=new_id, shares=True)
        (parent,) = tx.rows("SELECT parent_no FROM sessions WHERE no = ?", (child,))[0]
        take_over(tx, child, parent)
        return child_id

    return core.write(work, durability="power")
