"""Small stores of this project's own kind, made through plain APSW before the door opens them."""

from __future__ import annotations

from pathlib import Path

import apsw

from hermes_state.engine import APPLICATION_ID


def make_store(path: Path, *, journal_mode: str = "wal", rows: int = 0) -> Path:
    """A store with one table `note(id, body)`; nothing has it open afterwards, and no sidecar is left."""
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
    connection.execute(f"PRAGMA journal_mode = {journal_mode}").fetchall()
    connection.execute("CREATE TABLE note(id INTEGER PRIMARY KEY, body TEXT NOT NULL)").fetchall()
    with connection:
        connection.executemany("INSERT INTO note(body) VALUES(?)", ((f"row {n}",) for n in range(rows)))
    connection.close()
    return path


def bodies(path: Path) -> list[str]:
    """Every body in the file, in order, seen by a connection of its own; for when nothing here has it open."""
    connection = apsw.Connection(str(path))
    try:
        return [body for (body,) in connection.execute("SELECT body FROM note ORDER BY id")]
    finally:
        connection.close()
