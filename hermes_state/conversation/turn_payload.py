"""A turn as the spool keeps it, and its way into the store.

Invariant: what comes out of a payload is stored exactly as `messages.append_many` would have stored the rows when they
were given, their times included; every row has a key, the caller's or one of the turn's, so that storing a turn twice
stores it once.

Not for: deciding when a turn is spooled (see `spooling`). Keeping rows as the caller gave them was rejected: bytes and
numbers would come back as something else.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_state import json_values
from hermes_state.conversation import bodies, creation
from hermes_state.conversation.append import insert_many, prepare, touch
from hermes_state.conversation.fields import Encoded, encode, refuse_reserved
from hermes_state.conversation.session_rows import required_text, session_no, valid_id
from hermes_state.errors import InvalidInput, SessionReplaced

if TYPE_CHECKING:
    from hermes_state.engine.transaction import Transaction

_MOST_TIPS = 100  # continuations that are followed from a session that was taken over


def turn_payload(
    now: float, session_id: str, rows: Sequence[Mapping[str, Any]], *, source: str | None, model: str | None,
    key: str | None,
) -> dict[str, Any]:
    """A turn as the spool keeps it: checked, timed and keyed. Raises `InvalidInput`."""
    valid_id(session_id)
    turn_key = secrets.token_hex(16) if key is None else required_text("key", key)
    kept = []
    for number, row in enumerate(rows):
        try:
            refuse_reserved(row.get("extra"))
            new = encode(now, **row)
        except (InvalidInput, TypeError) as error:
            told = error.message if isinstance(error, InvalidInput) else f"{error}."
            raise InvalidInput(f"Row {number}: {told}", row=number) from error
        kept.append(_to_json(new, new.client_key or f"turn:{turn_key}:{number}"))
    if not kept:
        raise InvalidInput("A turn has at least one message.", argument="rows")
    session = None if source is None else {"source": required_text("source", source), "model": model}
    return {"session_id": session_id, "session": session, "rows": kept}


def apply_turn(tx: Transaction, turn: Mapping[str, Any]) -> list[int]:
    """Put a turn into the store; returns the ids of its messages, those that came before included."""
    session_id, session = turn["session_id"], turn["session"]
    if session is not None:
        setup = creation.Setup(model=session["model"]).checked()
        wanted = creation.Wanted(
            id=session_id, source=session["source"], setup=setup, place={}, started_at=None, parent_id=None,
            relation=None,
        )
        creation.make_sure(tx, wanted, turn["rows"][0]["at"])
    encoded = [_from_json(row) for row in turn["rows"]]
    for _ in range(_MOST_TIPS):
        no = session_no(tx, session_id)
        prepared = [
            prepare(no, new, bodies.prepare(new.content_type, new.raw, new.content, compress=False)
                    if new.content_type != "number" and len(new.content) >= bodies.COMPRESS_BYTES else None)
            for new in encoded
        ]
        try:
            return insert_many(tx, session_id, no, prepared)
        except SessionReplaced as gone:
            # The conversation went on under another id while the turn waited; it belongs at its end.
            session_id = gone.facts["tip_id"]
    raise SessionReplaced(f"Session {turn['session_id']} was taken over more than {_MOST_TIPS} times.")


def settled(tx: Transaction, result: Any) -> Any:
    """`result`, with a page written, so that the commit at "power" also syncs what was there already."""
    touch(tx)
    return result


def _to_json(new: Encoded, client_key: str) -> dict[str, Any]:
    content: Any = new.raw
    if isinstance(content, bytes):
        content = base64.b64encode(content).decode("ascii")
    row = {
        "role": new.role, "content_type": new.content_type, "content": content, "tool_name": new.tool_name,
        "tool_call_id": new.tool_call_id, "tool_calls": new.tool_calls, "finish_reason": new.finish_reason,
        "token_count": new.token_count, "reasoning": new.reasoning, "platform_message_id": new.platform_message_id,
        "client_key": client_key, "at": new.at, "extra": new.extra,
    }
    return {name: value for name, value in row.items() if value is not None}


def _from_json(row: Mapping[str, Any]) -> Encoded:
    fields = {name: value for name, value in row.items() if name not in ("content_type", "content", "extra")}
    content, kind = row.get("content"), row.get("content_type")
    if kind == "bytes":
        content = base64.b64decode(content)  # type: ignore[arg-type]
    elif kind == "json":
        content = json_values.read(content)  # type: ignore[arg-type]
    extra = row.get("extra")
    return encode(row["at"], content=content, extra=None if extra is None else json_values.read(extra), **fields)
