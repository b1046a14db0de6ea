"""Writing the feed of changes, and what one change is.

Invariant: a change and its entry are one transaction; ids only rise and are never used twice, also after the feed was
trimmed to nothing. Appended messages have no entry: their own ids are their feed.

Not for: who changed what and why (see `deletions` for what was deleted). AUTOINCREMENT was rejected: its counter is a
second page written by each entry, and does not survive a copy into a new file by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from hermes_state.errors import InvalidInput

if TYPE_CHECKING:
    from hermes_state.engine import Transaction

Operation = Literal["insert", "update", "delete"]
OPERATIONS: frozenset[str] = frozenset(get_args(Operation))


def record(tx: Transaction, table_name: str, key: str, operation: Operation, at: float) -> int:
    """Note one change in the transaction that makes it; gives its id.

    `table_name` is the table of the changed row, `key` its public id (a session id), `at` epoch seconds UTC.
    """
    if operation not in OPERATIONS:
        raise InvalidInput(
            f"{operation!r} is no operation of the change feed of {tx.path}.",
            hint="Use insert, update or delete.", path=tx.path, operation=operation,
        )
    tx.execute(
        "INSERT INTO changes (id, table_name, key, operation, at) SELECT"
        " max(change_floor, coalesce((SELECT max(id) FROM changes), 0)) + 1, ?, ?, ?, ? FROM store",
        (table_name, key, operation, at),
    )
    return tx.last_insert_rowid()


def trim(tx: Transaction, keep: int = 10_000) -> int:
    """Drop the oldest entries so that at most `keep` stay; gives how many went. Readers behind them see a gap."""
    if keep < 0:
        raise InvalidInput(f"The feed of {tx.path} cannot keep {keep} entries.", hint="Give 0 or more.", path=tx.path)
    floor = tx.row("SELECT id FROM changes ORDER BY id DESC LIMIT 1 OFFSET ?", (keep,))
    if floor is None:
        return 0
    tx.execute("UPDATE store SET change_floor = max(change_floor, ?)", (floor[0],))
    return tx.execute("DELETE FROM changes WHERE id <= ?", (floor[0],))
