"""A file of hermes-agent with all of a gateway's tables filled, and the store that is adopted from it.

Invariant: the tables that a release makes later than at its start have the columns that their facts name. Times are
close to now, since what is owed depends on its age.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import apsw

from tests.maintenance.adopting import adopt_to
from tests.support.stores import StoreCopy

TABLES = (
    "gateway_routing", "telegram_dm_topic_bindings", "telegram_dm_topic_mode", "delivery_obligations",
    "async_delegations",
)
NOW = float(int(time.time()))
_LATE = """
CREATE TABLE delivery_obligations(obligation_id TEXT PRIMARY KEY, session_key TEXT, platform TEXT,
 chat_id TEXT NOT NULL, thread_id TEXT, content TEXT, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
 created_at REAL NOT NULL, updated_at REAL NOT NULL, owner_pid INTEGER, owner_started_at INTEGER, last_error TEXT,
 adapter_profile TEXT);
CREATE TABLE telegram_dm_topic_mode(chat_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, enabled INTEGER NOT NULL DEFAULT 1,
 activated_at REAL NOT NULL, updated_at REAL NOT NULL, has_topics_enabled INTEGER,
 allows_users_to_create_topics INTEGER, capability_checked_at REAL, intro_message_id TEXT, pinned_message_id TEXT);
CREATE TABLE telegram_dm_topic_bindings(chat_id TEXT, thread_id TEXT, user_id TEXT, session_key TEXT,
 session_id TEXT REFERENCES sessions(id) ON DELETE CASCADE, managed_mode TEXT DEFAULT 'auto', linked_at REAL,
 updated_at REAL, PRIMARY KEY (chat_id, thread_id));
CREATE UNIQUE INDEX topic_sessions ON telegram_dm_topic_bindings(session_id);
"""


def insert(db: Path, table: str, **cells: Any) -> None:
    """One row more, in a private file that nobody has open."""
    connection = apsw.Connection(str(db))
    try:
        marks = ", ".join("?" * len(cells))
        connection.execute(f"INSERT INTO {table} ({', '.join(cells)}) VALUES ({marks})", tuple(cells.values()))
    finally:
        connection.close()


def entry(key: str, session_id: str, chat_id: object, **more: Any) -> str:
    """An entry of the session index as hermes-agent writes it."""
    return json.dumps({
        "session_key": key, "session_id": session_id, "created_at": "2026-01-01T00:00:00", "platform": "telegram",
        "chat_type": "dm", "origin": {"platform": "telegram", "chat_type": "dm", "chat_id": chat_id, "user_id": "7"},
    } | more)


def routing(db: Path, key: str, text: str, *, scope: str = "", at: float = NOW - 50) -> None:
    insert(db, "gateway_routing", scope=scope, session_key=key, entry_json=text, updated_at=at)


def delivery(db: Path, name: str, state: str, **cells: Any) -> None:
    """A row of the ledger of final replies, made 100 s ago."""
    insert(db, "delivery_obligations", **{
        "obligation_id": name, "session_key": "agent:main:telegram:dm:100", "platform": "telegram", "chat_id": "100",
        "thread_id": None, "content": f"text of {name}", "state": state, "attempts": 0, "created_at": NOW - 100,
        "updated_at": NOW - 90, "owner_pid": 4711, "owner_started_at": 5, "last_error": None, "adapter_profile": None,
    } | cells)


def delegation(db: Path, name: str, delivery_state: str, **cells: Any) -> None:
    insert(db, "async_delegations", **{
        "delegation_id": name, "origin_session": "agent:main:telegram:dm:100", "origin_ui_session_id": "",
        "parent_session_id": None, "state": "completed", "dispatched_at": NOW - 300, "completed_at": NOW - 200,
        "updated_at": NOW - 200, "event_json": '{"type": "done"}', "result_json": '{"summary": "found"}',
        "delivery_state": delivery_state, "delivery_attempts": 1, "owner_pid": 4711, "task_json": '{"goal": "look"}',
    } | cells)


def gateway_file(store_copy: StoreCopy) -> Path:
    """A copy of the 0.19.0 file with rows of each kind, converted ones and ones that stay."""
    db = store_copy("0.19.0")
    connection = apsw.Connection(str(db))
    connection.execute(_LATE).fetchall()
    first, second, third = (str(one) for (one,) in connection.execute(
        "SELECT id FROM sessions WHERE ended_at IS NULL ORDER BY rowid LIMIT 3"
    ).fetchall())
    connection.close()
    chat = "agent:main:telegram:dm:100"
    routing(db, chat, entry(chat, first, "100", resume_pending=True, resume_reason="restart"))
    routing(db, chat, entry(chat, second, "100"), scope="/old/sessions", at=NOW - 5000)
    routing(db, "agent:main:telegram:dm:200", entry("agent:main:telegram:dm:200", "nowhere", "200"))
    routing(db, "not json", "{")
    topic = {"chat_id": "100", "user_id": "7", "managed_mode": "auto", "linked_at": NOW - 70, "updated_at": NOW - 60}
    insert(db, "telegram_dm_topic_bindings", thread_id="9", session_key=f"{chat}:9", session_id=second, **topic)
    insert(db, "telegram_dm_topic_bindings", thread_id="10", session_key="elsewhere", session_id=third, **topic)
    insert(
        db, "telegram_dm_topic_mode", chat_id="100", user_id="7", enabled=1, activated_at=NOW - 80,
        updated_at=NOW - 80, has_topics_enabled=1, pinned_message_id="55",
    )
    delivery(db, "new", "pending")
    delivery(db, "tried", "failed", attempts=2, thread_id="9", adapter_profile="work", created_at=NOW - 110)
    delivery(db, "on its way", "attempting", attempts=1)
    delivery(db, "no more", "failed", attempts=3)
    delivery(db, "stale", "pending", created_at=NOW - 2 * 86_400, updated_at=NOW - 2 * 86_400)
    delivery(db, "done", "delivered", updated_at=NOW - 95)
    delivery(db, "long ago", "delivered", created_at=NOW - 30 * 86_400, updated_at=NOW - 30 * 86_400)
    delivery(db, "given up", "abandoned")
    delivery(db, "of no release", "sent")
    delegation(db, "owed", "pending")
    delegation(db, "told", "delivered", delivered_at=NOW - 150)
    delegation(db, "http", "pending", origin_session="agent:main:api_server:dm:x")
    delegation(db, "terminal", "pending", origin_session="", origin_ui_session_id="ui-1")
    delegation(db, "odd", "pending", state="asleep")
    return db


def adopted(store_copy: StoreCopy) -> Path:
    """The native store that is made of it, with nothing converted yet."""
    db = gateway_file(store_copy)
    native = db.with_name("native.db")
    adopt_to(db, native)
    return native
