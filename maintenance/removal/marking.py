"""Archive, pin and title: facts about sessions that change nothing else and can be set back.

Invariant: a flag covers all segments of a conversation. It goes into the file's own column where there is one, in
transactions of a few rows, and into the marks beside the store where there is none. Setting what is set already changes
nothing and says so.

Not for: deleting. Adding the missing column was rejected: the schema of the file belongs to hermes-agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hermes_state.errors import InvalidInput, NotFound
from maintenance.dialects.base import Dialect, SessionRow
from maintenance.dialects.cells import chunks
from maintenance.dialects.detect import dialect_of
from maintenance.dialects.foreign.titles import sanitize_title
from maintenance.gate import online, reading
from maintenance.lineage import Forest, KeptUnit
from maintenance.marks import Marks, read_marks, set_mark
from maintenance.output.progress import progress
from maintenance.reading.resolve import resolve_session
from maintenance.removal.pacing import ONLINE_ROWS, Pace
from maintenance.removal.record import deed_of
from maintenance.selection import Filters, removal_units, select

if TYPE_CHECKING:
    from hermes_state.engine import ReadStore
    from maintenance.context import Context

Flag = Literal["archived", "pinned"]
Place = Literal["column", "marks"]


@dataclass(frozen=True, kw_only=True)
class Flagging:
    """Sessions whose flag would change, and those that stay as they are."""

    # The flag and the value that it gets.
    flag: Flag
    value: bool
    # What the tables mean.
    dialect: Dialect
    # Conversations meant: the id that lists show, and all segments.
    conversations: Mapping[str, tuple[str, ...]]
    # Sessions to change, segments included; empty when all is as asked.
    ids: tuple[str, ...]
    # Rows of all segments, by id.
    rows: Mapping[str, SessionRow]
    # Conversations that filters chose and that keep their flag, with the reason.
    kept: tuple[KeptUnit, ...] = ()

    @property
    def place(self) -> Place:
        """Where this file keeps the flag."""
        has = self.dialect.has_archived if self.flag == "archived" else self.dialect.has_pinned
        return "column" if has else "marks"


def by_name(ctx: Context, names: Sequence[str], flag: Flag, value: bool) -> Flagging:
    """The conversations that these ids, starts of ids or titles name."""
    with reading(ctx) as store, store.snapshot():
        dialect, marks = dialect_of(store), read_marks(store.path)
        forest = Forest(dialect.lineage(store))
        named = [resolve_session(store, dialect, name) for name in names]
        return _flagging(store, dialect, marks, forest, named, flag, value)


def by_filters(ctx: Context, filters: Filters, flag: Flag, value: bool) -> Flagging:
    """The conversations that the filters choose; pinned ones only when they say so."""
    # What is archived already must be seen, both to take it back and to say that it is done.
    wide = filters if value else replace(filters, include_archived=True, include_pinned=True)
    with reading(ctx) as store, store.snapshot(), progress(None, "choosing sessions"):
        dialect, marks = dialect_of(store), read_marks(store.path)
        now = ctx.clock.now()
        selection = select(store, dialect, marks, wide, now)
        units = removal_units(store, dialect, marks, selection, now, deletes=False)
        chosen = [unit.tip for unit in units.removable]
        found = _flagging(store, dialect, marks, selection.forest, chosen, flag, value)
        return replace(found, kept=units.kept)


def apply(ctx: Context, verb: str, flagging: Flagging) -> int:
    """Set the flag; returns the sessions that changed."""
    value = flagging.value
    if flagging.place == "marks":
        return set_mark(ctx.db, flagging.ids, flagging.flag, value)
    changed = 0
    pace, deed = Pace.online(), deed_of(verb, ctx.clock, "")
    with online(ctx, verb) as opened:
        setter = flagging.dialect.set_archived if flagging.flag == "archived" else flagging.dialect.set_pinned
        for some in chunks(flagging.ids, ONLINE_ROWS):
            asked = ctx.clock.monotonic()
            with opened.store.transaction() as tx:
                began = ctx.clock.monotonic()
                changed += setter(tx, some, value, deed)
            pace.rest(ctx.clock, waited_seconds=began - asked, held_seconds=ctx.clock.monotonic() - began)
    if not value:
        # A mark and a column add up, so taking the flag back clears both.
        set_mark(ctx.db, flagging.ids, flagging.flag, False)
    return changed


@dataclass(frozen=True, kw_only=True)
class Renaming:
    """One change of a title."""

    # The session that carries the title: the last part of its conversation.
    session_id: str
    # The title before.
    before: str | None
    # The title as stored, or as it would be.
    after: str | None

    @property
    def already_done(self) -> bool:
        """Whether nothing changes."""
        return self.before == self.after


def plan_rename(ctx: Context, name: str, title: str) -> Renaming:
    """Which session would get which title, by the rules of the file."""
    with reading(ctx) as store:
        dialect = dialect_of(store)
        found = resolve_session(store, dialect, name)
        tip = Forest(dialect.lineage(store)).tip(found)
        row = dialect.sessions(store, [tip]).get(tip)
    if row is None:
        raise NotFound(f"No session {tip!r} in {ctx.db}.", session_id=tip)
    wanted = sanitize_title(title)
    if wanted is None:
        raise InvalidInput("The title has no visible character.", hint="Give the new title after the id.")
    return Renaming(session_id=tip, before=row.title, after=wanted)


def rename(ctx: Context, verb: str, planned: Renaming) -> Renaming:
    """Store the title in one short transaction."""
    if planned.already_done:
        return planned
    with online(ctx, verb) as opened:
        dialect = dialect_of(opened.store)
        with opened.store.transaction() as tx:
            after = dialect.set_title(tx, planned.session_id, planned.after, deed_of(verb, ctx.clock, "named"))
    return replace(planned, after=after)


def _flagging(
    store: ReadStore,
    dialect: Dialect,
    marks: Marks,
    forest: Forest,
    named: Sequence[str],
    flag: Flag,
    value: bool,
) -> Flagging:
    conversations = {forest.tip(key): forest.segments(key) for key in named}
    members = list(dict.fromkeys(key for segments in conversations.values() for key in segments))
    rows = dialect.sessions(store, members)
    marked = marks.archived if flag == "archived" else marks.pinned
    differing = tuple(key for key in members if key in rows and _has(rows[key], key in marked, flag) is not value)
    return Flagging(
        flag=flag, value=value, dialect=dialect, conversations=conversations, ids=differing, rows=rows
    )


def _has(row: SessionRow, marked: bool, flag: Flag) -> bool:
    return marked or (row.facts.archived if flag == "archived" else row.facts.pinned)
