"""Small hermes-agent stores made by hand, and a reader over them.

Invariant: real SQLite through APSW. The tables are those of schema 22 plus the columns of newer releases that a test
names; rows are written as they are given, garbage included. Not for: what real releases write (see `stores`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

SESSION_COLUMNS = """id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, session_key TEXT, chat_id TEXT,
chat_type TEXT, thread_id TEXT, display_name TEXT, origin_json TEXT, model TEXT, model_config TEXT, system_prompt TEXT,
parent_session_id TEXT REFERENCES sessions(id), started_at REAL NOT NULL, ended_at REAL, end_reason TEXT,
message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0,
output_tokens INTEGER DEFAULT 0, cwd TEXT, git_branch TEXT, git_repo_root TEXT, billing_provider TEXT,
estimated_cost_usd REAL, actual_cost_usd REAL, title TEXT, profile_name TEXT, archived INTEGER NOT NULL DEFAULT 0"""
MESSAGE_COLUMNS = """id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id),
role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
token_count INTEGER, active INTEGER DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0"""
INDEXES = """CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
CREATE INDEX idx_sessions_parent ON sessions(parent_session_id);
CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL;
CREATE TABLE schema_version(version INTEGER NOT NULL); INSERT INTO schema_version VALUES (22);"""


class Foreign:
    """A store in memory or in a file; also a `Reader` and enough of a `Transaction` for the dialect."""

    def __init__(
        self, path: Path | None = None, *, session_extra: str = "", sql: str = "", indexes: bool = True
    ) -> None:
        self.path = path or Path("memory.db")
        self.connection = apsw.Connection(":memory:" if path is None else str(path))
        extra = f", {session_extra}" if session_extra else ""
        self.run(f"CREATE TABLE sessions({SESSION_COLUMNS}{extra})")
        self.run(f"CREATE TABLE messages({MESSAGE_COLUMNS})")
        if indexes:
            self.run(INDEXES)
        if sql:
            self.run(sql)

    def run(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Any statements."""
        return self.connection.execute(sql, tuple(params)).fetchall()

    def session(self, key: str, **columns: Any) -> str:
        """Add a session."""
        columns = {"id": key, "source": "cli", "started_at": 1000.0, **columns}
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self.run(f"INSERT INTO sessions({names}) VALUES ({marks})", list(columns.values()))
        return key

    def message(self, session: str, content: Any = "hello", **columns: Any) -> int:
        """Add a message and give its id."""
        columns = {"session_id": session, "role": "user", "content": content, "timestamp": 1000.0, **columns}
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        self.run(f"INSERT INTO messages({names}) VALUES ({marks})", list(columns.values()))
        return self.connection.last_insert_rowid()

    def close(self) -> None:
        """Close it, so that the program can be the only one with it open."""
        self.connection.close()

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.run(sql, params)

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        found = self.run(sql, params)
        return found[0] if found else None

    def iterate(self, sql: str, params: Sequence[Any] = (), *, batch: int = 500) -> Iterator[tuple[Any, ...]]:
        yield from self.connection.execute(sql, tuple(params))

    def execute(self, sql: str, params: Sequence[Any] = ()) -> int:
        before = self.connection.total_changes()
        self.run(sql, params)
        return self.connection.total_changes() - before
