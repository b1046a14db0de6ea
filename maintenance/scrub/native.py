"""Messages and shared texts of a native store: what is replaced gets a new check and a new hash.

Invariant: a message keeps its id, its place in the session, its time and its tool-call count; its row is taken out and
put back in one transaction with the check that belongs to its new content, so that every reader and the doctor agree.
A body or text that nobody uses any more goes in the same transaction.

Not for: what the view of a session is. Updating a message in place was rejected: messages are immutable, and a trigger
keeps it so for everybody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state import changes
from hermes_state.conversation import bodies, shared_texts
from hermes_state.conversation.row_check import row_check

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from maintenance.scrub.patterns import Redactor

ROWS_A_STEP = 100
# The texts of a message, in the order of `_MESSAGE` after role.
_TEXTS = (
    "tool_name", "tool_call_id", "tool_calls", "finish_reason", "reasoning", "platform_message_id", "client_key",
    "extra",
)
_FIELDS = ("content_type", "content", "body_no", "id", "session_no", "role", "token_count", "created_at", *_TEXTS)
_MESSAGES = f"SELECT {', '.join(_FIELDS)} FROM messages WHERE id > ? ORDER BY id LIMIT {ROWS_A_STEP}"
_SETTINGS = ("prompt_no", "tools_no", "model_config_no")


def messages(reader: Reader, redactor: Redactor) -> Iterator[list[dict[str, Any]]]:
    """The messages with secrets in them as they should become, in portions."""
    last = 0
    while True:
        rows = reader.rows(_MESSAGES, (last,))
        if not rows:
            return
        last = rows[-1][3]
        portion = []
        for row, raw in zip(rows, bodies.read_contents(reader, rows), strict=True):
            new = dict(zip(_FIELDS, row, strict=True)) | {"raw": redactor.cell(raw)}
            new |= {name: redactor.cell(new[name]) for name in _TEXTS}
            if isinstance(new["raw"], str) and new["content_type"] == "number":
                new["content_type"] = "text"
            if new["raw"] != raw or any(new[name] != row[_FIELDS.index(name)] for name in _TEXTS):
                portion.append(new)
        if portion:
            yield portion


def replace_messages(tx: Transaction, portion: Sequence[dict[str, Any]], at: float) -> int:
    """Write messages with their new content; returns how many."""
    columns = [name for (name,) in tx.rows("SELECT name FROM pragma_table_info('messages')")]
    old_bodies = set()
    for new in portion:
        (old,) = tx.rows(f"SELECT {', '.join(columns)} FROM messages WHERE id = ?", (new["id"],))
        row = dict(zip(columns, old, strict=True))
        old_bodies.add(row["body_no"])
        raw, kind = new["raw"], new["content_type"]
        frame = None
        if kind not in (None, "number"):
            encoded = raw.encode("utf-8") if isinstance(raw, str) else raw
            if len(encoded) >= bodies.COMPRESS_BYTES:
                was_compressed = row["body_no"] is not None and tx.rows(
                    "SELECT codec FROM bodies WHERE no = ?", (row["body_no"],)
                )[0][0] == "zstd"
                frame = bodies.prepare(kind, raw, encoded, compress=was_compressed)
        body_no = None if frame is None else bodies.place(tx, frame)
        row |= {name: new[name] for name in _TEXTS} | {
            "content_type": kind, "body_no": body_no,
            "content": raw if frame is None or body_no is None else frame.preview,
            "row_check": row_check(
                row["session_no"], row["role"], kind, raw, new["tool_name"], new["tool_call_id"], new["tool_calls"],
                new["finish_reason"], row["token_count"], new["reasoning"], new["platform_message_id"],
                new["client_key"], row["created_at"], new["extra"],
            ),
        }
        tx.execute("DELETE FROM messages WHERE id = ?", (new["id"],))
        marks = ", ".join("?" * len(columns))
        tx.execute(f"INSERT INTO messages ({', '.join(columns)}) VALUES ({marks})", [row[name] for name in columns])
        changes.record(tx, "messages", str(new["id"]), "update", at)
    bodies.free(tx, (no for no in old_bodies if no is not None))
    return len(portion)


def texts(reader: Reader, redactor: Redactor) -> Iterator[tuple[int, str]]:
    """The shared texts with secrets in them: number and new text."""
    for (no,) in reader.rows("SELECT no FROM shared_texts ORDER BY no"):
        text = shared_texts.text_of(reader, no)
        if text is not None and (new := redactor.text(text)) != text:
            yield no, new


def replace_text(tx: Transaction, no: int, new: str) -> None:
    """Let every session that uses text `no` use `new`."""
    number = shared_texts.intern(tx, new)
    for column in _SETTINGS:
        tx.execute(f"UPDATE sessions SET {column} = ? WHERE {column} = ?", (number, no))
    tx.execute("DELETE FROM shared_texts WHERE no = ?", (no,))


def streams(reader: Reader, redactor: Redactor) -> Iterator[tuple[int, str, int, int, str]]:
    """Texts that are still being received, joined: stream, field, part, its last frame, and the new text."""
    wholes: dict[tuple[int, str, int], tuple[str, int]] = {}
    for stream, number, operation, field, part, text in reader.iterate(
        "SELECT stream_id, number, operation, field, part, text FROM stream_frames ORDER BY stream_id, number"
    ):
        before = "" if operation == "replace" else wholes.get((stream, field, part), ("", 0))[0]
        wholes[stream, field, part] = before + text, number
    for (stream, field, part), (text, last) in wholes.items():
        if (new := redactor.text(text)) != text:
            yield stream, field, part, last, new


def replace_stream(tx: Transaction, stream: int, field: str, part: int, last: int, new: str) -> None:
    """Let one frame that replaces stand for all frames of this text."""
    tx.execute(
        "DELETE FROM stream_frames WHERE stream_id = ? AND field = ? AND part = ?", (stream, field, part)
    )
    tx.execute(
        "INSERT INTO stream_frames (stream_id, number, operation, field, part, text)"
        " VALUES (?, ?, 'replace', ?, ?, ?)",
        (stream, last, field, part, new),
    )
