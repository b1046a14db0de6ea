"""The floor: plain APSW with one table, one index and one counter row, the least that any store of messages does.

Invariant: the same rows, the same durability, the same number of transactions as the other sides, SQLite's own defaults
for everything else. Not for: being usable; it searches nothing and protects nothing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import apsw
import measure

SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}
INSERT = "INSERT INTO messages (session, role, content, tool_name, tool_calls, at) VALUES (?, ?, ?, ?, ?, ?)"
COUNT = "UPDATE counters SET messages = messages + ? WHERE session = ?"


def opened(db: str, level: str = "process") -> apsw.Connection:
    connection = apsw.Connection(db)
    connection.set_busy_timeout(60_000)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[level]}").fetchall()
    return connection


def prepare(db: str, plan: str) -> dict[str, Any]:
    """An empty store with its sessions."""
    sessions, _rows = measure.plan(plan)
    connection = opened(db)
    connection.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session TEXT, role TEXT, content TEXT, tool_name TEXT, "
        "tool_calls TEXT, at REAL); CREATE INDEX messages_session ON messages (session, id); "
        "CREATE TABLE counters (session TEXT PRIMARY KEY, messages INTEGER)"
    ).fetchall()
    connection.executemany("INSERT INTO counters VALUES (?, 0)", [(one["id"],) for one in sessions]).fetchall()
    connection.close()
    return {}


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    calls = row.get("tool_calls")
    return (
        row["session"], row["role"], row["content"], row.get("tool_name"), measure.json.dumps(calls) if calls else None,
        time.time(),
    )


def append(db: str, plan: str, level: str, first: int = 0, step: int = 1, wait: bool = False) -> dict[str, Any]:
    """Each row in a transaction of its own."""
    _sessions, rows = measure.plan(plan)
    connection = opened(db, level)
    rows = rows[first::step]

    def one(row: dict[str, Any]) -> None:
        values = _values(row)
        connection.execute("BEGIN IMMEDIATE").fetchall()
        connection.execute(INSERT, values).fetchall()
        connection.execute(COUNT, (1, row["session"])).fetchall()
        connection.execute("COMMIT").fetchall()

    if wait:
        measure.wait_for_start()
    before = measure.written_bytes()
    taken = measure.each([lambda row=row: one(row) for row in rows])
    connection.close()
    return {"taken": taken, "written": measure.written_bytes() - before, "sizes": measure.sizes(Path(db))}


def batch(db: str, plan: str, level: str, size: int) -> dict[str, Any]:
    """`size` rows of one session in a transaction."""
    _sessions, rows = measure.plan(plan)
    connection = opened(db, level)
    groups = _by_session(rows, size)

    def one(group: list[dict[str, Any]]) -> None:
        values = [_values(row) for row in group]
        connection.execute("BEGIN IMMEDIATE").fetchall()
        connection.executemany(INSERT, values).fetchall()
        connection.execute(COUNT, (len(group), group[0]["session"])).fetchall()
        connection.execute("COMMIT").fetchall()

    before = measure.written_bytes()
    taken = measure.each([lambda group=group: one(group) for group in groups])
    connection.close()
    return {"taken": taken, "written": measure.written_bytes() - before}


def _by_session(rows: list[dict[str, Any]], size: int) -> list[list[dict[str, Any]]]:
    sessions: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sessions.setdefault(row["session"], []).append(row)
    return [group[at : at + size] for group in sessions.values() for at in range(0, len(group), size)]


def resume(db: str, session: str, count: int) -> dict[str, Any]:
    """All rows of one session, as they are."""
    connection = opened(db)
    sql = "SELECT id, role, content, tool_calls FROM messages WHERE session = ? ORDER BY id"
    return {"taken": measure.repeated(lambda: connection.execute(sql, (session,)).fetchall(), count)}


def open_once(db: str, count: int) -> dict[str, Any]:
    """Open, read one row, close."""

    def one() -> None:
        connection = opened(db)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        connection.close()

    keep = opened(db)
    keep.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    taken = measure.repeated(one, count)
    keep.close()
    return {"taken": taken}


if __name__ == "__main__":
    measure.serve({"prepare": prepare, "append": append, "batch": batch, "resume": resume, "open": open_once})
