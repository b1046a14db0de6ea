"""Native stores for the tests of maintenance: rows as the library writes them, made at any time in the past.

Not for: testing the library. Rows are written through the engine, so triggers and constraints of the schema run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hermes_state.clock import SYSTEM
from hermes_state.conversation.row_check import row_check
from hermes_state.engine import open_read, open_write
from hermes_state.engine.create import create_store
from maintenance.context import Context

NOW = 1_800_000_000.0
DAY = 86_400.0


def context(db: Path, **facts: Any) -> Context:
    known: dict[str, Any] = {"home": db.parent, "profile": None, "db": db, "json": False, "clock": SYSTEM}
    return Context(**(known | facts))


def new_store(folder: Path) -> Path:
    db = folder / "home" / "state.db"
    assert create_store(db)
    return db


def rows(db: Path, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with open_read(db) as store:
        return store.rows(sql, params)


def value(db: Path, sql: str, params: Sequence[Any] = ()) -> Any:
    return rows(db, sql, params)[0][0]


def change(db: Path, *statements: str | tuple[str, Sequence[Any]]) -> None:
    with open_write(db) as store, store.transaction() as tx:
        for statement in statements:
            sql, params = (statement, ()) if isinstance(statement, str) else statement
            tx.execute(sql, params)


def add_session(
    db: Path,
    session_id: str,
    *,
    messages: int = 2,
    days_old: float = 200,
    state: str = "ended",
    parent: str | None = None,
    relation: str | None = None,
    source: str = "cli",
    text: str = "a plain text about lighthouse number",
    bodies: Sequence[Any] = (),
    columns: dict[str, Any] | None = None,
) -> str:
    """One more session, last active `days_old` days before `NOW`, with `messages` messages (or one for each body)."""
    started = NOW - days_old * DAY
    facts: dict[str, Any] = {
        "id": session_id, "source": source, "state": state, "relation": relation, "started_at": started,
        "active_at": started, "ended_at": None if state == "open" else started + 60,
        "end_reason": {"open": None, "ended": "cli_close", "replaced": "compression"}[state],
    } | (columns or {})
    contents = list(bodies) or [f"{text} {number}" for number in range(messages)]
    with open_write(db) as store, store.transaction() as tx:
        if parent is not None:
            facts["parent_no"] = (tx.row("SELECT no FROM sessions WHERE id = ?", (parent,)) or (None,))[0]
        tx.execute(
            f"INSERT INTO sessions ({', '.join(facts)}) VALUES ({', '.join('?' * len(facts))})", list(facts.values())
        )
        no = tx.last_insert_rowid()
        insert_messages(tx, no, contents, started)
    return session_id


def insert_messages(tx: Any, session_no: int, contents: Sequence[Any], started: float, *, calls: int = 0) -> None:
    (next_id,) = tx.row("SELECT max(coalesce((SELECT max(id) FROM messages), 0), message_floor) + 1 FROM store")
    values = []
    for number, content in enumerate(contents):
        kind = "bytes" if isinstance(content, bytes) else "json" if isinstance(content, (list, dict)) else "text"
        raw = json.dumps(content) if kind == "json" else content
        role, at = ("user" if number % 2 == 0 else "assistant"), started + number / 100
        check = row_check(session_no, role, kind, raw, None, None, None, None, None, None, None, None, at, None)
        made = calls if number == len(contents) - 1 else 0
        values.append((next_id + number, session_no, 1 + number, made, role, kind, raw, at, check))
    tx.executemany(
        "INSERT INTO messages (id, session_no, seq, calls, role, content_type, content, created_at, row_check)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )


def ids(db: Path) -> set[str]:
    return {row[0] for row in rows(db, "SELECT id FROM sessions")}


def problems(db: Path) -> list[str]:
    """What page check and foreign keys say against a store; empty when it is sound."""
    with open_read(db) as store:
        found = [str(row[0]) for row in store.rows("PRAGMA integrity_check") if row[0] != "ok"]
        return found + [f"foreign key: {row}" for row in store.rows("PRAGMA foreign_key_check")]


def ledger_lines(db: Path) -> list[dict[str, Any]]:
    path = db.with_name(f"{db.name}.hermes-state.ledger.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
