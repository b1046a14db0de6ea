"""SQL expressions for the facts of a session, by the columns that the file has.

Invariant: each expression is NULL, or a value of the type its name promises, whatever the cell holds; the alias of
`sessions` is `s`. A column that the file lacks reads as its default.

Not for: markers in `model_config`; those are JSON that may be malformed and are read in Python (`markers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from maintenance.dialects.cells import LATEST, newest_sql, number_sql, plain_text, time_sql

# Our name -> the file's column.
TEXT_COLUMNS = {
    "id": "id",
    "source": "source",
    "title": "title",
    "model": "model",
    "end_reason": "end_reason",
    "display_name": "display_name",
    "session_key": "session_key",
    "user_id": "user_id",
    "chat_id": "chat_id",
    "chat_type": "chat_type",
    "thread_id": "thread_id",
    "cwd": "cwd",
    "branch": "git_branch",
    "repo_root": "git_repo_root",
    "provider": "billing_provider",
    "profile": "profile_name",
    "parent_id": "parent_session_id",
}
COUNT_COLUMNS = ("message_count", "tool_call_count", "input_tokens", "output_tokens")
FLAG_COLUMNS = ("archived", "pinned", "hidden", "auto_archived")

# Newest message of a session by one seek in the index (session_id, timestamp).
_LAST_MESSAGE_BY_INDEX = (
    "(SELECT CASE WHEN m.timestamp >= -62135596800 THEN CAST(m.timestamp AS REAL) END FROM messages AS m"
    f" WHERE m.session_id = s.id AND m.timestamp <= {LATEST} ORDER BY m.timestamp DESC LIMIT 1)"
)
# The same where the index is missing: one pass over messages, then a look-up in its result.
_LAST_MESSAGE_BY_PASS = "(SELECT newest_message.at FROM newest_message WHERE newest_message.session_id = s.id)"
LAST_MESSAGE_PASS = (
    "WITH newest_message(session_id, at) AS MATERIALIZED (SELECT session_id, max("
    + time_sql("timestamp")
    + ") FROM messages GROUP BY session_id) "
)


def session_fields(columns: frozenset[str], *, message_times_indexed: bool) -> Mapping[str, str]:
    """Expressions by name for a `sessions` table with these columns."""
    fields: dict[str, str] = {}
    for name, column in TEXT_COLUMNS.items():
        fields[name] = plain_text(f"s.{column}") if column in columns else "NULL"
    for name in COUNT_COLUMNS:
        fields[name] = f"coalesce(CAST({number_sql(f's.{name}')} AS INTEGER), 0)" if name in columns else "0"
    for name in FLAG_COLUMNS:
        fields[name] = f"(coalesce({number_sql(f's.{name}')}, 0) <> 0)" if name in columns else "0"
    fields["tokens"] = f"({fields['input_tokens']} + {fields['output_tokens']})"
    costs = [number_sql(f"s.{name}") for name in ("actual_cost_usd", "estimated_cost_usd") if name in columns]
    fields["cost"] = {0: "NULL", 1: costs[0] if costs else ""}.get(len(costs), f"coalesce({', '.join(costs)})")
    keyed = "coalesce(typeof(s.session_key) = 'text' AND s.session_key <> '', 0)" if "session_key" in columns else "0"
    no_message = "NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.session_id = s.id)"
    fields["never_active"] = f"({keyed} AND {no_message})"
    fields["started_at"] = time_sql("s.started_at")
    fields["ended_at"] = time_sql("s.ended_at")
    fields["ended"] = "(s.ended_at IS NOT NULL)"
    last_message = _LAST_MESSAGE_BY_INDEX if message_times_indexed else _LAST_MESSAGE_BY_PASS
    # A message that carries a later time than the end of its session does not make the session young again.
    last_message = f"CASE WHEN {fields['ended_at']} IS NULL THEN {last_message} END"
    times = [fields["started_at"], fields["ended_at"], last_message]
    if "last_activity_at" in columns:
        times.append(time_sql("s.last_activity_at"))
    fields["last_activity_at"] = newest_sql(*times)
    return fields
