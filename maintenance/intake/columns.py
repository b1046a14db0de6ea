"""One record of an export as a session or a message: known names into columns, everything else into `extra`.

Invariant: nothing of a record is left out but what follows from the rows themselves (counters, positions). A value that
its column cannot hold is kept in `extra` under `$original`, as adoption does, so that a later export gives it back.

Not for: cells of a database file with their exact types (`maintenance.interop.adopt`).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hermes_state.conversation.fields import LATEST_TIME, ROLES
from maintenance.intake.model import Hiding, IncomingMessage, IncomingSession, IncomingUsage
from maintenance.intake.transcript import whole_number
from maintenance.interop.fields import (
    COSTS,
    MESSAGE_TEXTS,
    ORIGINAL,
    RELEASE_ZEROES,
    ROUTE_TEXTS,
    SESSION_TEXTS,
    TITLE_SOURCES,
    TOTAL_COUNTS,
)
from maintenance.lineage import Kind

RELATIONS = frozenset(kind.value for kind in Kind if kind is not Kind.ROOT)
NAMESPACE = "hermes:"  # what the keys of such messages begin with
# What follows from the rows, or is told by them.
_DERIVED = frozenset({
    "messages", "message_count", "tool_call_count", "last_activity_at", "system_prompt_hash", "deleted_messages",
    "seq_floor", "lineage_session_ids", "segments",
})
_INTEGERS = range(-(2**63), 2**63)


class Taken:
    """A record of which one value after the other is taken; what is left goes into `extra`."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._rest = dict(record)
        kept = self._rest.pop(ORIGINAL, None)
        self.original: dict[str, Any] = dict(kept) if isinstance(kept, dict) else {}

    def drop(self, *names: str) -> None:
        """Values that are not kept."""
        for name in names:
            self._rest.pop(name, None)

    def value(self, name: str) -> Any:
        """A value of any kind."""
        return self._rest.pop(name, None)

    def text(self, name: str) -> str | None:
        """A text; anything else but nothing is kept as it was."""
        value = self._rest.pop(name, None)
        if value is None or isinstance(value, str):
            return value
        self.original[name] = value
        return None

    def time(self, name: str) -> float | None:
        """A time that a store can hold."""
        value = self._rest.pop(name, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < LATEST_TIME:
            self.original[name] = value
            return None
        return float(value)

    def flag(self, name: str) -> bool:
        """A yes or no."""
        value = self._rest.pop(name, None)
        if value in (None, 0, 1):
            return bool(value)
        self.original[name] = value
        return False

    def number(self, name: str) -> int:
        """A counter."""
        value = self._rest.pop(name, None)
        if value is not None and (not isinstance(value, int) or whole_number(value) != value):
            self.original[name] = value
        return whole_number(value)

    def amount(self, name: str) -> float | None:
        """An amount of money."""
        value = self._rest.pop(name, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.original[name] = value
            return None
        return float(value)

    def extra(self) -> dict[str, Any]:
        """What is left, without what a release has in every row."""
        rest = {
            name: value for name, value in self._rest.items()
            if value is not None and not (name in RELEASE_ZEROES and value == 0)
        }
        return rest | ({ORIGINAL: self.original} if self.original else {})


def session_of(record: Mapping[str, Any], session_id: str, messages: int) -> IncomingSession:
    """A session record; its relation is the record's own, for those that tell it."""
    taken = Taken(record)
    usage, share, replaced, imported = (taken.value(name) for name in ("usage", "branched_at_seq", "state", "import"))
    edit = taken.value("branched_at_edit")
    taken.drop("id", "view_edits", "compactions", *_DERIVED)
    columns: dict[str, Any] = {ours: taken.text(theirs) for theirs, ours in SESSION_TEXTS.items()}
    title_source = taken.text("title_source")
    if title_source is not None and title_source not in TITLE_SOURCES:
        taken.original["title_source"], title_source = title_source, None
    columns |= {
        "title": taken.text("title"), "title_source": title_source, "system_prompt": taken.text("system_prompt"),
        "hidden": int(taken.flag("hidden")), "auto_archived": int(taken.flag("auto_archived")),
        "replaced": replaced == "replaced", "branched_at_seq": share if isinstance(share, int) else None,
        "branched_at_edit": edit if isinstance(edit, int) else None,
    }
    for name in ("tools", "model_config"):
        value = taken.value(name)
        columns[name] = value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    totals: dict[str, Any] = {ours: taken.number(theirs) for theirs, ours in TOTAL_COUNTS.items()}
    totals |= {name: taken.amount(name) for name in COSTS}
    totals |= {ours: taken.text(theirs) for theirs, ours in ROUTE_TEXTS.items()}
    columns["totals"] = totals
    parent, relation = taken.text("parent_session_id"), taken.text("relation")
    session = IncomingSession(
        id=session_id,
        source=taken.text("source") or "unknown",
        started_at=taken.time("started_at") or 0.0,
        ended_at=taken.time("ended_at"),
        end_reason=taken.text("end_reason"),
        parent_id=parent,
        relation=relation if relation in RELATIONS else None,
        archived=taken.flag("archived"),
        pinned=taken.flag("pinned"),
        columns={name: value for name, value in columns.items() if value not in (None, "") or name == "totals"},
        usage=usage_of(usage),
        messages=messages,
    )
    extra = taken.extra()
    if imported is not None:
        extra["import"] = imported
    return replace(session, extra=extra)


def message_of(record: Mapping[str, Any], session_id: str, fallback: str, line: int) -> IncomingMessage:
    """A message record. `fallback` is its key when it has no id."""
    taken = Taken(record)
    number = taken.value("id")
    position = taken.value("seq")
    taken.drop("session_id", "active", "compacted", "compacted_by")
    role = taken.text("role")
    if role not in ROLES:
        taken.original["role"] = role
    calls = _calls(taken)
    tokens = taken.value("token_count")
    if tokens is not None and (type(tokens) is not int or tokens not in _INTEGERS):
        taken.original["token_count"], tokens = tokens, None
    content = taken.value("content")
    texts = {name: taken.text(name) for name in MESSAGE_TEXTS}
    platform = texts.pop("platform_message_id") or None
    at = taken.time("timestamp")
    key = taken.text("client_key") or (f"{NAMESPACE}{number}" if isinstance(number, int) else fallback)
    return IncomingMessage(
        session_id=session_id, key=key, role=role if role in ROLES and role is not None else "system",
        content=_content(content), at=at if at is not None else 0.0, tool_calls=calls, token_count=tokens,
        platform_message_id=platform, extra=taken.extra() or None, line=line, **texts,
        position=position if isinstance(position, int) else 0,
    )


def usage_of(rows: Any) -> tuple[IncomingUsage, ...]:
    """Usage rows of a record; those that are not objects are left out."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        taken = Taken(row)
        values: dict[str, Any] = {ours: taken.text(theirs) or "" for theirs, ours in ROUTE_TEXTS.items()}
        values |= {ours: taken.number(theirs) for theirs, ours in TOTAL_COUNTS.items()}
        values |= {name: taken.amount(name) for name in COSTS}
        values |= {"first_at": taken.time("first_seen"), "last_at": taken.time("last_seen")}
        found.append(IncomingUsage(model=taken.text("model") or "unknown", task=taken.text("task") or "", **values))
    return tuple(found)


def hidden_of(record: Mapping[str, Any]) -> Hiding | None:
    """What hides a message."""
    if record.get("active", 1) != 0:
        return None
    return "compact" if record.get("compacted") == 1 else "rewind"


def _calls(taken: Taken) -> list[Any] | None:
    value = found = taken.value("tool_calls")
    for _ in range(2):  # an old release wrote the JSON of a JSON text
        if isinstance(found, str) and found:
            try:
                found = json.loads(found)
            except (ValueError, RecursionError):
                break
    if isinstance(found, list):
        return found or None
    if value not in (None, ""):
        taken.original["tool_calls"] = value
    return None


def _content(value: Any) -> Any:
    """A record's content; bytes are written as one base64 field."""
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            return value
    return value
