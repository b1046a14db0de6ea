"""Generations made by hand, for tests that need one without a planner or a summariser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_state.compaction.clips import Clip
from hermes_state.compaction.generations import (
    Draft,
    Generation,
    LiveView,
    Made,
    Running,
    Watch,
    begin,
    commit,
    live_view,
)
from hermes_state.conversation.session_rows import session_no
from hermes_state.store import Store


def view_of(store: Store, session_id: str, *, as_of: int | None = None) -> LiveView:
    with store.core.reader() as reader, reader.snapshot():
        return live_view(reader, session_no(reader, session_id), as_of=as_of)


def draft(cut_at: int, anchors: Sequence[int] = (), **given: Any) -> Draft:
    sizes = {"window": 8192, "tokenizer": "words", "tokens_fixed": 100, "tokens_reserved": 50, "tokens_before": 900}
    return Draft(cut_at=cut_at, anchors=anchors, **(sizes | given))


def begun(
    store: Store, session_id: str, cut_at: int, anchors: Sequence[int] = (), *, watch: Watch | None = None,
    view: LiveView | None = None, **given: Any,
) -> Running:
    seen, wanted = view or view_of(store, session_id), draft(cut_at, anchors, **given)
    return begin(store.core, seen, wanted, watch=watch or Watch(store.core))


def made(summary: str | None = "what was said", *, clips: Mapping[int, Clip] | None = None) -> Made:
    return Made(
        summary=summary, form="none" if summary is None else "model", tokens_after=300, clips=clips or {},
        summarizer="test",
    )


def compact(
    store: Store, session_id: str, cut_at: int, anchors: Sequence[int] = (), *, summary: str | None = "what was said",
    clips: Mapping[int, Clip] | None = None,
) -> Generation:
    """One generation, begun and committed; the messages of the view below `cut_at` but for the anchors go."""
    return commit(store.core, begun(store, session_id, cut_at, anchors), made(summary, clips=clips))


def talk(store: Store, messages: int, session_id: str = "s") -> list[int]:
    """A session of so many messages, "m1" of the user, "m2" of the assistant, ...; returns their ids."""
    store.sessions.create(id=session_id, source="cli")
    return store.messages.append_many(session_id, [
        {"role": "user" if number % 2 else "assistant", "content": f"m{number}"} for number in range(1, messages + 1)
    ])


def contents(store: Store, session_id: str = "s") -> list[Any]:
    return [message["content"] for message in store.messages.context(session_id)]
