"""What a native store needs beyond its rows: bodies that are whole, checks that match, an identity of this moment.

Invariant: after this every message of the file matches its check. One whose body is lost keeps the preview that its
row has, says so in `extra`, and gets a check of what it says now; a preview that is not the beginning of its body is
made of that anew; one whose own content is not what was written is kept apart. The store keeps its id and gets a new
incarnation, so that search files and caches made of the old content start anew.

Not for: foreign files. Leaving messages without body as they were was rejected: every reading of them would fail.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

from hermes_state import __version__
from hermes_state.clock import Clock
from hermes_state.conversation.row_check import row_check
from hermes_state.engine.schema import known_migrations
from maintenance.dialects.native.checks import failed_and_previews
from maintenance.recovery.filling import Filler, TableFiller
from maintenance.recovery.judging import CHECK_FAILED

AT_ONCE = 500
BODY_LOST = "its body is lost; the preview is kept"
_CHECKED = (
    "session_no", "role", "content_type", "content", "tool_name", "tool_call_id", "tool_calls", "finish_reason",
    "token_count", "reasoning", "platform_message_id", "client_key", "created_at", "extra",
)


def check_messages(
    filler: Filler, messages: TableFiller, *, advance: Callable[[int], None] = lambda _rows: None
) -> int:
    """Check every message against its check; how many match."""
    last, good = 0, 0
    first = filler.db.row("SELECT min(id) FROM messages")
    last = int(first[0]) - 1 if first and first[0] is not None else 0
    with filler.batches():
        while ids := [int(row[0]) for row in filler.db.rows(
            f"SELECT id FROM messages WHERE id > ? ORDER BY id LIMIT {AT_ONCE}", (last,)
        )]:
            failed, previews = failed_and_previews(filler.db, ids)
            for number in failed:
                _mend(filler, messages, number)
            for number, preview in previews.items():
                filler.db.execute("UPDATE messages SET content = ? WHERE id = ?", (preview, number))
                filler.decisions.append({"what": "preview_mended", "table": "messages", "key": number})
            for number in set(ids) - set(failed):
                doubt = filler.notes.doubt(messages.number, number)
                if doubt is not None and doubt[0] == BODY_LOST:
                    continue  # mended by a run that was killed: the check is of what is left
                good += 1
                if doubt is not None:
                    filler.notes.proven(messages.number, number)
            last = ids[-1]
            filler.tick(0)
            advance(len(ids))
    return good


def _mend(filler: Filler, messages: TableFiller, number: int) -> None:
    cells = messages.current(number)
    if cells is None:
        return
    row = dict(zip(messages.table.names, cells, strict=True))
    if row["body_no"] is None:
        messages.keep_apart(number, cells, CHECK_FAILED, "checks")
        messages.remove(number, cells)
        return
    if _body_is_there(filler, row["body_no"]):
        # The body is whole by its own hash: it is the row that is not what was written.
        messages.keep_apart(number, cells, CHECK_FAILED, "checks")
        messages.remove(number, cells)
        return
    preview = row["content"] if isinstance(row["content"], str) else ""
    row |= {
        "content": preview, "content_type": "text", "body_no": None,
        "extra": _with_note(row["extra"], {"recovered": {"body": "lost", "content_type": row["content_type"]}}),
    }
    check = row_check(*(row[name] for name in _CHECKED))  # type: ignore[arg-type]
    filler.db.execute(
        "UPDATE messages SET content = ?, content_type = 'text', body_no = NULL, extra = ?, row_check = ? WHERE id = ?",
        (preview, row["extra"], check, number),
    )
    filler.notes.uncertain(messages.number, number, BODY_LOST, 0)
    filler.decisions.append({"what": "body_lost", "table": "messages", "key": number, "kept": "preview"})


def _body_is_there(filler: Filler, number: Any) -> bool:
    return filler.db.row("SELECT 1 FROM bodies WHERE no = ?", (number,)) is not None


def _with_note(extra: Any, note: dict[str, Any]) -> str:
    try:
        found = json.loads(extra) if isinstance(extra, str) else {}
    except ValueError:
        found = {"unreadable": extra}
    return json.dumps((found if isinstance(found, dict) else {"was": found}) | note, ensure_ascii=False)


def give_identity(filler: Filler, clock: Clock) -> None:
    """The one row of `store`, with a new incarnation, floors above every id, and the list of migrations."""
    db = filler.db
    with filler.mending("identity") as due:
        if not due:
            return
        row = db.row("SELECT store_id, created_at FROM store")
        if row is None:
            db.execute(
                "INSERT INTO store (one, store_id, incarnation, created_at) VALUES (1, ?, ?, ?)",
                (uuid.uuid4().hex, uuid.uuid4().hex, clock.now()),
            )
            filler.decisions.append({"what": "identity_made", "why": "the identity of the store could not be read"})
        else:
            db.execute("UPDATE store SET incarnation = ?", (uuid.uuid4().hex,))
        _floors(filler)
        have = {int(number) for (number,) in db.rows("SELECT number FROM migrations")}
        missing = [step for step in known_migrations() if step.number not in have]
        for step in missing:
            db.execute(
                "INSERT INTO migrations (number, name, sha256, applied_at, applied_by) VALUES (?, ?, ?, ?, ?)",
                (step.number, step.name, step.sha256, clock.now(), __version__),
            )
        if missing:
            filler.decisions.append({"what": "migrations_noted", "numbers": [step.number for step in missing]})


def _floors(filler: Filler) -> None:
    """Ids of what is lost or was kept apart are never given again."""
    db = filler.db
    (highest,) = db.rows("SELECT coalesce(max(id), 0) FROM messages")[0]
    given = max(0, int(highest), filler.notes.highest(filler.number("messages")))
    db.execute("UPDATE store SET message_floor = max(message_floor, ?)", (given,))
    # An edit may hide numbers whose messages are lost: a new message must not come under it.
    newest = "(SELECT max(to_seq) FROM view_edits WHERE session_no = sessions.no)"
    below = f"{newest} > max(seq_floor, coalesce((SELECT max(seq) FROM messages WHERE session_no = sessions.no), 0))"
    raised = [int(row[0]) for row in db.rows(f"SELECT no FROM sessions WHERE {below}")]
    db.execute(f"UPDATE sessions SET seq_floor = {newest} WHERE {below}")
    filler.decisions += [{"what": "floor_raised", "table": "sessions", "key": number} for number in raised]
