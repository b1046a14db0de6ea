"""Deleting sessions from a foreign file, in dependency order.

Invariant: nothing is left that points at a deleted session: message rows, rows of every table with a foreign key to
sessions or messages, and the parent links of children that stay. A table that we do not know and that forbids the
delete stops it before the first row goes. Not for: choosing what to delete, leases and ledger rows (`guards.py`).

Leaving it to ON DELETE CASCADE was rejected: the enforcement of foreign keys is a setting of the connection, and the
counts would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_state.errors import Refused
from maintenance.dialects.base import DeleteCounts, StoreShape
from maintenance.dialects.cells import chunks, decode_key, key_bytes, key_list
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction

# Tables that name a session without a foreign key, or whose key has no action in old releases.
KNOWN_REFERENCES = {
    "session_model_usage": "session_id",
    "telegram_dm_topic_bindings": "session_id",
    "compression_locks": "session_id",
    "session_turn_leases": "conversation_id",
}
_OWN = {("sessions", "sessions"), ("messages", "sessions")}


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A column of another table that points at a session or a message."""

    table: str  # the table with the column
    column: str  # the column
    target: str  # "sessions" or "messages"
    action: str  # delete, clear, or refuse


def find_references(reader: Reader, shape: StoreShape) -> tuple[Reference, ...]:
    """All such columns of the file but those of sessions and messages themselves."""
    found: dict[tuple[str, str, str], Reference] = {}
    for table, column in KNOWN_REFERENCES.items():
        if table in shape.tables and _has_column(reader, table, column):
            key = (table, column, "sessions")
            found[key] = Reference(table=table, column=column, target="sessions", action="delete")
    for table in sorted(shape.tables):
        for row in reader.rows(f"PRAGMA foreign_key_list({quoted(table)})"):
            target, column, on_delete = str(row[2]).lower(), str(row[3]), str(row[6]).upper()
            key = (table, column, target)
            if target not in ("sessions", "messages") or (table, target) in _OWN or key in found:
                continue
            action = {"CASCADE": "delete", "SET NULL": "clear"}.get(on_delete, "refuse")
            found[key] = Reference(table=table, column=column, target=target, action=action)
    return tuple(found.values())


def delete_sessions(tx: Transaction, shape: StoreShape, ids: Sequence[str]) -> DeleteCounts:
    """Delete these sessions and what belongs to them."""
    total = DeleteCounts()
    references = find_references(tx, shape)
    wanted = list(dict.fromkeys(ids))
    for part in chunks(wanted):
        _refuse_if_referenced(tx, references, part)
    for part in chunks(wanted):
        total += _delete_part(tx, references, part, frozenset(wanted))
    return total


def delete_messages(tx: Transaction, shape: StoreShape, session_id: str, limit: int) -> int:
    """Delete up to `limit` messages of one session, oldest first."""
    ids = [
        int(row[0])
        for row in tx.rows(
            "SELECT id FROM messages WHERE session_id = CAST(? AS TEXT) ORDER BY id LIMIT ?",
            (key_bytes(session_id), limit),
        )
    ]
    references = [item for item in find_references(tx, shape) if item.target == "messages"]
    deleted = 0
    for start in range(0, len(ids), 500):
        part = ids[start : start + 500]
        marks = f"({', '.join('?' * len(part))})"
        for item in references:
            _refuse_row(tx, item, f"{quoted(item.column)} IN {marks}", part)
        for item in references:
            _apply(tx, item, f"{quoted(item.column)} IN {marks}", part)
        deleted += tx.execute(f"DELETE FROM messages WHERE id IN {marks}", part)
    return deleted


def _delete_part(
    tx: Transaction, references: Sequence[Reference], part: Sequence[str], wanted: frozenset[str]
) -> DeleteCounts:
    keys = [key_bytes(key) for key in part]
    listed = key_list(len(part))
    others: dict[str, int] = {}
    for item, where in _conditions(references, listed):
        changed = _apply(tx, item, where, keys)
        if changed:
            others[item.table] = others.get(item.table, 0) + changed
    messages = tx.execute(f"DELETE FROM messages WHERE session_id IN {listed}", keys)
    # A child that a later part deletes loses its link too; only children that stay count as detached.
    children = tx.rows(f"SELECT CAST(id AS BLOB) FROM sessions WHERE parent_session_id IN {listed}", keys)
    tx.execute(f"UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IN {listed}", keys)
    detached = sum(decode_key(row[0]) not in wanted for row in children)
    sessions = tx.execute(f"DELETE FROM sessions WHERE id IN {listed}", keys)
    return DeleteCounts(sessions=sessions, messages=messages, others=others, detached=detached)


def _conditions(references: Sequence[Reference], listed: str) -> Iterator[tuple[Reference, str]]:
    for item in sorted(references, key=lambda item: item.target):  # messages' references first
        column = quoted(item.column)
        if item.target == "sessions":
            yield item, f"{column} IN {listed}"
        else:
            yield item, f"{column} IN (SELECT id FROM messages WHERE session_id IN {listed})"


def _refuse_if_referenced(tx: Transaction, references: Sequence[Reference], part: Sequence[str]) -> None:
    keys = [key_bytes(key) for key in part]
    for item, where in _conditions(references, key_list(len(part))):
        _refuse_row(tx, item, where, keys)


def _refuse_row(tx: Transaction, item: Reference, where: str, params: Sequence[object]) -> None:
    if item.action != "refuse":
        return
    if tx.row(f"SELECT 1 FROM {quoted(item.table)} WHERE {where} LIMIT 1", params) is not None:
        raise Refused(
            f"Table {item.table} has rows that point at a {item.target[:-1]} to be deleted ({item.column}),"
            " and its foreign key forbids the delete.",
            hint="Delete those rows with the program that made the table, or leave these sessions out.",
            table=item.table,
            column=item.column,
        )


def _apply(tx: Transaction, item: Reference, where: str, params: Sequence[object]) -> int:
    if item.action == "delete":
        return tx.execute(f"DELETE FROM {quoted(item.table)} WHERE {where}", params)
    if item.action == "clear":
        return tx.execute(f"UPDATE {quoted(item.table)} SET {quoted(item.column)} = NULL WHERE {where}", params)
    return 0


def _has_column(reader: Reader, table: str, column: str) -> bool:
    return any(row[1] == column for row in reader.rows(f"PRAGMA table_info({quoted(table)})"))
