"""An export as a new SQLite file with a table of sessions and one of messages, written with sqlite-utils.

Invariant: sqlite-utils sees the new file only; the store stays with its own library. The file gets the columns of the
store it came from, structured content as JSON text. Not for: opening it with hermes-agent; it has no search index and
no schema version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from maintenance.reading.export.items import ExportRecord

# Messages inserted in one step.
BATCH = 200
# The counts of a file that cannot be read back; no export has them.
NOT_READABLE = (-1, -1)


def write_tables(records: Iterable[ExportRecord], path: Path) -> None:
    """Fill the empty file at `path`."""
    import sqlite_utils

    database = sqlite_utils.Database(str(path))
    sessions, messages = (sqlite_utils.db.Table(database, name) for name in ("sessions", "messages"))
    try:
        sessions.create({"id": str}, pk="id")
        messages.create({"id": int, "session_id": str}, pk="id", foreign_keys=[("session_id", "sessions")])
        for record in records:
            session = {key: _stored(value) for key, value in record.session.items()}
            sessions.insert(session, alter=True)
            for batch in _batches(record.messages):
                messages.insert_all(batch, alter=True, batch_size=BATCH)
        messages.create_index(["session_id", "id"])
        database.conn.commit()
    finally:
        database.close()


def count_tables(path: Path) -> tuple[int, int]:
    """Sessions and messages of a finished file, after a page check."""
    import sqlite_utils

    database = sqlite_utils.Database(str(path))
    try:
        verdict = database.execute("PRAGMA quick_check").fetchone()[0]
        if verdict != "ok":
            return NOT_READABLE
        return database["sessions"].count, database["messages"].count
    except database.conn.DatabaseError:
        return NOT_READABLE
    finally:
        database.close()


def _batches(messages: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for message in messages:
        batch.append({key: _stored(value) for key, value in message.items()})
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _stored(value: Any) -> Any:
    """Text that SQLite can bind; lists and objects become JSON in sqlite-utils."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
