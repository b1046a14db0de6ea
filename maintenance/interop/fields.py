"""Which column of hermes-agent is which column of a native store, for both directions.

Invariant: what has no line here is kept in `extra` under its own name, as a typed cell. A cell that does have a line
and still does not fit (a time that is text, a title that another session has) is kept in `extra` under `$original`; the
native column then holds a sane value, and giving the row back gives the original.

Not for: cells that mean something together (parent and relation, flags and view edits); see `adopt` and `foreign_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping

ORIGINAL = "$original"  # key in `extra`: cells whose native column holds something else
PLACEHOLDER = "$placeholder"  # key in `extra`: a session made for messages whose session is not in the file

# hermes-agent's column -> ours.
SESSION_TEXTS: Mapping[str, str] = {
    "user_id": "user_id",
    "session_key": "session_key",
    "chat_id": "chat_id",
    "chat_type": "chat_type",
    "thread_id": "thread_id",
    "display_name": "display_name",
    "model": "model",
    "profile_name": "profile",
    "cwd": "cwd",
    "git_branch": "git_branch",
    "git_repo_root": "git_repo_root",
}
TOTAL_COUNTS: Mapping[str, str] = {
    "api_call_count": "api_calls",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "reasoning_tokens": "reasoning_tokens",
}
COSTS = ("estimated_cost_usd", "actual_cost_usd")
ROUTE_TEXTS: Mapping[str, str] = {
    "billing_provider": "provider",
    "billing_base_url": "base_url",
    "billing_mode": "billing_mode",
}
# Those whose value is worked out from several of ours.
SESSION_SPECIAL = (
    "id", "source", "parent_session_id", "started_at", "ended_at", "end_reason", "title", "title_source",
    "model_config", "system_prompt", "system_prompt_hash", "tool_names", "archived", "pinned", "hidden",
    "auto_archived", "message_count", "tool_call_count",
)
SESSION_MAPPED = frozenset(
    {*SESSION_SPECIAL, *SESSION_TEXTS, *TOTAL_COUNTS, *COSTS, *ROUTE_TEXTS}
)
MESSAGE_TEXTS = ("tool_call_id", "tool_name", "finish_reason", "reasoning", "platform_message_id")
MESSAGE_MAPPED = frozenset(
    {"id", "session_id", "role", "content", "tool_calls", "timestamp", "token_count", "active", "compacted",
     *MESSAGE_TEXTS}
)
USAGE_TEXTS: Mapping[str, str] = {"model": "model", **ROUTE_TEXTS, "task": "task"}
USAGE_TIMES: Mapping[str, str] = {"first_seen": "first_at", "last_seen": "last_at"}
USAGE_MAPPED = frozenset({"session_id", *USAGE_TEXTS, *TOTAL_COUNTS, *COSTS, *USAGE_TIMES})

TITLE_SOURCES = frozenset({"derived", "llm", "user"})
MARKER = "\x00json:"  # hermes-agent's mark in front of structured content

# The columns of release 0.19.0, for sessions that were never in a file of hermes-agent.
RELEASE_SESSION_COLUMNS = (
    "id", "source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json",
    "expiry_finalized", "model", "model_config", "system_prompt", "parent_session_id", "started_at", "ended_at",
    "end_reason", "message_count", "tool_call_count", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "reasoning_tokens", "cwd", "git_branch", "git_repo_root", "billing_provider",
    "billing_base_url", "billing_mode", "estimated_cost_usd", "actual_cost_usd", "cost_status", "cost_source",
    "pricing_version", "title", "api_call_count", "handoff_state", "handoff_platform", "handoff_error",
    "compression_failure_cooldown_until", "compression_failure_error", "compression_fallback_streak", "profile_name",
    "rewind_count", "archived",
)
RELEASE_MESSAGE_COLUMNS = (
    "id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "effect_disposition", "timestamp",
    "token_count", "finish_reason", "reasoning", "reasoning_content", "reasoning_details", "codex_reasoning_items",
    "codex_message_items", "platform_message_id", "observed", "active", "compacted", "api_content",
)
RELEASE_ZEROES = frozenset(
    {"expiry_finalized", "compression_fallback_streak", "rewind_count", "observed", "compacted", "archived"}
)
