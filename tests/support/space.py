"""Stores for the tests of space: grown and thinned through their own triggers, with APSW, before anybody opens them."""

from __future__ import annotations

from pathlib import Path

import apsw

from hermes_state.clock import SYSTEM
from maintenance.context import Context


def context(db: Path, *, as_json: bool = False) -> Context:
    """What a verb would be told for the store at `db`."""
    return Context(home=db.parent, profile=None, db=db, json=as_json, clock=SYSTEM)


def change(db: Path, *statements: str) -> None:
    """Run statements on a private store that nobody has open, and leave its WAL copied back and empty."""
    connection = apsw.Connection(str(db))
    try:
        for statement in statements:
            connection.execute(statement).fetchall()
        connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()


def grow(db: Path, *, sessions: int, messages: int = 40, words: int = 60) -> None:
    """Add sessions with messages, one transaction each, so that the indexes get many segments."""
    change(
        db,
        *(
            f"""
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {messages}),
                 w(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM w WHERE k < {words})
            INSERT INTO messages(session_id, role, content, timestamp)
            SELECT 'grown-{number}', iif(i % 2, 'user', 'assistant'),
                   (SELECT group_concat(printf('word%x', (k * 7919 + i * 104729 + {number} * 31) % 4001), ' ') FROM w),
                   1.7e9 + i
            FROM n
            """
            if filling
            else f"INSERT INTO sessions(id, source, started_at) VALUES ('grown-{number}', 'cli', 1.7e9)"
            for number in range(sessions)
            for filling in (False, True)
        ),
    )


def thin(db: Path, *, keep: int) -> None:
    """Delete the grown sessions from number `keep` on; their pages become free."""
    change(
        db,
        f"DELETE FROM messages WHERE CAST(substr(session_id, 7) AS INTEGER) >= {keep} AND session_id LIKE 'grown-%'",
        f"DELETE FROM sessions WHERE CAST(substr(id, 7) AS INTEGER) >= {keep} AND id LIKE 'grown-%'",
        "INSERT INTO messages_fts(messages_fts) VALUES ('optimize')",
        "INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES ('optimize')",
    )


def content(db: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every ordinary table, search tables left out, read from a store that nobody has open."""
    connection = apsw.Connection(str(db), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'messages_fts%' "
            "AND name NOT LIKE 'fts_v22_trash%' ORDER BY name"
        ).fetchall()
        rows: dict[str, list[tuple[object, ...]]] = {}
        for (table,) in tables:
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")').fetchall()]
            cells = ", ".join(f'quote("{name}"), octet_length("{name}")' for name in columns)
            rows[table] = connection.execute(f'SELECT {cells} FROM "{table}" ORDER BY 1, 2').fetchall()
        return rows
    finally:
        connection.close()
