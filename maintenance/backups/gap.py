"""What the store has and the backup has not: the gap that a restore opens.

Invariant: both sides are only read, and rows are told apart by their ids, in the order of their ids, so memory does
not grow with the store. A store that cannot be read has an unknown gap, which is said and never taken for none.

Not for: rows that differ under one id; counts by table show that there may be some.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.clock import Clock
from hermes_state.engine import open_read
from hermes_state.engine.whole_file import settle_private
from hermes_state.errors import NotFound, StateError, StorageError
from maintenance.backups.catalog import removed_after, working_name
from maintenance.backups.content import stored_tables
from maintenance.dialects.native.shape import native_identity
from maintenance.replacement.child import run
from maintenance.space.verify import row_counts

if TYPE_CHECKING:
    from hermes_state.engine import Reader

EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What would be gone from the store."""

    readable: bool  # False: the store is missing or cannot be read, and nothing below is known
    why: str  # why not, one sentence; empty when it is readable
    store_id: str | None  # identity of the store, None for a file that is not native
    is_native: bool | None  # None when it cannot be told
    sessions: int  # sessions in the store
    sessions_missing: int  # of them, how many the backup lacks
    sessions_shared: int  # how many both have
    examples: tuple[str, ...]  # ids of the newest of the missing ones
    messages_missing: int  # messages that the backup lacks
    lowest_missing_id: int | None  # of those messages
    highest_missing_id: int | None  # of those messages
    first_missing_at: float | None  # epoch seconds UTC, of those messages
    last_missing_at: float | None  # the same, of the newest
    tables: dict[str, tuple[int, int]]  # rows in the store and in the backup, where they differ

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "known": self.readable, "why_not": self.why, "sessions": self.sessions_missing,
            "examples": list(self.examples), "messages": self.messages_missing,
            "lowest_message_id": self.lowest_missing_id, "highest_message_id": self.highest_missing_id,
            "first_at": self.first_missing_at, "last_at": self.last_missing_at,
            "tables": {name: {"store": mine, "backup": theirs} for name, (mine, theirs) in self.tables.items()},
        }


def unknown(why: str) -> Gap:
    """The gap of a store that cannot be read."""
    return Gap(
        readable=False, why=why, store_id=None, is_native=None, sessions=0, sessions_missing=0, sessions_shared=0,
        examples=(), messages_missing=0, lowest_missing_id=None, highest_missing_id=None, first_missing_at=None,
        last_missing_at=None, tables={},
    )


def gap_between(store: Path, copy: Path, clock: Clock) -> Gap:
    """Compare the store with the private database out of a backup.

    A store with an unfinished change in its rollback journal can only be read by undoing that: in a copy, for now.
    """
    if not has_journal(store):
        return _between(store, copy, clock)
    working = working_name(store.with_name(f"{store.stem}-undoing.db"))
    with removed_after(working):
        for ending in ("", "-journal"):
            run(
                "copy", store, names=[f"{store.name}{ending}"], source=str(store.parent), to=str(store.parent),
                target=f"{working.name}{ending}",
            )
        try:
            settle_private(working)
        except StorageError as error:
            if error.exit_code != 65:
                raise
            return unknown(f"The store cannot be read: {error}")
        return _between(working, copy, clock)


def has_journal(store: Path) -> bool:
    """Whether a rollback journal with content lies beside it; SQLite undoes it when it opens the store to write."""
    journal = Path(f"{store}-journal")
    return store.exists() and journal.is_file() and journal.stat().st_size > 0


def _between(store: Path, copy: Path, clock: Clock) -> Gap:
    try:
        with open_read(store, clock=clock) as live, live.snapshot(), open_read(copy, clock=clock) as other:
            return _gap(live, other)
    except NotFound:
        return unknown(f"There is no store at {store}.")
    except StorageError as error:
        if error.exit_code != 65:
            raise
        return unknown(f"The store cannot be read: {error}")
    except UnicodeDecodeError as error:
        return unknown(f"The store cannot be read: {error}")


def _gap(live: Reader, other: Reader) -> Gap:
    try:
        identity = native_identity(live)
    except StateError as error:
        return unknown(f"The store cannot be read: {error}")
    tables, theirs = stored_tables(live), stored_tables(other)
    if not {"sessions", "messages"} <= {*tables}:
        return unknown(f"{live.path} has no sessions and messages.")
    mine_counts, their_counts = row_counts(live, tables), row_counts(other, theirs)
    differing = {
        name: (mine_counts.get(name, 0), their_counts.get(name, 0))
        for name in sorted({*mine_counts, *their_counts})
        if mine_counts.get(name, 0) != their_counts.get(name, 0)
    }
    missing = shared = 0
    newest: list[tuple[float, str]] = []
    sql = "SELECT CAST(id AS TEXT), started_at FROM sessions WHERE id IS NOT NULL ORDER BY CAST(id AS TEXT)"
    for name, started in _only_in(live.iterate(sql), other.iterate(sql)):
        if name is None:
            shared += 1
            continue
        missing += 1
        newest = sorted([*newest, (float(started or 0), str(name))], reverse=True)[:EXAMPLES]
    messages = lowest = highest = 0
    first: float | None = None
    last: float | None = None
    sql = f"SELECT id, {'created_at' if identity else 'timestamp'} FROM messages ORDER BY id"
    theirs_sql = f"SELECT id, {'created_at' if native_identity(other) else 'timestamp'} FROM messages ORDER BY id"
    # Equal ids in another store, or beside other sessions, are other messages: then all of them would be gone.
    theirs_id = native_identity(other)
    same = shared > 0 and (identity and identity.store_id) == (theirs_id and theirs_id.store_id)
    there = other.iterate(theirs_sql) if same else iter(())
    for number, moment in _only_in(live.iterate(sql), there):
        if number is None:
            continue
        messages += 1
        lowest, highest = lowest or number, number
        if isinstance(moment, (int, float)):
            first = moment if first is None else min(first, moment)
            last = moment if last is None else max(last, moment)
    return Gap(
        readable=True, why="", store_id=identity.store_id if identity else None, is_native=identity is not None,
        sessions=mine_counts["sessions"], sessions_missing=missing, sessions_shared=shared,
        examples=tuple(name for _started, name in newest), messages_missing=messages,
        lowest_missing_id=lowest or None, highest_missing_id=highest or None, first_missing_at=first,
        last_missing_at=last, tables=differing,
    )


def _only_in(
    mine: Iterator[tuple[Any, ...]], theirs: Iterator[tuple[Any, ...]]
) -> Iterator[tuple[Any, Any]]:
    """Rows whose first cell, by which both are ordered, only `mine` has; (None, None) for each that both have."""
    other = next(theirs, None)
    for row in mine:
        while other is not None and other[0] < row[0]:
            other = next(theirs, None)
        if other is not None and other[0] == row[0]:
            yield None, None
        else:
            yield row[0], row[1]
