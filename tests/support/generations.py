"""Generations of every state, clips and late passes, made through the library's own rows: for tests of what keeps them.

Not for: tests of planning, of passes or of guards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hermes_state.compaction.clips import BodyClip, Clip
from hermes_state.compaction.generations import (
    Draft,
    Generation,
    Made,
    Running,
    Watch,
    begin,
    commit,
    fail,
)
from hermes_state.store import Store
from tests.support.compacting import view_of

SUMMARY = "Summary: the moon has a diameter of 3,474 km."
SHORT = Clip(bodies=(BodyClip(path=("content",), kind="text", head=10, tail=10),))


def started(
    store: Store, session_id: str, *, cut_at: int, anchors: Iterable[int] = (), term_seconds: float = 60.0,
    **facts: Any,
) -> Running:
    """A pass that has begun."""
    wanted: dict[str, Any] = {
        "window": 8192, "tokenizer": "estimate", "tokens_fixed": 100, "tokens_reserved": 1024, "tokens_before": 5000,
    }
    draft = Draft(cut_at=cut_at, anchors=tuple(anchors), **(wanted | facts))
    return begin(store.core, view_of(store, session_id), draft, watch=Watch(store.core), term_seconds=term_seconds)


def compacted(
    store: Store, session_id: str, *, cut_at: int, anchors: Iterable[int] = (), summary: str | None = SUMMARY,
    clips: Mapping[int, Clip] | None = None,
) -> Generation:
    """A generation that is done, and the head of its session."""
    form: Any = "none" if summary is None else "extractive"
    made = Made(summary=summary, form=form, tokens_after=900, clips=clips or {}, summarizer="extractive")
    return commit(store.core, started(store, session_id, cut_at=cut_at, anchors=anchors), made)


def failed(store: Store, session_id: str, *, cut_at: int) -> None:
    """A pass whose summariser gave up."""
    fail(store.core, started(store, session_id, cut_at=cut_at), RuntimeError("no answer"))


def superseded(store: Store, session_id: str, *, cut_at: int) -> Generation:
    """A pass whose session got another view meanwhile."""
    running = started(store, session_id, cut_at=cut_at)
    message = store.messages.append(session_id, role="user", content="taken back at once")
    store.messages.rewind(session_id, message)
    return commit(store.core, running, Made(summary="Too late.", form="model", tokens_after=10))
