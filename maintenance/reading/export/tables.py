"""An export as a new SQLite file for Datasette and SQL: sessions, messages, usage, and a search index over the text.

Invariant: sqlite-utils sees the new file only; the store stays with its own library. Every column of a record becomes a
column, structured content and other lists JSON text; compressed bodies are plain. Foreign keys hold: `messages` and
`usage` name their session. `messages_fts` and `sessions_fts` are made after the rows and kept by triggers.

Not for: opening it with hermes-agent; it has no schema version. A foreign key on the parent link was rejected: a parent
need not be part of an export.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hermes_state.engine.translate import has_no_room, out_of_space
from hermes_state.errors import IOFailure, StateError, StatementFailed
from maintenance.reading.export.items import ExportRecord

# Messages inserted in one step.
BATCH = 200
# The counts of a file that cannot be read back; no export has them.
NOT_READABLE = (-1, -1)
_MAX_INTEGER = 2**63
_IOERR, _FULL = 10, 13  # SQLite's primary result codes
# What sqlite-utils cannot quote in a column's name, or SQLite cannot tell apart.
_NOT_IN_A_NAME = re.compile(r"[^\w $.:/-]")


def write_tables(records: Iterable[ExportRecord], path: Path, *, named: Path | None = None) -> None:
    """Fill the empty file at `path`, which errors call `named`. Raises `DiskFull`, `IOFailure`, `StatementFailed`."""
    import sqlite_utils

    database = sqlite_utils.Database(str(path))
    sessions, messages, usage = (sqlite_utils.db.Table(database, name) for name in ("sessions", "messages", "usage"))
    links = [("session_id", "sessions", "id")]
    names: tuple[dict[str, str], dict[str, str], dict[str, str]] = ({}, {}, {})
    # The file is private until it is whole, synced and verified; a cut-off one is thrown away.
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    try:
        sessions.create({"id": str, "title": str}, pk="id")
        messages.create({"id": int, "session_id": str, "role": str, "content": str}, pk="id", foreign_keys=links)
        usage.create({"id": int, "session_id": str, "model": str}, pk="id", foreign_keys=links)
        for record in records:
            # A whole conversation is its segments here: their messages name them.
            spent: list[dict[str, Any]] = []
            for segment in record.session.get("segments") or [record.session]:
                session = dict(segment)
                for row in session.pop("usage", None) or ():
                    spent.append({"session_id": session["id"]} | {key: row[key] for key in row if key != "id"})
                sessions.insert(_row(session, names[0]), alter=True)
            for batch in _batches(record.messages, names[1]):
                messages.insert_all(batch, alter=True, batch_size=BATCH)
            usage.insert_all([_row(row, names[2]) for row in spent], alter=True)
        messages.create_index(["session_id", "id"])
        usage.create_index(["session_id"])
        sessions.enable_fts(["title"], create_triggers=True)
        messages.enable_fts(["content"], create_triggers=True)
        database.conn.commit()
    except database.conn.Error as error:
        raise _unwritten(error, named or path) from error
    finally:
        database.close()


def _unwritten(error: Exception, path: Path) -> StateError:
    """The error for what SQLite said while the file was filled, by its result code."""
    extended = int(getattr(error, "sqlite_errorcode", 1))
    primary = extended & 0xFF
    said = f"SQLite said: {error} (code {primary}, extended {extended})."
    if primary == _FULL or (primary == _IOERR and has_no_room(path)):
        return out_of_space(path, "writing", errno.ENOSPC, said, sqlite_code=primary, sqlite_extended=extended)
    kind = IOFailure if primary == _IOERR else StatementFailed
    return kind(
        f"Writing {path} failed. {said}", hint="Check the disk and the file system first.", path=path, errno=0,
        sqlite_code=primary, sqlite_extended=extended,
    )


def count_tables(path: Path) -> tuple[int, int]:
    """Sessions and messages of a finished file, after a check of its pages, foreign keys and search indexes."""
    import sqlite_utils

    database = sqlite_utils.Database(str(path))
    try:
        verdict = database.execute("PRAGMA quick_check").fetchone()[0]
        if verdict != "ok" or database.execute("PRAGMA foreign_key_check").fetchone() is not None:
            return NOT_READABLE
        for name in ("sessions_fts", "messages_fts"):
            database.execute(f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)")
        database.conn.rollback()
        return database["sessions"].count, database["messages"].count
    except database.conn.DatabaseError:
        return NOT_READABLE
    finally:
        database.close()


def _batches(messages: Iterator[dict[str, Any]], names: dict[str, str]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for message in messages:
        batch.append(_row(message, names))
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _row(record: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """A record as a row. `names` remembers how a column was spelled first: SQLite knows no difference in case."""
    row: dict[str, Any] = {}
    for key, value in record.items():
        plain = _NOT_IN_A_NAME.sub("_", key) or "_"
        row.setdefault(names.setdefault(plain.lower(), plain), _stored(value))
    return row


def _stored(value: Any) -> Any:
    """What SQLite can bind; lists and objects become JSON in sqlite-utils."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not -_MAX_INTEGER <= value < _MAX_INTEGER:
        return str(value)
    return value
