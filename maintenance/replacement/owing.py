"""What a store owes, once its content is replaced by older content: nothing that was sent is owed again.

Invariant: where the old content can be read whole, its verdicts, attempts, fences and later obligations go into the new
content, and its horizon does not fall. Where it cannot, what the new content owes may have been sent since: at most
once it is `unknown`, at least once it is due and marked; and every id made until now whose row is not there is too old.

Not for: content that was made of the store's own rows while nobody could write. Leaving the rows as a backup has them
was rejected: a stop or a reply that went out after the backup would go out once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.errors import StorageError
from maintenance.dialects.native import owed
from maintenance.replacement import old as old_content
from maintenance.replacement.old import Old, look_at

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore

# A fence counts claims. More than this many since the last backup would be one a second for eleven days.
FENCE_LEAP = 1_000_000


def old_owed(ask: owed.Ask, *, hidden: bool) -> Old:
    """Look at what the old content owes. `hidden`: commits may stand in its WAL that SQLite does not see."""
    return look_at(ask, owed.has_outbox, owed.TABLES, hidden=hidden)


def make_room(store: ExclusiveStore, old: Old, clock: Clock) -> bool:
    """Bring a private copy from before the outbox up, when the old content owes; whether the copy has the tables."""
    return old_content.make_room(store, old, clock, owed.has_outbox, _anything)


def _anything(ask: owed.Ask) -> bool:
    return bool(ask("SELECT 1 FROM outbox UNION ALL SELECT 1 FROM outbox_horizon LIMIT 1"))


def carry_over(tx: owed.Writer, old: Old, *, same_store: bool, at: float) -> owed.Carried:
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
