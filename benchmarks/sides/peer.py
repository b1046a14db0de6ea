"""hermes-agent's side: its own `SessionDB`, run by its own interpreter.

Invariant: its public methods with their defaults; only the synchronous level is set to the one that was asked for,
since its own default is "power". Not for: our packages, which are not importable here.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import measure

from hermes_state import SessionDB

SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}


def opened(db: str, level: str = "power") -> Any:
    store = SessionDB(Path(db))
    store._conn.execute(f"PRAGMA synchronous = {SYNCHRONOUS[level]}")
    return store


def prepare(db: str, plan: str) -> dict[str, Any]:
    """An empty store with its sessions."""
    sessions, _rows = measure.plan(plan)
    store = opened(db)
    for one in sessions:
        store.create_session(one["id"], one["source"], system_prompt=one["system_prompt"])
    store.close()
    return {}


def append(db: str, plan: str, level: str, first: int = 0, step: int = 1, wait: bool = False) -> dict[str, Any]:
    """Each row by `append_message`."""
    _sessions, rows = measure.plan(plan)
    rows = rows[first::step]
    store = opened(db, level)
    calls = [
        partial(store.append_message, row["session"], **{k: v for k, v in row.items() if k != "session"})
        for row in rows
    ]
    if wait:
        measure.wait_for_start()
    before = measure.written_bytes()
    taken = measure.each(calls)
    store.close()
    return {"taken": taken, "written": measure.written_bytes() - before, "sizes": measure.sizes(Path(db))}


def resume(db: str, session: str, count: int) -> dict[str, Any]:
    """`get_messages_as_conversation`: the session as a model gets it."""
    store = opened(db)
    return {"taken": measure.repeated(lambda: store.get_messages_as_conversation(session), count)}


def open_once(db: str, count: int) -> dict[str, Any]:
    """Open, count sessions, close, while another handle has the store open."""
    keep = opened(db)

    def one() -> None:
        store = SessionDB(Path(db))
        store.session_count()
        store.close()

    taken = measure.repeated(one, count)
    keep.close()
    return {"taken": taken}


def many(db: str, sessions: int) -> dict[str, Any]:
    """A store of many small sessions, two messages each."""
    store = opened(db, "process")
    for number in range(sessions):
        name = store.create_session(f"session_{number:06}", "cli")
        store.set_session_title(name, f"Session {number}")
        store.append_message(name, "user", f"question {number}")
        store.append_message(name, "assistant", "answer")
    store.close()
    return {}


def listing(db: str, count: int) -> dict[str, Any]:
    """The first fifty of the list, last activity first."""
    store = opened(db)

    def one() -> Any:
        return store.list_sessions_rich(limit=50, order_by_last_active=True)

    return {"found": len(one()), "taken": measure.repeated(one, count)}


def rewind(db: str, session: str, back: int, count: int) -> dict[str, Any]:
    """Hide the last `back` messages and take it back, `count` times; each rewind is timed and its bytes counted."""
    store = opened(db, "process")
    rows = store.get_messages(session)
    target = next(row for row in rows[-back:] if row["role"] == "user")
    taken, written = [], 0
    for _ in range(count):
        before, started = measure.written_bytes(), measure.time.perf_counter()
        store.rewind_to_message(session, target["id"])
        taken.append(measure.time.perf_counter() - started)
        written += measure.written_bytes() - before
        store.restore_rewound(session, target["id"])
    store.close()
    return {"taken": taken, "written": written}


def search(db: str, queries: dict[str, str], count: int, limit: int) -> dict[str, Any]:
    """Each query `count` times."""
    store = opened(db)
    answer = {}
    for name, query in queries.items():
        found = store.search_messages(query, limit=limit)
        answer[name] = {
            "taken": measure.repeated(lambda query=query: store.search_messages(query, limit=limit), count),
            "found": len(found),
        }
    return answer


if __name__ == "__main__":
    measure.serve({
        "prepare": prepare, "append": append, "resume": resume, "open": open_once, "many": many, "list": listing,
        "rewind": rewind, "search": search,
    })
