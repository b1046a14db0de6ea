"""Credentials of a store, once its content is replaced by older content: no token that works once is sent again.

Invariant: the rows of the old content stand, as far as they can be read, because they know which tokens were sent; the
secret files are the caller's and are not replaced. Where the old content is whole, a credential that only the new one
has was removed since, and stays away. Where nothing of it can be read, the new content's rows stand.

Not for: tokens themselves, which no store has. Leaving the rows as a backup has them was rejected: it would not know
that a token was sent whose answer was lost, and send it again; a provider that burns on reuse ends the login then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.errors import StorageError
from maintenance.dialects.native import owed
from maintenance.dialects.native.serving import columns
from maintenance.replacement import old as old_content
from maintenance.replacement.old import Old, look_at

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Transaction

_TABLE = "credentials"


def old_rotating(ask: owed.Ask, *, hidden: bool) -> Old:
    """Look at the old content. `hidden`: commits may stand in its WAL that SQLite does not see."""
    return look_at(ask, _has, {_TABLE}, hidden=hidden)


def make_room(store: ExclusiveStore, old: Old, clock: Clock) -> bool:
    """Bring a private copy from before credentials up, when the old content has some; whether it has the table."""
    return old_content.make_room(store, old, clock, _has, lambda ask: bool(ask(f"SELECT 1 FROM {_TABLE} LIMIT 1")))


def carry_over(tx: Transaction, old: Old, *, same_store: bool) -> int:
    """Let what is known of the old content hold in the new; how many credentials came over."""
    if not (same_store and old.there):
        return 0
    into = columns(tx.rows, _TABLE)
    try:
        names = [name for name in columns(old.ask, _TABLE) if name in into]
        found = old.ask(f"SELECT {', '.join(names)} FROM {_TABLE} WHERE home = (SELECT store_id FROM store)")
    except StorageError:
        return 0
    if old.whole:
        tx.execute(f"DELETE FROM {_TABLE}")
    tx.executemany(
        f"INSERT OR REPLACE INTO {_TABLE} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", found
    )
    return len(found)


def _has(ask: owed.Ask) -> bool:
    return bool(ask(f"SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{_TABLE}'"))
