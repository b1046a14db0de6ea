"""A database of the shape that the recovery percentages were measured on, in any size.

Invariant: the same arguments give the same rows: an indexed table `messages` with some values of 20 KB in overflow
chains, an external-content FTS5 index over it, rows deleted so that there are free pages, and on request a live WAL.

Not for: a store (there is no schema of ours in it). Keeping the measured file was rejected: it is 40 MB.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw

_WORDS = [
    f"{first}{second}" for first in ("lamp", "harb", "grav", "sail", "tarn", "moss", "flint", "brook")
    for second in ("or", "el", "ine", "wick", "stead", "low")
]
_LONG_EVERY, _LONG_BYTES = 40, 20_000
Row = tuple[int, int, str, str, float]


def reference_database(path: Path | str, *, rows: int = 18_928, seed: int = 7, wal_rows: int = 0) -> list[Row]:
    """Write a new database with `rows` rows of `messages` and give them: (id, session, role, content, created_at).

    18,928 rows are about 40 MB. `wal_rows` more rows are committed, 50 at a time, into a WAL that stays beside the
    file; they are the last ones of the list. Raises `apsw.Error` when a file with tables is there.
    """
    chance = random.Random(seed)
    connection = apsw.Connection(str(path))
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        for statement in (
            "PRAGMA journal_mode = wal", "PRAGMA synchronous = off",
            "CREATE TABLE messages(id INTEGER PRIMARY KEY, session INTEGER NOT NULL, role TEXT NOT NULL, "
            "content TEXT NOT NULL, created_at REAL NOT NULL)",
            "CREATE INDEX messages_session ON messages(session, created_at)",
            "CREATE VIRTUAL TABLE messages_fts USING fts5(content, content=messages, content_rowid=id)",
            "CREATE TRIGGER messages_into_fts AFTER INSERT ON messages "
            "BEGIN INSERT INTO messages_fts(rowid, content) VALUES(new.id, new.content); END",
            "CREATE TRIGGER messages_out_of_fts AFTER DELETE ON messages "
            "BEGIN INSERT INTO messages_fts(messages_fts, rowid, content) VALUES('delete', old.id, old.content); END",
        ):
            connection.execute(statement).fetchall()
        every = list(_rows(chance, rows + rows // 25 + 1))
        # One run of ids, so that whole pages become free.
        start = chance.randrange(rows)
        gone = {row[0] for row in every[start : start + len(every) - rows]}
        with connection:
            connection.executemany("INSERT INTO messages VALUES(?, ?, ?, ?, ?)", every)
        with connection:
            connection.executemany("DELETE FROM messages WHERE id = ?", [(key,) for key in sorted(gone)])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        kept = [row for row in every if row[0] not in gone]
        connection.wal_autocheckpoint(0)
        later = list(_rows(chance, wal_rows, first=len(every) + 1))
        for start in range(0, wal_rows, 50):
            with connection:
                connection.executemany("INSERT INTO messages VALUES(?, ?, ?, ?, ?)", later[start : start + 50])
        return kept + later
    finally:
        connection.close()


def _rows(chance: random.Random, count: int, first: int = 1) -> Iterator[Row]:
    for key in range(first, first + count):
        long = key % _LONG_EVERY == 0
        size = _LONG_BYTES if long else int(chance.lognormvariate(6.6, 0.9)) + 20
        text = f"{key} " + " ".join(chance.choices(_WORDS, k=size // 7 + 1))
        yield key, key // 60, chance.choice(("user", "assistant", "tool")), text, 1_700_000_000.0 + key * 7.25
