"""What routing asks of the table of sessions: whether a session can be bound, continued, and what its conversation is.

Invariant: only reads, by id, in the caller's transaction. Errors are those that sessions themselves raise.

Not for: making or changing sessions. A foreign key from a routing entry to its session was rejected: a deleted session
would take the chat's entry along, and with it its generation and its bot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.errors import InvalidInput, SessionDeleted, SessionNotFound, SessionReplaced

if TYPE_CHECKING:
    from hermes_state.engine import Reader

# What a deletion has left (see conversation/session_rows.py) is nobody's session.
THERE = (
    "id = ? AND NOT (hidden = 1 AND active_at = 0"
    " AND coalesce(end_reason, '') IN ('being_deleted', 'kept_for_branches'))"
)
_UP = f"""
WITH RECURSIVE up (no, step) AS (
    SELECT no, 0 FROM sessions WHERE {THERE}
    UNION SELECT s.parent_no, step + 1 FROM up JOIN sessions s ON s.no = up.no
        WHERE s.relation = 'continuation' AND s.parent_no IS NOT NULL AND step < 10000
)
SELECT s.id FROM up JOIN sessions s ON s.no = up.no ORDER BY up.step
"""


def refuse_unusable(reader: Reader, session_id: str) -> None:
    """Raises `SessionNotFound`, `SessionDeleted`, or `SessionReplaced` for a session that no chat can go on in."""
    row = reader.row(f"SELECT state FROM sessions WHERE {THERE}", (session_id,))
    if row is None:
        raise missing(reader, session_id)
    if row[0] == "replaced":
        raise SessionReplaced(
            f"Session {session_id!r} of {reader.path} was compressed and goes on as another one.",
            hint="Use store.sessions.tip(session_id).", path=reader.path, session_id=session_id, tip_id=None,
        )


def conversation(reader: Reader, session_id: str) -> list[str]:
    """The session and those that it continues, up to the first of its conversation. Raises as `refuse_unusable`."""
    found = [str(one) for (one,) in reader.rows(_UP, (session_id,))]
    if not found:
        raise missing(reader, session_id)
    return list(dict.fromkeys(found))


def refuse_other_conversation(reader: Reader, session_id: str, before: str) -> None:
    """Raises `InvalidInput` when `session_id` does not continue `before`."""
    if before not in conversation(reader, session_id):
        raise InvalidInput(
            f"Session {session_id!r} of {reader.path} does not continue {before!r}.",
            hint="Another conversation is a reset.", argument="session_id", path=reader.path, session_id=session_id,
        )


def had_messages(reader: Reader, session_id: str) -> bool:
    """Whether the session has any message of its own."""
    return reader.row(
        "SELECT 1 FROM sessions s JOIN messages m ON m.session_no = s.no WHERE s.id = ? LIMIT 1", (session_id,)
    ) is not None


def missing(reader: Reader, session_id: str) -> SessionNotFound | SessionDeleted:
    """The error for an id without a session."""
    buried = reader.row("SELECT made_at FROM tombstones WHERE kind = 'session' AND key = ?", (session_id,))
    if buried is None:
        return SessionNotFound(
            f"There is no session {session_id!r:.300} in {reader.path}.",
            hint="Check the id and the store: `hermes-state sessions list` shows what is here.",
            path=reader.path, session_id=session_id,
        )
    return SessionDeleted(
        f"Session {session_id!r} of {reader.path} was deleted.",
        hint="Make a new session and reset the routing entry to it.",
        path=reader.path, session_id=session_id, deleted_at=buried[0],
    )
