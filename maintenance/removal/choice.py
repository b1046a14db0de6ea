"""What a deleting verb is about to remove, read once without any lock.

Invariant: a choice is a plan, not a permission: each deleting transaction compares it with the store again. It says
what goes, what was chosen and stays with the reason, and which rows need the search index's own tokenizer.

Not for: filters (`selection`), lineage (`lineage`), asking (`commands`). Choosing under the lock was rejected: the lock
would be held while a person reads the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from hermes_state.engine import NulRule
from hermes_state.errors import SessionGuarded
from maintenance.dialects.base import Dialect, SessionRow
from maintenance.dialects.detect import dialect_of
from maintenance.lineage import Forest, Unit, Units
from maintenance.marks import Marks, read_marks
from maintenance.reading.resolve import resolve_session
from maintenance.removal.files import SessionFiles
from maintenance.removal.limits import Goal, effective_filters, within_limits
from maintenance.removal.nul_text import sessions_to_cut
from maintenance.removal.recheck import Snapshot
from maintenance.selection import Filters, Limits, removal_units, select
from maintenance.selection.select import marked
from maintenance.space.litestream import Litestream, litestream
from maintenance.space.sizes import Sizes, pragma, sizes

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_state.engine import ReadStore

NO_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Sessions that may go, and everything a plan says about them."""

    # The store.
    path: Path
    # What its tables mean.
    dialect: Dialect
    # The filters that chose; None when sessions were named.
    filters: Filters | None
    # What goes and what stays.
    units: Units
    # The sessions that go, by id.
    rows: Mapping[str, SessionRow]
    # What each deleting transaction compares with.
    snapshot: Snapshot
    # Message rows of the sessions that go, by id.
    messages: Mapping[str, int]
    # Bytes of their text.
    text_bytes: int
    # Compactions of theirs that go.
    compactions: int
    # Chats whose next message begins a new session then.
    chats: int
    # Cron jobs whose next run begins a new session then.
    jobs: int
    # Files beside the store that go with them.
    files: int
    # Sessions of the whole store.
    total_sessions: int
    # Sessions that match and were not looked at further: archived ones, delegates of others, hidden ones.
    left_out: Mapping[str, int]
    # Sessions whose delete must tokenize up to the first NUL only.
    cut: frozenset[str]
    # Size of the store.
    sizes: Sizes
    # Value of PRAGMA auto_vacuum.
    auto_vacuum: int
    # Signs of a replica.
    litestream: Litestream
    # Whether an earlier deletion left rows that nobody sees, to be finished first.
    left_behind: bool = False
    # Limits besides the filters.
    limits: Limits = NO_LIMITS
    # What a size limit comes to; None without one.
    goal: Goal | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Every session that goes."""
        return self.units.ids

    @property
    def message_count(self) -> int:
        """Message rows that go."""
        return sum(self.messages.values())

    @property
    def delegates(self) -> int:
        """Sessions that go only because of the one that handed the work out."""
        return len(self.ids) - len({key for unit in self.units.removable for key in unit.segments})

    @property
    def is_large(self) -> bool:
        """Whether more than half of all sessions would go."""
        return 2 * len(self.ids) > self.total_sessions

    @cached_property
    def parts(self) -> tuple[tuple[NulRule, tuple[Unit, ...]], ...]:
        """The units by the tokenizer that deleting them needs, the fast one first."""
        plain = tuple(unit for unit in self.units.removable if self.cut.isdisjoint(unit.ids))
        other = tuple(unit for unit in self.units.removable if not self.cut.isdisjoint(unit.ids))
        return tuple((rule, units) for rule, units in ((NulRule.NATIVE, plain), (NulRule.CUT, other)) if units)

    def named(self) -> Mapping[str, Any]:
        """The filters and limits as plain values, for the plan and the ledger."""
        return (self.filters.facts() if self.filters is not None else {}) | self.limits.facts()


def choose_for_prune(store: ReadStore, filters: Filters, now: float, *, limits: Limits = NO_LIMITS) -> Choice:
    """What a prune with these filters and limits would remove."""
    with store.snapshot():
        dialect, marks = dialect_of(store), read_marks(store.path)
        effective = effective_filters(filters, limits)
        selection = select(store, dialect, marks, effective, now)
        if limits.given:
            units, goal = within_limits(store, dialect, marks, selection, limits, now)
        else:
            units, goal = removal_units(store, dialect, marks, selection, now, deletes=True), None
        left_out = {
            "archived": selection.left_out.archived,
            "delegates": selection.left_out.delegates,
            "hidden": selection.left_out.hidden,
        }
        choice = _choice(
            store, dialect, marks, units, filters=effective, left_out=left_out, pinned_too=effective.include_pinned
        )
        return replace(choice, limits=limits, goal=goal)


def choose_by_name(store: ReadStore, names: Sequence[str], now: float, *, only_look: bool = False) -> Choice:
    """What deleting these sessions would remove: whole conversations, with what they handed out.

    A guarded one among them refuses all; for a caller that will `only_look` it is among what stays, with the reason.
    """
    with store.snapshot():
        dialect, marks = dialect_of(store), read_marks(store.path)
        ids = [resolve_session(store, dialect, name, titles=False) for name in names]
        forest = Forest(dialect.lineage(store))
        units = forest.units(ids, {}, whole=False)
        guards = dialect.guards(store, units.ids, now)
        if guards and not only_look:
            raise guarded(guards)
        if guards:
            units = forest.units(ids, guards, whole=False)
        return _choice(store, dialect, marks, units, filters=None, left_out={}, pinned_too=True)


def guarded(guards: Mapping[str, str]) -> SessionGuarded:
    """A session that was named and is in use stops the whole request: nothing is deleted by half."""
    session_id, reason = next(iter(guards.items()))
    others = len(guards) - 1
    more = f" {others} more of them {'is' if others == 1 else 'are'} protected too." if others else ""
    return SessionGuarded(
        f"Session {session_id} cannot be deleted now: {reason}.{more} Nothing was deleted.",
        hint="Wait until it is finished, or leave it out.",
        session_id=session_id,
        guard=reason,
    )


def _choice(
    store: ReadStore,
    dialect: Dialect,
    marks: Marks,
    units: Units,
    *,
    filters: Filters | None,
    left_out: Mapping[str, int],
    pinned_too: bool,
) -> Choice:
    ids = units.ids
    files = SessionFiles(store.path, partial(dialect.ids_with_prefix, store))
    rows = {
        key: replace(row, facts=marked(row.facts, marks)) for key, row in dialect.sessions(store, ids).items()
    }
    return Choice(
        path=store.path,
        dialect=dialect,
        filters=filters,
        units=units,
        rows=rows,
        snapshot=Snapshot(
            facts={key: row.facts for key, row in rows.items()},
            newest_message=dialect.newest_message(store),
            children=dialect.children(store, ids),
            pinned_too=pinned_too,
        ),
        messages=dialect.message_counts(store, ids),
        text_bytes=sum(dialect.message_bytes(store, ids).values()),
        compactions=dialect.compaction_count(store, ids),
        chats=dialect.chat_count(store, ids),
        jobs=dialect.job_count(store, ids),
        files=sum(len(files.of(key)) for key in ids),
        total_sessions=dialect.session_count(store),
        left_out=left_out,
        cut=sessions_to_cut(store, dialect, ids),
        sizes=sizes(store),
        auto_vacuum=pragma(store, "auto_vacuum"),
        litestream=litestream(store),
        left_behind=dialect.left_behind(store),
    )
