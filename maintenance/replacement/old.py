"""Tables of the content that goes away: whether they are there, whole, and have a place in the new content.

Invariant: what cannot be read counts as there and not whole, never as nothing. Not for: what is done with the rows
(`owing`, `serving`, `routing`, `cron`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.engine.migrate import migrate
from hermes_state.errors import StorageError
from maintenance.dialects.native.owed import Ask

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore


@dataclass(frozen=True, kw_only=True)
class Old:
    """Some tables of the content that goes away."""

    ask: Ask  # gives rows of it, while it is there
    there: bool  # whether it has the tables
    whole: bool  # whether all of them can be read, and nothing stands where SQLite does not read


def look_at(ask: Ask, has: Callable[[Ask], bool], tables: Iterable[str], *, hidden: bool) -> Old:
    """Look at tables of the old content. `has`: whether it has them; `hidden`: commits may stand in its WAL that SQLite
    does not see."""
    try:
        there = has(ask)
    except StorageError:
        return Old(ask=ask, there=False, whole=False)
    try:
        sound = there and all(ask(f"PRAGMA integrity_check('{name}')") == [("ok",)] for name in sorted(tables))
    except StorageError:
        sound = False
    return Old(ask=ask, there=there, whole=sound and not hidden)


def make_room(
    store: ExclusiveStore, old: Old, clock: Clock, has: Callable[[Ask], bool], anything: Callable[[Ask], bool]
) -> bool:
    """Bring a private copy from before the tables up, when `anything` of the old content must go into them; whether the
    copy has them."""
    if has(store.rows):
        return True
    try:
        needed = old.there and anything(old.ask)
    except StorageError:
        needed = old.there
    return needed and bring_up(store, clock, has)


def bring_up(store: ExclusiveStore, clock: Clock, has: Callable[[Ask], bool]) -> bool:
    """Bring a private copy to the present schema; whether it has the tables then."""
    migrate(store, clock=clock)
    return has(store.rows)
