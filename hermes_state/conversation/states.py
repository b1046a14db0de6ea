"""The states of a session and every change between them.

    open -> ended       end, promote_to_reset       the first reason stays
    open -> replaced    creation.continue_session   together with the new session
    ended -> open       reopen                      by recovery only from a reason that allows it
    replaced -> open    reopen                      only when no continuation is there any more
    any -> gone         removal.delete              leaves an entry in the ledger of deletions and a tombstone

Invariant: no other statement changes a state. Not for: deciding when. Ending a session again with a better reason was
rejected: the reason says what happened first, and only a reset may take the place of an end that nobody asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state import changes
from hermes_state.conversation.lineage import continuations
from hermes_state.conversation.session_rows import replaced, session_no
from hermes_state.errors import InvalidInput, Refused

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

# Ends that a program made without being asked by a person: recovery may take the session up again.
RECOVERABLE = frozenset({"agent_close", "ws_orphan_reap", "superseded_by_resume", "startup_orphan_reap"})
# Ends that a person or a rule meant as a new beginning.
RESET = frozenset({"session_reset", "session_switch", "idle", "daily", "suspended", "resume_pending_expired"})


def end(tx: Transaction, session_id: str, reason: str, at: float) -> bool:
    """End an open session; False when it is not open. Raises as `session_no`."""
    ended = tx.execute(
        "UPDATE sessions SET state = 'ended', ended_at = ?, end_reason = ? WHERE no = ? AND state = 'open'",
        (at, reason, session_no(tx, session_id)),
    )
    if ended:
        changes.record(tx, "sessions", session_id, "update", at)
    return bool(ended)


def promote_to_reset(tx: Transaction, session_id: str, reason: str, at: float) -> bool:
    """End as reset what is open or was closed by a program; False for everything else. Raises `InvalidInput`."""
    if not isinstance(reason, str) or reason not in RESET:
        raise InvalidInput(f"{reason!r} is no reset; those are {', '.join(sorted(RESET))}.", argument="reason")
    no = session_no(tx, session_id)
    state, why = tx.rows("SELECT state, end_reason FROM sessions WHERE no = ?", (no,))[0]
    if state == "replaced" or (state == "ended" and why not in RECOVERABLE):
        return False
    tx.execute(
        "UPDATE sessions SET state = 'ended', ended_at = ?, end_reason = ? WHERE no = ?", (at, reason, no)
    )
    changes.record(tx, "sessions", session_id, "update", at)
    return True


def reopen(tx: Transaction, session_id: str, at: float, *, by_recovery: bool) -> int:
    """Make a session open again and return its number. Raises `SessionReplaced`, `Refused`, and as `session_no`."""
    no = session_no(tx, session_id)
    state, why = tx.rows("SELECT state, end_reason FROM sessions WHERE no = ?", (no,))[0]
    if state == "open":
        return no
    if state == "replaced" and continuations(tx, no):
        raise replaced(tx, session_id, no)
    if by_recovery and why not in RECOVERABLE:
        raise Refused(
            f"Session {session_id!r} of {tx.path} ended with {why!r}; recovery does not take it up again.",
            hint="Start a new session, or reopen this one because a person asked for it.",
            path=tx.path, session_id=session_id, end_reason=why,
        )
    tx.execute("UPDATE sessions SET state = 'open', ended_at = NULL, end_reason = NULL WHERE no = ?", (no,))
    changes.record(tx, "sessions", session_id, "update", at)
    return no
