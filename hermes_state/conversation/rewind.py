"""Taking back what was said, and taking that back.

Invariant: a rewind is one row of view_edits that hides a range, whatever the number of messages; a restore is one row
that undoes it. No message is touched. A restore gives back what its rewind hid, and nothing that a compaction hides.

Not for: deleting (see `single_deletes`). Flipping a flag on each message was rejected: 100 rows cost 1.9 MB of writes
in hermes-agent 0.19.
"""

from __future__ import annotations

from hermes_state.changes import record
from hermes_state.conversation import history
from hermes_state.conversation.lineage import segments
from hermes_state.conversation.records import Rewound
from hermes_state.conversation.session_rows import valid_number, writable_no
from hermes_state.conversation.view import view_of
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import InvalidInput, NotFound


def rewind(tx: Transaction, session_id: str, message_id: int, *, reason: str | None, at: float) -> Rewound:
    """Hide a user message and all that follows. See `Messages.rewind`."""
    no, message_id = writable_no(tx, session_id), valid_number("message_id", message_id)
    view = view_of(tx, segments(tx, no))
    found = tx.row("SELECT session_no, seq, role FROM messages WHERE id = ?", (message_id,))
    part = found and next(
        (p for p in view.parts if p.session_no == found[0] and p.first <= found[1] + p.offset <= p.last), None
    )
    if not found or not part:
        raise NotFound(
            f"Message {message_id} is not in session {session_id!r} of {tx.path}.",
            hint="Rewind to a message of the session's own history.", path=tx.path, session_id=session_id,
            message_id=message_id,
        )
    if found[2] != "user":
        raise InvalidInput(
            f"Message {message_id} of session {session_id!r} in {tx.path} is of role {found[2]}.",
            hint="A conversation is rewound to a user message, so that no call is left without its result.",
            path=tx.path, session_id=session_id, message_id=message_id, role=found[2],
        )
    first = found[1] + part.offset
    newest = tx.rows("SELECT max(seq) FROM messages WHERE session_no = ?", (no,))[0][0] or 0
    runs = history.runs_of(tx, no, chain=False, include_rewound=False)
    hidden = history.count(tx, history.from_position(runs, first))
    edit_id = None
    if hidden:
        tx.execute(
            "INSERT INTO view_edits (session_no, action, from_seq, to_seq, made_at, reason)"
            " VALUES (?, 'rewind', ?, ?, ?, ?)",
            (no, first, max(newest, first), at, reason),
        )
        edit_id = tx.last_insert_rowid()
        record(tx, "view_edits", session_id, "insert", at)
    # No body is needed for that, so a damaged one is not in the way.
    return Rewound(
        edit_id=edit_id, hidden=hidden, target=history.one(tx, message_id, or_preview=True),
        head_id=history.newest_id(tx, history.runs_of(tx, no, chain=False, include_rewound=False)),
    )


def restore(tx: Transaction, session_id: str, edit_id: int | None, *, at: float) -> int:
    """Undo a rewind; returns how many messages are to be seen again. See `Messages.restore`."""
    no = writable_no(tx, session_id)
    if edit_id is None:
        row = tx.row(
            "SELECT id, action, NULL FROM view_edits e WHERE session_no = ? AND action = 'rewind'"
            " AND NOT EXISTS (SELECT 1 FROM view_edits r WHERE r.undoes = e.id) ORDER BY id DESC LIMIT 1",
            (no,),
        )
        if row is None:
            return 0
    else:
        row = tx.row(
            "SELECT id, action, (SELECT r.id FROM view_edits r WHERE r.undoes = e.id) FROM view_edits e"
            " WHERE session_no = ? AND id = ?",
            (no, valid_number("edit_id", edit_id)),
        )
        if row is None:
            raise NotFound(
                f"Session {session_id!r} of {tx.path} has no edit {edit_id}.", hint="Use the edit_id that rewind gave.",
                path=tx.path, session_id=session_id, edit_id=edit_id,
            )
        if row[1] != "rewind":
            raise InvalidInput(
                f"Edit {edit_id} of session {session_id!r} in {tx.path} is a {row[1]}, not a rewind.",
                hint="Only a rewind can be restored.", path=tx.path, session_id=session_id, edit_id=edit_id,
            )
        if row[2] is not None:
            return 0  # restored before
    before = history.count(tx, history.runs_of(tx, no, chain=False, include_rewound=False))
    tx.execute(
        "INSERT INTO view_edits (session_no, action, undoes, made_at) VALUES (?, 'restore', ?, ?)", (no, row[0], at)
    )
    record(tx, "view_edits", session_id, "insert", at)
    return history.count(tx, history.runs_of(tx, no, chain=False, include_rewound=False)) - before
