"""Rows of a capture of hermes-agent's file that the live file lacks, and putting them there.

Invariant: a row is missing when the live file has none like it and, where the main file was captured apart from its
WAL, when it was not there before the WAL either: what others deleted since stays deleted. A message is the same when
session, role, content, tool fields and time are; flags that say how it is shown do not count, and equal messages are
counted, not folded. A missing message keeps its id when that is free, so that the order stays; else it gets the next
one. A session that both have keeps the live row; where they differ it is listed. Every table with a key that
both have is looked at, unknown ones too; `untaken` lists the others.

Not for: leases and locks of processes that are gone. Copying tables whole was rejected: both sides went on.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Of a message: what was said. In any release those of them that the file has.
SAID = (
    "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "platform_message_id",
)
# Rows of processes that are gone, and what each file says about itself.
LEFT_OUT = frozenset({"schema_version", "state_meta", "compression_locks", "session_turn_leases"})
_PORTION = 500
# Endings of the tables that FTS5 keeps an index in.
_INDEX_TABLES = ("data", "idx", "content", "docsize", "config")


@dataclass(kw_only=True)
class Missing:
    """What only the capture holds."""

    # sessions that the live file does not have: columns and rows
    sessions: list[dict[str, Any]] = field(default_factory=list)
    # messages, in the order of their ids
    messages: list[dict[str, Any]] = field(default_factory=list)
    # other rows, by table
    others: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # sessions that both have with different facts: id -> names of the columns
    differing: dict[str, list[str]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows would be written."""
        return len(self.sessions) + len(self.messages) + sum(map(len, self.others.values()))

    def by_table(self) -> dict[str, int]:
        """The same by table."""
        named = {"sessions": len(self.sessions), "messages": len(self.messages)}
        named |= {name: len(rows) for name, rows in self.others.items()}
        return {name: count for name, count in sorted(named.items()) if count}


def missing(whole: Reader, before: Reader | None, live: Reader, deleted: Callable[[str], bool]) -> Missing:
    """Compare a capture with the live file. `deleted` tells whether a session was deleted on purpose."""
    found = Missing()
    gone: set[str] = set()
    for table in ordinary_tables(whole):
        if not columns_of(live, table):
            continue  # no such table in the live file; `untaken` counts its rows
        key = key_of(whole, table)
        if table == "messages":
            found.messages = _messages(whole, before, live, gone)
        else:
            rows = list(_rows(whole, before, live, table, key))
            if table == "sessions":
                for row in rows:
                    if deleted(str(row["id"])):
                        gone.add(str(row["id"]))
                found.sessions = [row for row in rows if str(row["id"]) not in gone]
                found.differing = _differing(whole, live)
            elif rows:
                found.others[table] = [row for row in rows if str(row.get("session_id")) not in gone]
    found.others = {name: rows for name, rows in found.others.items() if rows}
    return found


def bring_in(tx: Transaction, found: Missing) -> Counter[str]:
    """Write what is missing, in the caller's transaction; returns rows by table."""
    tx.rows("PRAGMA defer_foreign_keys = ON")
    written: Counter[str] = Counter()
    known = {row[0] for row in tx.rows("SELECT id FROM sessions")} | {row["id"] for row in found.sessions}
    for row in found.sessions:
        parent = row.get("parent_session_id")
        _insert(tx, "sessions", row | ({} if parent is None or parent in known else {"parent_session_id": None}))
        written["sessions"] += 1
    for table, rows in found.others.items():
        for row in rows:
            _insert(tx, table, row)
            written[table] += 1
    grown: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    fresh = {row["id"] for row in found.sessions}
    for row in found.messages:
        if row["session_id"] not in known:
            continue
        taken = tx.row("SELECT 1 FROM messages WHERE id = ?", (row["id"],)) is not None
        _insert(tx, "messages", {name: value for name, value in row.items() if not (taken and name == "id")})
        written["messages"] += 1
        if row["session_id"] not in fresh:
            grown[row["session_id"]] += 1
            calls[row["session_id"]] += _calls(row.get("tool_calls"))
    columns = {name for (name,) in tx.rows("SELECT name FROM pragma_table_info('sessions')")}
    for name, counts in (("message_count", grown), ("tool_call_count", calls)):
        if name in columns:
            for session, count in counts.items():
                tx.execute(
                    f"UPDATE sessions SET {name} = coalesce({name}, 0) + ? WHERE id = ?", (count, session)
                )
    return written


