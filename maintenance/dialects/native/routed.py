"""Routing of one store in two files: which of two rows stands, and what may not come back.

Invariant: generations never fall. A chat that was stopped in either file later stays stopped; a home that was removed
in either stays removed. Of people who may talk to the bots one file is believed as a whole, or nobody: a list that is
mixed would let somebody in who was put out. Whose bot answers is what a row says; where it says nothing, nothing is
filled in.

Not for: changing rows of one store (`hermes_state.routing`). Putting both lists of people together was rejected: who
was taken out leaves nothing behind that says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import InvalidInput
from hermes_state.routing.identity import Source
from hermes_state.routing.keys import SessionKey
from hermes_state.routing.sessions import THERE
from maintenance.dialects.cells import chunks, key_bytes, key_list
from maintenance.dialects.native.owed import Row, Writer
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader

Ask = Callable[[str], list[tuple[Any, ...]]]

ENTRIES = "routing_entries"
# By table, what a row is known by in whichever file.
KEYS: Mapping[str, tuple[str, ...]] = {
    "routing_home": ("one",),
    ENTRIES: ("session_key",),
    "routing_unserved": ("platform", "profile"),
    "pairing_requests": ("platform", "user_id"),
    "pairing_users": ("platform", "user_id"),
    "pairing_failures": ("platform",),
}
TABLES = frozenset(KEYS)
# Who may talk to the bots, who asked to, and how often somebody guessed.
PAIRING = ("pairing_requests", "pairing_users", "pairing_failures")
PARTS = ("runtime_profile", "platform", "chat_type", "chat_id", "thread_id", "user_id")
STOPPED = ("suspended", "expired")
# Resets that may have been made since of which nothing is known.
GENERATION_LEAP = 1_000_000
# What counts the later the higher it is, in this order.
_LATER: Mapping[str, tuple[str, ...]] = {
    ENTRIES: ("generation", "version"), "routing_unserved": ("last_at", "dropped"),
    "pairing_failures": ("first_at", "failures"), "pairing_requests": ("requested_at",),
    "pairing_users": ("approved_at",), "routing_home": ("generation_floor",),
}


@dataclass(kw_only=True)
class Moved:
    """What became of routing, in rows."""

    routes: int = 0  # chats that stand as the other file had them: it knew them later, or alone
    stopped: int = 0  # chats whose next message needs a new session, since the one that they went on in is not here
    forgotten: int = 0  # chats of this file that were forgotten since
    unpaired: int = 0  # people of this file who may not talk to the bots any more until they are paired again
    paired: int = 0  # people who were let in since and stay so
    codes: int = 0  # pairing codes of this file that open nothing any more
    removed: bool = False  # whether the home is marked as removed
    generation: int = 0  # every conversation is of a higher generation than this; 0: there is no routing

    def document(self) -> dict[str, Any]:
        """The counts."""
        return asdict(self)


def has_routing(ask: Ask) -> bool:
    """Whether a file has all the tables."""
    return {str(name) for (name,) in ask("SELECT name FROM sqlite_schema WHERE type = 'table'")} >= TABLES


def any_routing(ask: Ask) -> bool:
    """Whether there is anything in the tables that must not be lost."""
    return bool(ask(" UNION ALL ".join(f"SELECT * FROM (SELECT 1 FROM {name} LIMIT 1)" for name in sorted(TABLES))))


def highest_generation(ask: Ask) -> int:
    """The highest generation that this file says was ever given out; reads no index."""
    return int(ask(
        "SELECT max(coalesce((SELECT max(generation) FROM routing_entries NOT INDEXED), 0),"
        " coalesce((SELECT max(generation_floor) FROM routing_home), 0))"
    )[0][0])


def rows_of(ask: Ask, table: str, where: str = "true") -> list[Row]:
    """Rows of a table as dictionaries, in the order of their keys."""
    names = [str(name) for (name,) in ask(f"SELECT name FROM pragma_table_info('{table}')")]
    found = ask(f"SELECT {', '.join(map(quoted, names))} FROM {table} WHERE {where} ORDER BY {', '.join(KEYS[table])}")
    return [dict(zip(names, row, strict=True)) for row in found]


def key_of(table: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a row is known by in whichever file."""
    return tuple(row[name] for name in KEYS[table])


def by_key(ask: Ask, table: str) -> dict[tuple[Any, ...], Row]:
    """The rows of a table by what they are known by."""
    return {key_of(table, row): row for row in rows_of(ask, table)}


def put(tx: Writer, table: str, row: Mapping[str, Any]) -> None:
    """Write a row in the place of one with the same key; the triggers of the table are away."""
    names = {str(name) for (name,) in tx.rows(f"SELECT name FROM pragma_table_info('{table}')")}
    said = {name: value for name, value in row.items() if name in names}
    tx.execute(
        f"INSERT OR REPLACE INTO {table} ({', '.join(map(quoted, said))}) VALUES ({', '.join('?' * len(said))})",
        list(said.values()),
    )


def take_out(tx: Writer, table: str, key: Sequence[Any]) -> None:
    """Delete a row."""
    same = " AND ".join(f"{name} IS ?" for name in KEYS[table])
    tx.execute(f"DELETE FROM {table} WHERE {same}", list(key))


