"""Looking at a foreign file: which tables and columns it has.

Invariant: reads the schema only, never a row of a conversation. Not for: judging whether the file is sound. Trusting
`schema_version` alone was rejected: releases advance it without converting, and forks add columns without touching it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from maintenance.dialects.base import StoreShape
from maintenance.dialects.cells import decode_text
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader

# Every table that some release of hermes-agent creates. Search tables are recognised by prefix.
KNOWN_TABLES = frozenset(
    {
        "schema_version",
        "sessions",
        "messages",
        "session_model_usage",
        "state_meta",
        "gateway_routing",
        "compression_locks",
        "async_delegations",
        "delivery_obligations",
        "telegram_dm_topic_mode",
        "telegram_dm_topic_bindings",
        "system_prompts",
        "gateway_hygiene_state",
        "conversation_generations",
        "gateway_heartbeats",
        "session_turn_leases",
        "runtime_epoch",
        "session_admissions",
        "worker_executions",
        "sqlite_sequence",
        "sqlite_stat1",
        "sqlite_stat4",
    }
)
SEARCH_PREFIXES = ("messages_fts", "fts_v22_trash_")


def table_columns(reader: Reader, table: str) -> tuple[str, ...]:
    """Columns of a table in its own order, generated ones included; empty when there is no such table."""
    return tuple(str(row[1]) for row in reader.rows(f"PRAGMA table_xinfo({quoted(table)})") if row[6] != 1)


def read_shape(reader: Reader) -> StoreShape:
    """The shape of the file behind `reader`."""
    names = [str(row[0]) for row in reader.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    unknown = [name for name in names if name not in KNOWN_TABLES and not name.startswith(SEARCH_PREFIXES)]
    version = None
    if "schema_version" in names:
        row = reader.row("SELECT max(version) FROM schema_version WHERE typeof(version) = 'integer'")
        version = None if row is None or row[0] is None else int(row[0])
    return StoreShape(
        schema_version=version,
        session_columns=table_columns(reader, "sessions") if "sessions" in names else (),
        message_columns=table_columns(reader, "messages") if "messages" in names else (),
        tables=frozenset(names),
        unknown_tables=tuple(sorted(unknown)),
        search_storage_version=_meta_integer(reader, "fts_storage_version") if "state_meta" in names else None,
    )


def has_index_on(reader: Reader, table: str, columns: tuple[str, ...]) -> bool:
    """Whether a whole (not partial) index starts with these columns."""
    for row in reader.rows(f"PRAGMA index_list({quoted(table)})"):
        if row[4]:
            continue
        indexed = tuple(str(entry[2]) for entry in reader.rows(f"PRAGMA index_info({quoted(str(row[1]))})"))
        if indexed[: len(columns)] == columns:
            return True
    return False


def _meta_integer(reader: Reader, key: str) -> int | None:
    row = reader.row("SELECT CAST(value AS BLOB) FROM state_meta WHERE key = ?", (key,))
    text = None if row is None else decode_text(row[0])
    return int(text) if text is not None and text.strip().isascii() and text.strip().isdigit() else None
