"""What a gateway keeps beside conversations, of one store in two files: how rows are known, and what one file lacks.

Invariant: a row is known by its own name, never by its number, which both files may have given. Not for: obligations
(`owed`), gateway instances with their turns (`serving`), routing (`routed`) and cron (`scheduled`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from maintenance.dialects.native import serving

if TYPE_CHECKING:
    from hermes_state.engine import Reader

# By table, what a row is known by in whichever file.
KEYS: Mapping[str, tuple[str, ...]] = {
    "topic_chats": ("platform", "chat_id"),
    "background_work": ("key",),
    "reply_seals": ("turn_id",),
    "lane_items": ("lane", "item_key"),
    "dead_targets": ("platform", "transport_profile", "chat_id"),
    "login_attempts": ("attempt_id",),
    "credentials": ("provider", "id"),
    "model_facts": ("provider", "layer", "model_key", "model"),
    "provider_registrations": ("name", "source"),
    "account_usage": ("provider", "account"),
}
# When a row was made or changed last: what is older than all that the store has was forgotten there.
_CHANGED: Mapping[str, str] = {
    "topic_chats": "updated_at", "background_work": "state_at", "reply_seals": "changed_at",
    "lane_items": "coalesce(settled_at, came_at)", "dead_targets": "last_at",
    "login_attempts": "coalesce(ended_at, started_at)", "credentials": "updated_at", "model_facts": "declared_at",
    "provider_registrations": "registered_at", "account_usage": "as_of",
}


def rows_lacking(copy: Reader, live: Reader) -> dict[str, int]:
    """By table, how many rows a copy has in a later version than the store, or alone and newer than all there."""
    found = {}
    for table, keys in KEYS.items():
        if not _there(copy, table):
            continue
        if not _there(live, table):
            found[table] = int(copy.rows(f"SELECT count(*) FROM {table}")[0][0])
            continue
        (newest,) = live.rows(f"SELECT max({_CHANGED[table]}) FROM {table}")[0]
        newer = "true" if newest is None else f"{_CHANGED[table]} > {float(newest)!r}"
        found[table] = sum(
            serving.find(live, table, row, keys) is None for row in serving.rows_of(copy.rows, table, newer)
        )
        for row in serving.rows_of(copy.rows, table):
            there = serving.find(live, table, row, keys)
            found[table] += there is not None and bool(serving.later_of(table, there, row))
    return found


def _there(reader: Reader, table: str) -> bool:
    return reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)) is not None
