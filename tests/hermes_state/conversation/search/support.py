"""Short words for the tests of search."""

from __future__ import annotations

from typing import Any

from hermes_state.conversation.search import SearchResult
from hermes_state.store import Store


def chat(store: Store, *texts: str, source: str = "telegram", **session: Any) -> tuple[str, list[int]]:
    """A new session with one user message a text: its id, and theirs."""
    made = store.sessions.create(source=source, **session)
    return made.id, store.messages.append_many(made.id, [{"role": "user", "content": text} for text in texts])


def prepared(store: Store, ways: str) -> None:
    """Have everything in the index, or leave it all to reading."""
    if ways == "through the index":
        work = store.search.index_idle(100)
        assert (work.pending, work.degraded) == (0, "")


def ids(result: SearchResult) -> list[int | None]:
    return [hit.message_id for hit in result]


def found(store: Store, query: str, **options: Any) -> set[int | None]:
    """What a search finds, when it says of itself that it is whole."""
    result = store.search(query, **options)
    assert (result.complete, result.degraded) == (True, "")
    return set(ids(result))
