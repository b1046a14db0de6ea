"""Our side: the library as a gateway process imports it.

Invariant: only public names, with their defaults, at the durability that was asked for. Not for: the engine's pieces.
"""

from __future__ import annotations

import random
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]

import measure  # noqa: E402

from hermes_state import open_store  # noqa: E402


def prepare(db: str, plan: str) -> dict[str, Any]:
    """An empty store with its sessions."""
    sessions, _rows = measure.plan(plan)
    with open_store(path=db) as store:
        for one in sessions:
            store.sessions.create(**one)
    return {}


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "session"}


def append(db: str, plan: str, level: str, first: int = 0, step: int = 1, wait: bool = False) -> dict[str, Any]:
    """Each row by `messages.append`."""
    _sessions, rows = measure.plan(plan)
    rows = rows[first::step]
    with open_store(path=db, durability=level) as store:
        calls = [
            partial(store.messages.append, row["session"], **_fields(row)) for row in rows
        ]
        if wait:
            measure.wait_for_start()
        before = measure.written_bytes()
        taken = measure.each(calls)
    return {"taken": taken, "written": measure.written_bytes() - before, "sizes": measure.sizes(Path(db))}


def batch(db: str, plan: str, level: str, size: int) -> dict[str, Any]:
    """`size` rows of one session by `messages.append_many`."""
    _sessions, rows = measure.plan(plan)
    sessions: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sessions.setdefault(row["session"], []).append(_fields(row))
    with open_store(path=db, durability=level) as store:
        calls = [
            partial(store.messages.append_many, name, group[at : at + size])
            for name, group in sessions.items() for at in range(0, len(group), size)
        ]
        before = measure.written_bytes()
        taken = measure.each(calls)
    return {"taken": taken, "written": measure.written_bytes() - before}


def resume(db: str, session: str, count: int) -> dict[str, Any]:
    """`messages.context`: the session as a model gets it."""
    with open_store(path=db) as store:
        return {"taken": measure.repeated(lambda: store.messages.context(session), count)}


def open_once(db: str, count: int) -> dict[str, Any]:
    """Open, count sessions, close, while another process of the same kind has the store open."""

    def one() -> None:
        with open_store(path=db) as store:
            store.sessions.count()

    return {"taken": measure.repeated(one, count)}


def many(db: str, sessions: int) -> dict[str, Any]:
    """A store of many small sessions, two messages each, their activity a minute and more apart."""
    with open_store(path=db) as store:
        for number in range(sessions):
            at = 1_700_000_000.0 + 90.0 * number
            one = store.sessions.create(source="cli", title=f"Session {number}", started_at=at)
            texts = ({"role": "user", "content": f"question {number}", "at": at},)
            store.messages.append_many(one.id, [*texts, {"role": "assistant", "content": "answer", "at": at + 1.0}])
    return {}


def listing(db: str, count: int) -> dict[str, Any]:
    """The first fifty of the list."""
    with open_store(path=db) as store:
        found = len(store.sessions.list(limit=50))
        return {"taken": measure.repeated(lambda: store.sessions.list(limit=50), count), "found": found}


def rewind(db: str, session: str, back: int, count: int) -> dict[str, Any]:
    """Hide the last `back` messages and take it back, `count` times; each rewind is timed and its bytes counted."""
    with open_store(path=db) as store:
        page = store.messages.history(session, limit=back + 1)
        target = next(one for one in page.messages if one.role == "user")
        taken, written = [], 0
        for _ in range(count):
            before, started = measure.written_bytes(), time.perf_counter()
            store.messages.rewind(session, target.id)
            taken.append(time.perf_counter() - started)
            written += measure.written_bytes() - before
            store.messages.restore(session)
        return {"taken": taken, "written": written}


def search(db: str, queries: dict[str, str], count: int, limit: int) -> dict[str, Any]:
    """Each query `count` times, after one that brings the index up to date."""
    with open_store(path=db) as store:
        while store.search.index_idle(100).pending:
            pass
        answer = {}
        for name, query in queries.items():
            found = store.search(query, limit=limit)
            answer[name] = {
                "taken": measure.repeated(lambda query=query: store.search(query, limit=limit), count),
                "found": len(found),
            }
        return answer


def recall(db: str, count: int, seed: int) -> dict[str, Any]:
    """Of `count` words drawn from messages of all roles, how many find the message they came from."""
    chance = random.Random(seed)
    with open_store(path=db) as store:
        while store.search.index_idle(100).pending:
            pass
        found, tried, missed = 0, 0, []
        newest = store.messages.count()
        while tried < count:
            message = store.messages.get(chance.randint(1, newest))
            words = re.findall(r"[A-Za-z0-9]{2,}|[\u4e00-\u9fff]{2}", str(message.content))
            if not words:
                continue
            word, tried = chance.choice(words), tried + 1
            hits = store.search(word, session_id=message.session_id, limit=1_000)
            if any(hit.message_id == message.id for hit in hits):
                found += 1
            else:
                missed.append((message.id, word))
        return {"found": found, "tried": tried, "missed": missed[:10]}


if __name__ == "__main__":
    measure.serve({
        "prepare": prepare, "append": append, "batch": batch, "resume": resume, "open": open_once, "many": many,
        "list": listing, "rewind": rewind, "search": search, "recall": recall,
    })
