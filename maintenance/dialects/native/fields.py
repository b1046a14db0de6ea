"""SQL expressions for the facts of a session of a native store.

Invariant: counts come from the newest message by one seek in `messages_session`, never from a counter; the exact last
activity of an open session is that of its newest message when `active_at` is behind. The alias of `sessions` is `s`.

Not for: pages of a list, which go by the index on `active_at` (`listing.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

# Our name -> the column.
TEXT_COLUMNS = {
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
    "profile": "profile",
}

# What a deletion has not finished yet, or keeps for branches that share its messages: no session any more.
HERE = "NOT (s.hidden = 1 AND s.active_at = 0)"

_NEWEST = "FROM messages AS m WHERE m.session_no = s.no ORDER BY m.seq DESC LIMIT 1"
_TOTALS = "FROM session_totals AS t WHERE t.session_no = s.no"


def session_fields(columns: frozenset[str]) -> Mapping[str, str]:
    """Expressions by name for a `sessions` table with these columns."""

    def column(name: str, otherwise: str = "NULL") -> str:
        return f"s.{name}" if name in columns else otherwise

    newest = f"(SELECT m.created_at {_NEWEST})"
    ended_at = column("ended_at")
    fields = {name: column(place) for name, place in TEXT_COLUMNS.items()}
    fields |= {
        "id": "s.id",
        "source": "s.source",
        "parent_id": "(SELECT p.id FROM sessions AS p WHERE p.no = s.parent_no"
        " AND NOT (p.hidden = 1 AND p.active_at = 0))",
        "provider": f"(SELECT t.provider {_TOTALS})",
        "started_at": "s.started_at",
        "ended_at": ended_at,
        "ended": "(s.state <> 'open')",
        # `active_at` is at most a minute behind the newest message, also of a session that goes on after its end: what
        # was used a minute ago is never old enough to be pruned.
        "last_activity_at": f"max(s.active_at, s.started_at, coalesce({newest}, s.active_at),"
        f" coalesce({ended_at}, s.active_at))",
        "message_count": f"(coalesce((SELECT m.seq {_NEWEST}), 0) - {column('deleted_messages', '0')})",
        "tool_call_count": f"coalesce((SELECT m.calls {_NEWEST}), 0)",
        "input_tokens": f"coalesce((SELECT t.input_tokens {_TOTALS}), 0)",
        "output_tokens": f"coalesce((SELECT t.output_tokens {_TOTALS}), 0)",
        "tokens": f"coalesce((SELECT t.input_tokens + t.output_tokens {_TOTALS}), 0)",
        "cost": f"(SELECT coalesce(t.actual_cost_usd, t.estimated_cost_usd) {_TOTALS})",
        "archived": f"({column('archived_at')} IS NOT NULL)",
        "pinned": f"({column('pinned_at')} IS NOT NULL)",
        "hidden": column("hidden", "0"),
        "auto_archived": column("auto_archived", "0"),
        "never_active": f"(coalesce({column('session_key')}, '') <> ''"
        " AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.session_no = s.no))",
    }
    return fields
