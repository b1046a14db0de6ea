"""What a store owes, once its content is replaced by older content: nothing that was sent is owed again.

Invariant: where the old content can be read whole, its verdicts, attempts, fences and later obligations go into the new
content, and its horizon does not fall. Where it cannot, what the new content owes may have been sent since: at most
once it is `unknown`, at least once it is due and marked; and every id made until now whose row is not there is too old.

Not for: content that was made of the store's own rows while nobody could write. Leaving the rows as a backup has them
was rejected: a stop or a reply that went out after the backup would go out once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.engine.migrate import migrate
from hermes_state.errors import StorageError
from maintenance.dialects.native import owed

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore

# A fence counts claims. More than this many since the last backup would be one a second for eleven days.
FENCE_LEAP = 1_000_000


@dataclass(frozen=True, kw_only=True)
class OldOwed:
    """What the content that goes away owes."""

    ask: owed.Ask  # gives rows of it, while it is there
    there: bool  # whether it has the tables
    whole: bool  # whether all of it can be read, and nothing stands where SQLite does not read


def old_owed(ask: owed.Ask, *, hidden: bool) -> OldOwed:
    """Look at the old content. `hidden`: commits may stand in its WAL that SQLite does not see."""
    try:
        there = owed.has_outbox(ask)
    except StorageError:
        return OldOwed(ask=ask, there=False, whole=False)
    try:
        sound = there and all(
            ask(f"PRAGMA integrity_check('{table}')") == [("ok",)] for table in sorted(owed.TABLES)
        )
    except StorageError:
        sound = False
    return OldOwed(ask=ask, there=there, whole=sound and not hidden)


def needs_outbox(old: OldOwed) -> bool:
    """Whether the old content has anything that new content must have a place for."""
    try:
        return old.there and bool(old.ask("SELECT 1 FROM outbox UNION ALL SELECT 1 FROM outbox_horizon LIMIT 1"))
    except StorageError:
        return old.there


def make_room(store: ExclusiveStore, old: OldOwed, clock: Clock) -> bool:
    """Bring a private copy from before the outbox up, when the old content owes; whether the copy has the tables."""
    if owed.has_outbox(store.rows):
        return True
    if not needs_outbox(old):
        return False
    migrate(store, clock=clock)
    return owed.has_outbox(store.rows)


def carry_over(tx: owed.Writer, old: OldOwed, *, same_store: bool, at: float) -> owed.Carried:
    """Let what is known of the old content hold in the new. `at` is now, epoch seconds UTC."""
    carrier = owed.Carrier(tx, at=at, leap=1 if old.whole else FENCE_LEAP)
    if not same_store or not old.there:
        carrier.doubt_all()
        carrier.raise_horizon(at)
        return carrier.carried
    if old.whole:
        forgotten_to, given = owed.horizon_of(old.ask), owed.last_number(old.ask)
        carrier.raise_numbers(given)
        carrier.raise_horizon(forgotten_to)
        for rows in owed.portions(old.ask):
            carrier.take(rows, certain=True)
        carrier.doubt_the_rest(forgotten_to=forgotten_to, given=given)
        return carrier.carried
    try:
        carrier.raise_numbers(owed.last_number(old.ask))
        for rows in owed.portions(old.ask):
            carrier.take(rows, certain=False)
    except StorageError:
        pass  # as far as it can be read; the rest is judged like what was not there
    carrier.doubt_all()
    carrier.raise_horizon(at)
    return carrier.carried
