"""Conversations of a known size, and counting what cannot be miscounted: one token a word."""

from __future__ import annotations

from typing import Any

from hermes_state.store import Store


def words(text: str) -> int:
    """One token a word."""
    return len(text.split())


def lines(label: str, count: int, width: int = 10) -> str:
    """`count` lines of `width` words each, all different."""
    return "\n".join(
        f"{label} line {number} " + " ".join(f"w{label}{number}x{at}" for at in range(width - 3))
        for number in range(count)
    )


def turn(store: Store, session: str, number: int, *, tool_words: int = 400) -> None:
    """One turn: a question, a call, its result of `tool_words` words, an answer."""
    add = store.messages.append
    add(session, role="user", content=f"Please look at part {number} and tell me its port.")
    add(session, role="assistant", content=None, tool_calls=[call(f"c{number}")])
    add(session, role="tool", tool_call_id=f"c{number}", content=lines(f"r{number}", tool_words // 10))
    add(session, role="assistant", content=f"Part {number} listens on port {4000 + number}.")


def talk(store: Store, turns: int, *, session: str = "one", tool_words: int = 400) -> str:
    """A session with so many turns; returns its id."""
    store.sessions.create(id=session, source="cli")
    for number in range(turns):
        turn(store, session, number, tool_words=tool_words)
    return session


def call(call_id: str) -> dict[str, Any]:
    """A tool call in OpenAI shape."""
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": '{"path": "/srv/app.log"}'}}


def rows(store: Store, session: str = "one") -> list[tuple[str, str]]:
    """Role and content of everything that was said, whatever hides it."""
    page = store.messages.history(session, limit=10_000, include_rewound=True)
    return [(message.role, str(message.content)) for message in page.messages]
