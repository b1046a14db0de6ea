"""Everything about one session, and as many of its messages as asked for.

Invariant: facts come from one snapshot; messages are fetched by id, the first and the last few unless all are asked
for, and then streamed. Not for: search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from maintenance.dialects.base import Dialect, MessageRow, SessionRow, UsageRow
from maintenance.lineage import Forest, Kind
from maintenance.marks import Marks
from maintenance.selection.select import marked

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """How the session relates to others."""

    kind: Kind  # what it is to its parent
    parent_id: str | None  # the parent link, present in the file or not
    parent_exists: bool  # whether that session is in the file
    root: str  # first segment of its conversation
    tip: str  # segment that goes on
    segments: tuple[str, ...]  # all segments, root first
    branches: tuple[str, ...]  # conversations that began as a copy of it
    delegates: tuple[str, ...]  # work handed out by it, theirs included


@dataclass(frozen=True, kw_only=True)
class SessionPage:
    """The facts of one session."""

    row: SessionRow  # the session
    lineage: Lineage  # its relations
    usage: tuple[UsageRow, ...]  # per model, where the file records it
    roles: Mapping[str, int]  # message rows by role
    message_rows: int  # message rows in the table, whatever the counter says
    message_bytes: int  # bytes of their text
    guard: str | None  # what protects it from deletion right now
    message_ids: tuple[int, ...]  # the messages to show, in order


def session_page(
    store: ReadStore,
    dialect: Dialect,
    marks: Marks,
    session_id: str,
    now: float,
    *,
    first: int,
    last: int,
    every_message: bool = False,
) -> SessionPage:
    """Read the facts of a session that exists. Call it inside a snapshot."""
    row = dialect.sessions(store, [session_id])[session_id]
    row = replace(row, facts=marked(row.facts, marks))
    forest = Forest(dialect.lineage(store))
    parent = row.facts.parent_id
    lineage = Lineage(
        kind=forest.kind(session_id),
        parent_id=parent,
        parent_exists=parent is not None and parent in forest,
        root=forest.root(session_id),
        tip=forest.tip(session_id),
        segments=forest.segments(session_id),
        branches=tuple(key for key in forest.children(session_id) if forest.kind(key) is Kind.BRANCH),
        delegates=forest.delegates([session_id]),
    )
    roles = dialect.role_counts(store, session_id)
    wanted = {"first": 0, "last": 0} if every_message else {"first": first, "last": last}
    ids = dialect.message_ids(store, session_id, **wanted) if every_message or first or last else []
    return SessionPage(
        row=row,
        lineage=lineage,
        usage=tuple(dialect.usage(store, session_id)),
        roles=roles,
        message_rows=sum(roles.values()),
        message_bytes=dialect.message_bytes(store, [session_id])[session_id],
        guard=dialect.guards(store, [session_id], now).get(session_id),
        message_ids=tuple(ids),
    )


def page_messages(store: ReadStore, dialect: Dialect, page: SessionPage) -> Iterator[MessageRow]:
    """The messages of the page, streamed."""
    return dialect.messages(store, page.message_ids)
