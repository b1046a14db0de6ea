"""Databases for the tests of the carver, made by real SQLite, and what SQLite says is in them.

Invariant: every connection is closed before the carver reads the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from maintenance.quoting import quoted
from maintenance.recovery.carve.rows import CarvedRow, carve, shapes_of
from maintenance.recovery.format.image import Image

WalRule = Any
Rows = list[tuple[Any, ...]]


def build(
    path: Path, *statements: str | tuple[str, Sequence[Any]], pragmas: Sequence[str] = (), wal: bool = False
) -> Path:
    """Run statements on a file; `wal` leaves its WAL beside it as a crash would."""
    connection = apsw.Connection(str(path))
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        if wal:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            connection.wal_autocheckpoint(0)
        for statement in statements:
            sql, params = (statement, ()) if isinstance(statement, str) else statement
            connection.execute(sql, params).fetchall()
    finally:
        connection.close()
    return path


def build_many(path: Path, sql: str, rows: Sequence[Sequence[Any]], *, wal: bool = False) -> None:
    """Run one statement for many rows in one transaction."""
    connection = apsw.Connection(str(path))
    try:
        if wal:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.wal_autocheckpoint(0)
        with connection:
            connection.executemany(sql, rows)
    finally:
        connection.close()


def selected(path: Path, table: str) -> Rows:
    """What SQLite itself reads of the columns that are stored; the WAL stays as it is."""
    connection = apsw.Connection(str(path))
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        stored = connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,)).fetchall()
        names = ", ".join(quoted(name) for (name,) in stored)
        return connection.execute(f'SELECT {names} FROM "{table}"').fetchall()
    finally:
        connection.close()


def tables_of(path: Path) -> list[str]:
    """Tables with a b-tree of their own."""
    connection = apsw.Connection(str(path))
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
        return [row[0] for row in connection.execute(sql).fetchall()]
    finally:
        connection.close()


def beside(path: Path) -> Path:
    """The WAL of a database."""
    return path.with_name(path.name + "-wal")


def carved(path: Path, *, wal_rule: WalRule = "sqlite", shapes: Any = None, **options: Any) -> list[CarvedRow]:
    """All rows of a file, with its own shapes unless others are given."""
    with Image.read(path, beside(path), wal_rule=wal_rule) as image:
        return list(carve(image, shapes_of(image) if shapes is None else shapes, **options))


def bag(rows: Sequence[Sequence[Any]]) -> Counter[str]:
    """Rows to compare whatever their order: 1 and 1.0 differ, as they do in a file."""
    return Counter(repr(tuple(row)) for row in rows)


def linked(rows: Sequence[CarvedRow], table: str) -> Rows:
    """Values of the rows of a table that SQLite would find too."""
    return [row.values for row in rows if row.place == "linked" and row.table == table]


def assert_carved_equals_selected(path: Path, *, wal_rule: WalRule = "sqlite") -> None:
    """Every row of every table, no more and no fewer, and all of them whole."""
    rows = carved(path, wal_rule=wal_rule)
    for table in tables_of(path):
        assert bag(linked(rows, table)) == bag(selected(path, table)), table
    assert [row for row in rows if row.place == "linked" and not row.whole] == []
