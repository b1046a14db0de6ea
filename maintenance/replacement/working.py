"""Replies, lanes, logins and dead targets, once the content of a store is replaced by older content.

Invariant: what platforms and people know of stands as the old content has it, as far as that can be read: a reply that
was sealed keeps its seal and its message, a login that ended or was granted stays so, what a chat said and was answered
is not taken a second time, and what waits there waits here. Background work that the new content has is told in the
conversation that it has, whose generation rises with it.

Not for: obligations (`owing`) and tokens (`rotating`). Leaving lanes as a backup has them was rejected: every follow-up
that was answered since would be answered again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes_state.errors import StorageError
from maintenance.dialects.native import owed, serving
from maintenance.replacement import old as old_content
from maintenance.replacement.old import Old, look_at

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Transaction

_LANES = "lane_items"
# By table, what a row is known by in whichever file; of these the old content's rows stand.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "reply_seals": ("turn_id",),
    "login_attempts": ("attempt_id",),
    "dead_targets": ("platform", "transport_profile", "chat_id"),
}
TABLES = frozenset({*_KEYS, _LANES})
_GENERATIONS = ("background_work", _LANES)
FORGOTTEN = "the store that was replaced had settled it, and remembered no more how"
_FOLLOWS = (
    "generation = (SELECT generation FROM routing_entries AS r WHERE r.session_key = {table}.{key})"
)


def old_working(ask: owed.Ask, *, hidden: bool) -> Old:
    """Look at the old content. `hidden`: commits may stand in its WAL that SQLite does not see."""
    return look_at(ask, _has, TABLES, hidden=hidden)


def make_room(store: ExclusiveStore, old: Old, clock: Clock) -> bool:
    """Bring a private copy from before the tables up, when the old content has any row; whether it has them."""
    anything = " UNION ALL ".join(f"SELECT * FROM (SELECT 1 FROM {name} LIMIT 1)" for name in sorted(TABLES))
    return old_content.make_room(store, old, clock, _has, lambda ask: bool(ask(anything)))


def keep_generations(tx: Transaction, above: int) -> None:
    """Before every conversation is raised above `above`: what waits for the one that is there goes on waiting."""
    for table, key in zip(_GENERATIONS, ("session_key", "lane"), strict=True):
        if _there(tx, table):
            tx.execute(
                f"UPDATE {table} SET generation = ? WHERE {_FOLLOWS.format(table=table, key=key)}", (above + 1,)
            )


def carry_over(tx: Transaction, old: Old, *, same_store: bool, at: float) -> int:
    """Let what is known of the old content hold in the new; how many rows came over. `at`: epoch seconds UTC.

    After `keep_generations`, and after the generations were raised.
    """
    if not (same_store and old.there):
        return 0
    count = 0
    with serving.unguarded(tx, sorted(TABLES)):
        for table, key in _KEYS.items():
            count += _stand(tx, old, table, key)
        with suppress(StorageError):  # as far as it can be read; the rest waits as the new content has it
            count += _lanes(tx, old, at)
    return count


def _stand(tx: Transaction, old: Old, table: str, key: tuple[str, ...]) -> int:
    into = serving.columns(tx.rows, table)
    try:
        names = [name for name in serving.columns(old.ask, table) if name in into]
        found = old.ask(f"SELECT {', '.join(names)} FROM {table} ORDER BY {', '.join(key)}")
    except StorageError:
        return 0  # of what cannot be read the new content's rows stand
    if old.whole:
        tx.execute(f"DELETE FROM {table}")
    marks = ", ".join("?" * len(names))
    tx.executemany(f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})", found)
    return len(found)


def _lanes(tx: Transaction, old: Old, at: float) -> int:
    into = serving.columns(tx.rows, _LANES)
    names = [name for name in serving.columns(old.ask, _LANES) if name in into and name != "no"]
    current = "EXISTS (SELECT 1 FROM routing_entries AS r WHERE r.session_key = lane AND r.generation = i.generation)"
    taken: set[tuple[Any, Any]] = set()
    for current_one, *values in old.ask(f"SELECT {current}, {', '.join(names)} FROM {_LANES} AS i ORDER BY no"):
        row = dict(zip(names, values, strict=True))
        known = (row["lane"], row["item_key"])
        taken.add(known)
        if row["settled_at"] is None and row["generation"] is not None and current_one:
            found = tx.row("SELECT generation FROM routing_entries WHERE session_key = ?", (row["lane"],))
            row["generation"] = None if found is None else found[0]
        sets = ", ".join(f"{name} = ?" for name in names)
        if not tx.execute(
            f"UPDATE {_LANES} SET {sets} WHERE lane = ? AND item_key = ?", (*row.values(), *known)
        ):
            marks = ", ".join("?" * len(names))
            tx.execute(f"INSERT INTO {_LANES} ({', '.join(names)}) VALUES ({marks})", tuple(row.values()))
    if old.whole:
        for lane, key in tx.rows(f"SELECT lane, item_key FROM {_LANES} WHERE state = 'waiting'"):
            if (lane, key) not in taken:
                tx.execute(
                    f"UPDATE {_LANES} SET state = 'dropped', settled_at = ?, reason = ? WHERE lane = ?"
                    " AND item_key = ?", (at, FORGOTTEN, lane, key),
                )
    return len(taken)


def _there(tx: Transaction, table: str) -> bool:
    return tx.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)) is not None


def _has(ask: owed.Ask) -> bool:
    return {str(name) for (name,) in ask("SELECT name FROM sqlite_schema WHERE type = 'table'")} >= TABLES
