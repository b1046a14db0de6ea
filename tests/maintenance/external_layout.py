"""The external-content search layout of newer hermes-agent files, built on a private copy by the facts of its form."""

from __future__ import annotations

from pathlib import Path

from hermes_state.engine import NulRule
from tests.maintenance.damage import change

SOURCE = "messages_fts_src"


def convert(path: Path, *, rule: NulRule = NulRule.CUT) -> None:
    """Replace the inline indexes by external-content ones with all six triggers, filled."""
    drops = [
        f"DROP TRIGGER IF EXISTS {table}_{event}"
        for table in ("messages_fts", "messages_fts_trigram")
        for event in ("insert", "delete", "update")
    ]
    change(
        path,
        *drops,
        "DROP TABLE messages_fts",
        "DROP TABLE messages_fts_trigram",
        f"CREATE VIEW {SOURCE} AS SELECT id, content, tool_name, tool_calls FROM messages",
        "CREATE VIEW messages_fts_trigram_src AS SELECT id, content, tool_name FROM messages WHERE role <> 'tool'",
        "CREATE VIRTUAL TABLE messages_fts USING fts5(content, tool_name, tool_calls, "
        f"content='{SOURCE}', content_rowid='id')",
        "CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tool_name, "
        "content='messages_fts_trigram_src', content_rowid='id', tokenize='trigram')",
        "INSERT INTO messages_fts(messages_fts) VALUES ('rebuild')",
        "INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES ('rebuild')",
        *_triggers("messages_fts", ("content", "tool_name", "tool_calls")),
        *_triggers("messages_fts_trigram", ("content", "tool_name")),
        "INSERT OR REPLACE INTO state_meta(key, value) VALUES ('fts_storage_version', '3')",
        rule=rule,
    )


def _triggers(table: str, columns: tuple[str, ...]) -> list[str]:
    names = ", ".join(columns)
    new = ", ".join(f"new.{column}" for column in columns)
    old = ", ".join(f"old.{column}" for column in columns)
    add = f"INSERT INTO {table}(rowid, {names}) VALUES (new.id, {new});"
    drop = f"INSERT INTO {table}({table}, rowid, {names}) VALUES ('delete', old.id, {old});"
    return [
        f"CREATE TRIGGER {table}_insert AFTER INSERT ON messages BEGIN {add} END",
        f"CREATE TRIGGER {table}_delete AFTER DELETE ON messages BEGIN {drop} END",
        f"CREATE TRIGGER {table}_update AFTER UPDATE OF {names} ON messages BEGIN {drop} {add} END",
    ]
