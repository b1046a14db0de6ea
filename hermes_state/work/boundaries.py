"""Whether an end may still be told where its work was begun: a table over what became of the conversation.

Invariant: pure over what is read. A person who began anew (`/new`, a stop, a deletion) is not told of what the old
conversation had begun: that result is dropped there and stays readable. A conversation that was only continued in
another session is the same one.

    what became of it                               verdict
    no routing key, its session was not deleted     deliver
    no routing key, its session was deleted         drop
    the entry is of the generation it began in      deliver, in the session that it has now
    the entry is of a later generation              drop
    the entry is suspended or expired               drop: only a new session goes on
    the entry is gone, there was one                drop
    there was none, now it has its session          deliver
    there was none, now it has another session      drop
    there was none, and there is none               deliver

Not for: whether a transport is up (the outbox). Asking only when the work was begun was rejected: the person says
`/new` while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.errors import SessionDeleted, SessionNotFound
from hermes_state.routing.records import read as read_route
from hermes_state.routing.sessions import conversation

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.routing import Route
    from hermes_state.work.background import BackgroundWork


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Where background work is told now."""

    deliver: bool
    why: str  # completes "it is dropped: ..."; "" when it is delivered
    session_id: str | None  # in which it goes on now
    route: Route | None  # its entry: whose bot answers, and where; None when it has none


def conversation_of(reader: Reader, work: BackgroundWork) -> Conversation:
    """What became of the conversation of background work."""
    if work.session_key is None:
        if work.session_id is None or not _deleted(reader, work.session_id):
            return Conversation(deliver=True, why="", session_id=work.session_id, route=None)
        return _drop("its session was deleted")
    route = read_route(reader, work.session_key)
    if route is None:
        if work.generation is None:
            return Conversation(deliver=True, why="", session_id=work.session_id, route=None)
        return _drop("its chat was forgotten")
    if not route.goes_on:
        return _drop(f"its conversation is {route.state}", route)
    if work.generation is None:
        same = work.session_id is None or _goes_on_in(reader, route.session_id, work.session_id)
    else:
        same = route.generation == work.generation
    if not same:
        return _drop("its chat has begun a new conversation since", route)
    return Conversation(deliver=True, why="", session_id=route.session_id, route=route)


def _drop(why: str, route: Route | None = None) -> Conversation:
    return Conversation(deliver=False, why=why, session_id=None, route=route)


def _deleted(reader: Reader, session_id: str) -> bool:
    """A session that was never in this store is somebody else's, and was not deleted here."""
    try:
        conversation(reader, session_id)
    except SessionDeleted:
        return True
    except SessionNotFound:
        return False
    return False


def _goes_on_in(reader: Reader, session_id: str, before: str) -> bool:
    try:
        return before in conversation(reader, session_id)
    except (SessionNotFound, SessionDeleted):
        return False
