"""Real stores for the tests of removal: small changes to copies of hermes-agent files, and what is asked of them later.

Not for: a second way to delete. Everything is done through the engine, so the file's own triggers run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hermes_state.clock import SYSTEM
from hermes_state.engine import NulRule, open_read, open_write
from maintenance.context import Context

# What the fake clock of the tests shows; every fixture session is more than 100 days older.
NOW = 1_800_000_000.0
DAY = 86_400.0


def context(db: Path, **facts: Any) -> Context:
    known: dict[str, Any] = {"home": db.parent, "profile": None, "db": db, "json": False, "clock": SYSTEM}
    return Context(**(known | facts))


def change(db: Path, *statements: str | tuple[str, Sequence[Any]]) -> None:
    """Run statements in one transaction, with the tokenizer that the fixtures' search indexes were built with."""
    with open_write(db, foreign=True, nul_rule=NulRule.CUT) as store, store.transaction() as tx:
        for statement in statements:
            sql, params = (statement, ()) if isinstance(statement, str) else statement
            tx.execute(sql, params)


def rows(db: Path, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with open_read(db) as store:
        return store.rows(sql, params)


def ids(db: Path) -> set[str]:
    return {row[0] for row in rows(db, "SELECT id FROM sessions")}


def message_owners(db: Path) -> set[str]:
    return {row[0] for row in rows(db, "SELECT DISTINCT session_id FROM messages")}


def add_session(
    db: Path,
    session_id: str,
    *,
    messages: int = 2,
    days_old: float = 200,
    ended: bool = True,
    parent: str | None = None,
    end_reason: str = "cli_close",
    source: str = "cli",
    delegate_of: str | None = None,
    branched_from: str | None = None,
    text: str = "a plain text about lighthouse number",
) -> str:
    """One more session with messages, `days_old` days before `NOW`."""
    started = NOW - days_old * DAY
    named = {"_delegate_from": delegate_of, "_branched_from": branched_from}
    marker = {key: value for key, value in named.items() if value}
    with open_write(db, foreign=True) as store, store.transaction() as tx:
        tx.execute(
            "INSERT INTO sessions (id, source, parent_session_id, started_at, ended_at, end_reason, model_config,"
            " message_count) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                session_id, source, parent, started, started + 60 if ended else None, end_reason if ended else None,
                json.dumps(marker) if marker else None, messages,
            ),
        )
        tx.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            [
                (session_id, "user" if number % 2 == 0 else "assistant", f"{text} {number}", started + number / 100)
                for number in range(messages)
            ],
        )
    return session_id


def empty_store(db: Path) -> Path:
    """The copy without its own sessions: only the schema of its release, triggers and indexes."""
    change(
        db,
        "UPDATE sessions SET parent_session_id = NULL",
        "DELETE FROM messages",
        *(
            f"DELETE FROM {table}"
            for (table,) in rows(db, "SELECT name FROM sqlite_schema WHERE name = 'session_model_usage'")
        ),
        "DELETE FROM sessions",
    )
    return db


def problems(db: Path, rule: NulRule = NulRule.CUT) -> list[str]:
    """What page check, search index check and foreign keys say against a file; empty when it is sound."""
    with open_read(db, nul_rule=rule) as store:
        found = [str(row[0]) for row in store.rows("PRAGMA quick_check") if row[0] != "ok"]
        found += [f"foreign key: {row}" for row in store.rows("PRAGMA foreign_key_check")]
        for index in ("messages_fts", "messages_fts_trigram"):
            held = store.rows(
                f"SELECT count(*) FROM {index}_docsize WHERE id NOT IN (SELECT id FROM messages)"
            )[0][0]
            if held:
                found.append(f"{index} still holds {held} rows that are gone")
    return found


def ledger_lines(db: Path) -> list[dict[str, Any]]:
    path = db.with_name(f"{db.name}.hermes-state.ledger.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def named_in_ledger(lines: Iterable[dict[str, Any]]) -> set[str]:
    return {session for line in lines for session in line["sessions"]}
