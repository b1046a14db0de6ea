"""Whole rows of a native store for export, in the words of hermes-agent's columns where it has the same thing.

Invariant: nothing of a row is left out: what has no column there keeps its own name, and what was kept in `extra` comes
back under the name it came with, never over a column. A record is plain JSON.

Not for: showing. Exporting our own column names was rejected: every reader of an export, hermes-agent's own import
among them, knows the others.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maintenance.dialects.base import UsageRow
from maintenance.dialects.cells import Blob, key_bytes
from maintenance.dialects.native.compaction_records import compaction_record
from maintenance.dialects.native.compactions import taken_out
from maintenance.dialects.native.inherited import Story, story_ids, story_of
from maintenance.dialects.native.messages import ROWS_AT_ONCE, contents

if TYPE_CHECKING:
    from hermes_state.engine import Reader

# Our column -> the name in a record; those not named here keep theirs.
SESSION_NAMES = {"profile": "profile_name"}
# Columns that are no fact about the session, or are told under another name.
_NOT_TOLD = frozenset(
    {
        *("no", "parent_no", "prompt_no", "tools_no", "model_config_no", "archived_at", "pinned_at", "extra"),
        "active_at",
        *("deleted_messages", "seq_floor"),
    }
)
SHARED = {"prompt_no": "system_prompt", "tools_no": "tools", "model_config_no": "model_config"}
TOTALS = {
    "api_calls": "api_call_count",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "reasoning_tokens": "reasoning_tokens",
    "estimated_cost_usd": "estimated_cost_usd",
    "actual_cost_usd": "actual_cost_usd",
    "provider": "billing_provider",
    "base_url": "billing_base_url",
    "billing_mode": "billing_mode",
}
_MESSAGE = (
    *("id", "seq", "role", "content_type", "content", "body_no", "tool_name", "tool_call_id", "tool_calls"),
    *("finish_reason", "token_count", "reasoning", "platform_message_id", "client_key", "created_at", "extra"),
    "session_no",
)


def session_record(
    reader: Reader, columns: Sequence[str], fields: Mapping[str, str], session_id: str
) -> dict[str, Any] | None:
    """Every fact of one session."""
    from hermes_state.conversation.shared_texts import text_of

    listed = [name for name in columns if name not in _NOT_TOLD]
    told = ", ".join(f"s.{name}" for name in listed)
    shared = [name for name in SHARED if name in columns]
    shared_sql = "".join(f", s.{name}" for name in shared)
    row = reader.row(
        f"SELECT {fields['parent_id']}, {fields['message_count']}, {fields['tool_call_count']},"
        f" {fields['last_activity_at']}, {fields['archived']}, {fields['pinned']}, s.no,"
        f" {'s.extra' if 'extra' in columns else 'NULL'}, {told}{shared_sql}"
        " FROM sessions AS s WHERE s.id = CAST(? AS TEXT)",
        (key_bytes(session_id),),
    )
    if row is None:
        return None
    parent_id, messages, tool_calls, active_at, archived, pinned, session_no, extra = row[:8]
    values = dict(zip(listed, row[8:], strict=False))
    record = {SESSION_NAMES.get(name, name): _json_value(value) for name, value in values.items()}
    record |= {
        "parent_session_id": parent_id,
        "message_count": messages,
        "tool_call_count": tool_calls,
        "last_activity_at": active_at,
        "archived": archived,
        "pinned": pinned,
    }
    for name, number in zip(shared, row[8 + len(listed) :], strict=True):
        record[SHARED[name]] = text_of(reader, number)
    totals = reader.row(f"SELECT {', '.join(TOTALS)} FROM session_totals WHERE session_no = ?", (session_no,))
    record |= dict(zip(TOTALS.values(), totals or (None,) * len(TOTALS), strict=True))
    story = story_of(reader, session_id)
    if story is not None and story.shift:
        # What it inherited is its own in a record: the session that it branched off is gone.
        record |= {"branched_at_seq": None, "branched_at_edit": None}
        record["message_count"] = len(story_ids(reader, story))
    if edits := _edits(reader, session_no) if story is None or not story.shift else _shown_edits(story, active_at):
        record["view_edits"] = edits
    if passes := compaction_record(reader, session_no, story):
        # With them the edits are always told: the messages' flags alone would say less.
        record |= {"view_edits": edits, "compactions": passes}
    return _with_extra(record, extra)


def _edits(reader: Reader, session_no: int) -> list[dict[str, Any]]:
    """What hides messages of a session now, oldest first: a branch knows which of its parent's came before it."""
    names = ("id", "action", "from_seq", "to_seq", "made_at")
    rows = reader.rows(
        f"SELECT {', '.join(f'e.{name}' for name in names)} FROM view_edits AS e WHERE e.session_no = ?"
        " AND e.action <> 'restore' AND NOT EXISTS (SELECT 1 FROM view_edits AS r WHERE r.undoes = e.id) ORDER BY e.id",
        (session_no,),
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def _shown_edits(story: Story, made_at: float) -> list[dict[str, Any]]:
    """The same for a story with inherited messages, whose edits are those of several sessions."""
    ranges = [("rewind", *one) for one in story.view.rewound] + [("compact", *one) for one in story.view.compacted]
    names = ("id", "action", "from_seq", "to_seq", "made_at")
    return [
        dict(zip(names, (number, action, low + story.shift, high + story.shift, made_at), strict=True))
        for number, (action, low, high) in enumerate(ranges, 1)
    ]


def message_records(reader: Reader, session_id: str, message_ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Every fact of these messages of one session, in order."""
    story = story_of(reader, session_id)
    if story is None:
        return
    for start in range(0, len(message_ids), ROWS_AT_ONCE):
        part = message_ids[start : start + ROWS_AT_ONCE]
        marks = ", ".join("?" * len(part))
        rows = reader.rows(f"SELECT {', '.join(_MESSAGE)} FROM messages WHERE id IN ({marks}) ORDER BY id", part)
        values = contents(reader, [row[3:6] for row in rows])
        summarised = taken_out(reader, story.session_no, [story.number(row[-1], row[1]) for row in rows])
        for row, content in zip(rows, values, strict=True):
            facts = dict(zip(_MESSAGE, row, strict=True))
            position, extra = story.number(facts["session_no"], facts["seq"]), facts.pop("extra")
            for name in ("content_type", "body_no", "session_no"):
                del facts[name]
            facts["seq"] = position + story.shift
            facts["session_id"] = session_id
            facts["content"] = _json_value(content)
            facts["timestamp"] = facts.pop("created_at")
            hidden = story.view.hidden(position)
            facts["active"] = int(hidden is None)
            facts["compacted"] = int(hidden == "compact")
            # What a compaction of ours summarises stays active: its generation is in the record of the session.
            if position in summarised:
                facts["compacted_by"] = summarised[position]
            yield _with_extra(facts, extra)


def usage(reader: Reader, session_id: str) -> list[UsageRow]:
    """Per-model usage of one session."""
    rows = reader.rows(
        "SELECT u.model, u.provider, u.task, u.api_calls, u.input_tokens, u.output_tokens,"
        " nullif(u.actual_cost_usd, 0), u.estimated_cost_usd FROM session_usage AS u"
        " JOIN sessions AS s ON s.no = u.session_no WHERE s.id = CAST(? AS TEXT)"
        " ORDER BY u.task <> '', u.first_at, u.model",
        (key_bytes(session_id),),
    )
    return [
        UsageRow(
            model=row[0],
            provider=row[1],
            task=row[2],
            api_calls=row[3],
            input_tokens=row[4],
            output_tokens=row[5],
            cost_usd=row[6] if row[6] is not None else row[7],
        )
        for row in rows
    ]


# Columns of the usage rows -> the names that a record has for them.
_USAGE = {"model": "model", "task": "task", **TOTALS, "first_at": "first_seen", "last_at": "last_seen"}


def usage_records(reader: Reader, session_id: str) -> list[dict[str, Any]]:
    """Every fact of one session's usage rows."""
    rows = reader.rows(
        f"SELECT u.extra, {', '.join(f'u.{name}' for name in _USAGE)} FROM session_usage AS u"
        " JOIN sessions AS s ON s.no = u.session_no WHERE s.id = CAST(? AS TEXT)"
        " ORDER BY u.task <> '', u.first_at, u.model",
        (key_bytes(session_id),),
    )
    return [_with_extra(dict(zip(_USAGE.values(), row[1:], strict=True)), row[0]) for row in rows]


def _with_extra(record: dict[str, Any], extra: str | None) -> dict[str, Any]:
    """The record with what had no column; a name that is taken keeps its column's value."""
    if extra:
        try:
            kept = json.loads(extra)
        except (ValueError, RecursionError):
            return record | {"extra": extra}
        if not isinstance(kept, dict):
            return record | {"extra": kept}
        return kept | record
    return record


def _json_value(value: Any) -> Any:
    if isinstance(value, Blob):
        return {"base64": base64.b64encode(value.data).decode("ascii")}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
