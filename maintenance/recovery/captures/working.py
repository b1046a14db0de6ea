"""What a gateway keeps beside conversations, of a native capture: what ended in a lost WAL has ended, and is not lost.

Invariant: a row that only the capture has is added, unless the store had it before and forgot it since; of a row that
both have the later version stands, where the versions say which that is. So a token that was sent in the lost WAL is
known to have been sent, a reply that was sealed is sealed, and a message that was answered is not answered again.
Merging again changes nothing.

Not for: notices and finals, which are obligations (`owing`), and where chats go on (`routing`). Adding a sign-in that
was under way was rejected: nobody waits for it any more, and it would stand in the way of the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_state.changes.records import record
from maintenance.dialects.native import owed, serving
from maintenance.dialects.native.working import KEYS

if TYPE_CHECKING:
    from hermes_state.engine import Reader
    from hermes_state.engine.core import Core
    from hermes_state.engine.transaction import Transaction
    from maintenance.recovery.captures.view import View

# Of these a later version of the capture never takes the place of the store's: a person decides whether a chat has
# topics.
_STAY = frozenset({"topic_chats"})
_NUMBERS = ("no",)


def merge_working(core: Core, view: View, *, at: float, write: bool) -> int:
    """Bring in what only the capture holds; returns how many rows it changes or adds. `at` is now."""
    with view.opened(_has) as both:
        if both is None:
            return 0
        whole, before = both
        if not write:
            with core.reader() as reader:
                return _merge(owed.Looking(reader), whole, before) if _has(reader.rows) else 0

        def work(tx: Transaction) -> int:
            with serving.unguarded(tx, sorted(KEYS)):
                return _merge(tx, whole, before, feed=tx, at=at)

        return core.write(work, durability="power", deadline_seconds=60.0)


def _merge(
    tx: owed.Writer, whole: Reader, before: Reader | None, *, feed: Transaction | None = None, at: float = 0.0
) -> int:
    done = 0
    for table, keys in KEYS.items():
        into = serving.columns(tx.rows, table)
        for row in serving.rows_of(whole.rows, table):
            there = serving.find(tx, table, row, keys)
            if there is None:
                if before is not None and serving.find(before, table, row, keys) is not None:
                    continue  # the store had it, and forgot it since
                if table == "login_attempts" and row["ended_at"] is None:
                    continue
                _put(tx, table, {name: row[name] for name in row if name in into and name not in _NUMBERS})
            elif table not in _STAY and serving.later_of(table, there, row):
                said = {name: row[name] for name in row if name in into and name not in (*keys, *_NUMBERS)}
                same = " AND ".join(f"{name} IS ?" for name in keys)
                tx.execute(
                    f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in said)} WHERE {same}",
                    (*said.values(), *(row[name] for name in keys)),
                )
            else:
                continue
            done += 1
            if feed is not None:
                name = "/".join(str(row[key]) for key in keys)
                record(feed, table, name, "insert" if there is None else "update", at)
    return done


def _put(tx: owed.Writer, table: str, row: owed.Row) -> None:
    tx.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


def _has(ask: owed.Ask) -> bool:
    return {str(name) for (name,) in ask("SELECT name FROM sqlite_schema WHERE type = 'table'")} >= {*KEYS}