def _messages(whole: Reader, before: Reader | None, live: Reader, gone: set[str]) -> list[dict[str, Any]]:
    columns = [name for name in columns_of(whole, "messages") if name in columns_of(live, "messages")]
    said = [columns.index(name) for name in SAID if name in columns]
    session = columns.index("session_id")
    candidates: dict[str, list[tuple[bytes, tuple[Any, ...]]]] = {}
    old = _prints(before, columns, said) if before is not None else Counter[bytes]()
    for row in _message_rows(whole, columns):
        mark = _print(row, said)
        if old[mark] > 0:
            old[mark] -= 1
        elif str(row[session]) not in gone:
            candidates.setdefault(str(row[session]), []).append((mark, row))
    found: list[dict[str, Any]] = []
    for key, rows in candidates.items():
        here = Counter(_print(row, said) for row in _message_rows(live, columns, key))
        if before is not None:
            # What was there before the WAL is a match for itself, not for what the WAL added.
            here -= Counter(_print(row, said) for row in _message_rows(before, columns, key))
        for mark, row in rows:
            if here[mark] > 0:
                here[mark] -= 1
            else:
                found.append(dict(zip(columns, row, strict=True)))
    return sorted(found, key=lambda row: int(row["id"]))


def _message_rows(reader: Reader, columns: Sequence[str], session: str | None = None) -> Iterator[tuple[Any, ...]]:
    names = ", ".join(quoted(name) for name in columns)
    if session is None:
        return reader.iterate(f"SELECT {names} FROM messages ORDER BY id", batch=_PORTION)
    return reader.iterate(f"SELECT {names} FROM messages WHERE session_id = ? ORDER BY id", (session,), batch=_PORTION)


def _prints(reader: Reader, columns: Sequence[str], said: Sequence[int]) -> Counter[bytes]:
    return Counter(_print(row, said) for row in _message_rows(reader, columns))


def _print(row: Sequence[Any], said: Sequence[int]) -> bytes:
    words = repr([row[number] for number in said]).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(words, digest_size=16).digest()


def _rows(
    whole: Reader, before: Reader | None, live: Reader, table: str, key: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Rows whose key the live table does not have, nor had before the WAL."""
    shared = columns_of(live, table)
    columns = [name for name in columns_of(whole, table) if name in shared]
    if not key or not set(key) <= set(columns):
        return  # `untaken` counts its rows
    names = ", ".join(quoted(name) for name in columns)
    where = " AND ".join(f"{quoted(name)} IS ?" for name in key)
    places = [columns.index(name) for name in key]
    there = [reader for reader in (live, before) if reader is not None and columns_of(reader, table)]
    for row in whole.iterate(f"SELECT {names} FROM {quoted(table)}", batch=_PORTION):
        values = [row[place] for place in places]
        if all(reader.row(f"SELECT 1 FROM {quoted(table)} WHERE {where}", values) is None for reader in there):
            yield dict(zip(columns, row, strict=True))


def _differing(whole: Reader, live: Reader) -> dict[str, list[str]]:
    columns = [name for name in columns_of(whole, "sessions") if name in columns_of(live, "sessions")]
    names = ", ".join(quoted(name) for name in columns)
    found = {}
    for row in whole.iterate(f"SELECT {names} FROM sessions", batch=_PORTION):
        here = live.row(f"SELECT {names} FROM sessions WHERE id = ?", (row[columns.index("id")],))
        if here is not None and here != row:
            found[str(row[columns.index("id")])] = [
                name for name, one, other in zip(columns, row, here, strict=True) if one != other
            ]
    return found


def ordinary_tables(reader: Reader) -> list[str]:
    """The ordinary tables, sessions first and messages after all that they may point to.

    A connection without the search modules takes the tables inside an index for ordinary ones; they are left out.
    """
    listed = [
        (str(name), kind) for name, kind in reader.rows(
            "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') "
            "ORDER BY name"
        )
    ]
    inside = {f"{name}_{ending}" for name, kind in listed if kind == "virtual" for ending in _INDEX_TABLES}
    kept = [
        name for name, kind in listed
        if kind == "table" and name not in LEFT_OUT and name not in inside and not name.startswith("sqlite_")
    ]
    return sorted(kept, key=lambda name: {"sessions": 0, "messages": 2}.get(name, 1))


def columns_of(reader: Reader, table: str) -> list[str]:
    """Columns that a row can be given, generated ones left out."""
    return [
        str(name) for (name,) in reader.rows("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))
    ]


def key_of(reader: Reader, table: str) -> list[str]:
    """Columns of the primary key; none for a table without."""
    rows = reader.rows("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", (table,))
    return [str(name) for (name,) in rows]


def _insert(tx: Transaction, table: str, row: dict[str, Any]) -> None:
    names = ", ".join(quoted(name) for name in row)
    tx.execute(f"INSERT INTO {quoted(table)} ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


def _calls(text: Any) -> int:
    import json

    try:
        found = json.loads(text) if isinstance(text, str) else []
    except ValueError:
        return 0
    return len(found) if isinstance(found, list) else 0