def tells_later(table: str, names: Sequence[str]) -> bool:
    """Whether of two versions of a row of this table, with these columns, it can be told which is later."""
    return table in _LATER and {*names} >= {*_LATER[table], *KEYS[table]}


def later_of(table: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> bool | None:
    """Whether `two` comes after `one`, two versions of one row; None: they do not say."""
    if key_of(table, one) != key_of(table, two):
        return None
    first, second = (tuple(row[name] for name in _LATER[table]) for row in (one, two))
    if first == second or not all(isinstance(value, int | float) for value in (*first, *second)):
        return None
    return second > first


def problem_of(row: Mapping[str, Any]) -> str:
    """Why the program could not read an entry; "" when it can."""
    try:
        Source.from_json(row["origin"])
        profile, platform, chat_type, chat_id, thread_id, user_id = (row[name] for name in PARTS)
        key = SessionKey(
            profile=profile, platform=platform, chat_type=chat_type, chat_id=chat_id, thread_id=thread_id,
            user_id=user_id,
        )
        if key.text != row["session_key"]:
            return f"its parts are those of {key.text!r}"
        if row["model_override"] is not None and not isinstance(json.loads(row["model_override"]), dict):
            return "its model override is no object"
    except (InvalidInput, ValueError, TypeError, AttributeError, RecursionError) as error:
        return str(error)
    return ""


def remove_home(tx: Writer, row: Mapping[str, Any]) -> None:
    """Mark the home as removed, as another file says; an earlier mark stays."""
    said = [row[name] for name in ("removed_at", "removed_by", "removed_because")]
    tx.execute("INSERT OR IGNORE INTO routing_home (one) VALUES (1)")
    tx.execute(
        "UPDATE routing_home SET removed_at = ?, removed_by = ?, removed_because = ? WHERE removed_at IS NULL", said
    )


def is_removed(tx: Writer | Reader) -> bool:
    """Whether the home is marked as removed."""
    return tx.row("SELECT 1 FROM routing_home WHERE removed_at IS NOT NULL") is not None


def stop(tx: Writer, session_key: str, why: str, *, at: float) -> None:
    """The next message of a chat needs a new session."""
    tx.execute(
        "UPDATE routing_entries SET state = 'suspended', state_at = ?, state_reason = ?, version = version + 1,"
        " updated_at = ? WHERE session_key = ?", (at, why, at, session_key),
    )


def void_codes(tx: Writer, which: str = "true", values: Sequence[Any] = ()) -> int:
    """No code that was shown lets anybody in; how many. When somebody asked stays: the next request waits as before."""
    (count,) = tx.rows(
        f"SELECT count(*) FROM pairing_requests WHERE code_digest IS NOT NULL AND {which}", list(values)
    )[0]
    tx.execute(
        "UPDATE pairing_requests SET code_digest = NULL, salt = NULL, expires_at = NULL"
        f" WHERE code_digest IS NOT NULL AND {which}", list(values),
    )
    return int(count)


def has_session(tx: Writer | Reader, session_id: Any) -> bool:
    """Whether the session is there, and not only what its deletion has left."""
    return tx.row(f"SELECT 1 FROM sessions WHERE {THERE}", (session_id,)) is not None


def chats_in(reader: Reader, ids: Sequence[str]) -> int:
    """How many chats would go on in these sessions."""
    if not has_routing(reader.rows):
        return 0
    return sum(
        int(reader.rows(
            "SELECT count(*) FROM routing_entries WHERE state IN ('active', 'resuming') AND session_id IN"
            f" {key_list(len(part))}", [key_bytes(key) for key in part],
        )[0][0])
        for part in chunks(ids)
    )


def routes_lacking(copy: Reader, live: Reader) -> int:
    """How many entries and people a copy knows later than the store, or alone, and marks of removal."""
    if not has_routing(copy.rows):
        return 0
    here = has_routing(live.rows)
    count = 0
    for table in (ENTRIES, "pairing_users"):
        mine = by_key(live.rows, table) if here else {}
        for key, row in by_key(copy.rows, table).items():
            there = mine.get(key)
            if there is not None:
                count += bool(later_of(table, there, row))
            elif table == ENTRIES:
                # One that was forgotten left its generation, and a line in the ledger.
                count += not here or key[0] not in forgotten(live)
            else:
                count += not here or row["approved_at"] >= _newest(live)
    return count + int(is_removed(copy) and not (here and is_removed(live)))


def forgotten(reader: Writer | Reader) -> frozenset[str]:
    """The keys of entries that somebody forgot, as the ledger of deletions says."""
    return frozenset(
        str(key) for (keys,) in reader.rows("SELECT keys FROM deletions WHERE kind = 'route'")
        for key in json.loads(keys)
    )


def _newest(reader: Reader) -> float:
    """When the store was changed last about people, as far as it says; who was approved later is not known to it."""
    (at,) = reader.rows(
        "SELECT max(coalesce((SELECT max(approved_at) FROM pairing_users), 0),"
        " coalesce((SELECT max(at) FROM changes WHERE table_name = 'pairing_users'), 0))"
    )[0]
    return float(at)
