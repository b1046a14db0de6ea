"""Whether an end may still be told where its work was begun: a table over what became of the conversation.

Invariant: pure over what is read. A person who began anew (`/new`, a stop, a deletion) is not told of what the old
conversation had begun: that result is dropped there and stays readable. A conversation that was only continued in
another session is the same one.

    what became of it                               verdict
    no routing key, its session was not deleted     deliver, in the session that it goes on in
    no routing key, its session was deleted, or     drop
      every session that it goes on in
    the entry is of the generation it began in      deliver, in the session that it has now or that this one goes on in
    the same, and that session was deleted          drop
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

from hermes_state.conversation.lineage import tip_no
from hermes_state.conversation.session_rows import left_over, session_no
from hermes_state.errors import InvalidInput, SessionDeleted, SessionNotFound
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
        return _in(reader, work.session_id, None)
    route = read_route(reader, work.session_key)
    if route is None:
        if work.generation is None:
            return _in(reader, work.session_id, None)
        return _drop("its chat was forgotten")
    if not route.goes_on:
        return _drop(f"its conversation is {route.state}", route)
    if work.generation is None:
        same = work.session_id is None or _goes_on_in(reader, route.session_id, work.session_id)
    else:
        same = route.generation == work.generation
    if not same:
        return _drop("its chat has begun a new conversation since", route)
    return _in(reader, route.session_id, route)


def _in(reader: Reader, session_id: str | None, route: Route | None) -> Conversation:
    """Told in the session that this one goes on in: one that was compacted, or is gone, takes nothing."""
    if session_id is None:
        return Conversation(deliver=True, why="", session_id=None, route=route)
    try:
        no = session_no(reader, session_id)
    except (SessionNotFound, InvalidInput):  # never in this store: it is somebody else's, and was not deleted here
        return Conversation(deliver=True, why="", session_id=session_id, route=route)
    except SessionDeleted:
        return _drop("its session was deleted", route)
    tip = reader.row(
        f"SELECT id FROM sessions s WHERE no = ? AND state <> 'replaced' AND NOT {left_over('s')}",
        (tip_no(reader, no),),
    )
    if tip is None:
        return _drop("the session that it went on in was deleted", route)
    return Conversation(deliver=True, why="", session_id=str(tip[0]), route=route)


def _drop(why: str, route: Route | None = None) -> Conversation:
    return Conversation(deliver=False, why=why, session_id=None, route=route)


def _goes_on_in(reader: Reader, session_id: str, before: str) -> bool:
    try:
        return before in conversation(reader, session_id)
    except (SessionNotFound, SessionDeleted):
        return False
