"""Connections to private files of a recovery: the damaged copy that is read, and the new file that is filled.

Invariant: only private copies are opened here, never a store. The damaged copy is read with a schema that may be
malformed (`writable_schema`), with every cell's size checked, without mmap, without search modules and triggers, and
without a checkpoint at close, so that its WAL stays byte for byte what it was. Text is read as bytes by the caller's
SQL (`CAST(... AS BLOB)`); what still is not UTF-8 becomes `Corrupt`, like every damage.

Not for: live stores (`connection.py`). A child process per read was rejected: SQLite is built to survive damaged pages
under these settings, and a run that is killed all the same leaves out the step that killed it (`maintenance.recovery`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import apsw

from hermes_state.engine.files import new_private_file
from hermes_state.engine.tokenizers import NulRule, register
from hermes_state.engine.translate import named, translated
from hermes_state.engine.whole_file import copy_back

CACHE_KIB = 16 * 1024


class Salvage:
    """One connection to a private file. Close it before the file's bytes are read otherwise in this process."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query. Raises `Corrupt`, `NotAStore` and the other errors of a read."""
        try:
            return self._connection.execute(sql, params).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise named(error, self.path, "reading", self._connection) from error

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        found = self.rows(sql, params)
        return found[0] if found else None

    def iterate(self, sql: str, params: Sequence[Any] = (), *, batch: int = 1) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, each given before the next is read: an error costs none of those before it."""
        cursor = self._connection.cursor()
        try:
            with translated(self.path, "reading", self._connection):
                cursor.execute(sql, params)
            while True:
                try:
                    row = next(cursor, None)
                except (apsw.Error, UnicodeDecodeError) as error:
                    raise named(error, self.path, "reading", self._connection) from error
                if row is None:
                    return
                yield row
        finally:
            cursor.close(True)

    def close(self) -> None:
        """Close; nothing is copied back."""
        self._connection.close(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Building(Salvage):
    """A new private file that is being filled. Constraints act, foreign keys are checked when all rows are in."""

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run one statement."""
        try:
            self._connection.execute(sql, params).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise named(error, self.path, "writing", self._connection) from error

    def executemany(self, sql: str, many: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each set of parameters."""
        try:
            self._connection.executemany(sql, many).fetchall()
        except (apsw.Error, UnicodeDecodeError) as error:
            raise named(error, self.path, "writing", self._connection) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, kill -9 included."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK").fetchall()
            raise
        self.execute("COMMIT")

    def copy_back(self) -> None:
        """Copy every frame of the WAL into the file, which then can be used by itself. Raises when not all go."""
        copy_back(self._connection, self.path)


def open_salvage(path: Path) -> Salvage:
    """Read the damaged private copy `path`. A hot rollback journal beside it is rolled back, in the copy.

    Raises `NotAStore`, `Corrupt`, `CannotOpen` when nothing can be read through SQLite at all.
    """
    with translated(path, "opening"):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with translated(path, "opening", connection):
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
            connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
            # A column whose name is damaged must be an error, not the text of that name for every row.
            connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
            connection.drop_modules([])
            connection.wal_autocheckpoint(0)
            for pragma in (
                "writable_schema = ON", "cell_size_check = ON", "mmap_size = 0", f"cache_size = -{CACHE_KIB}",
                "temp_store = FILE", "automatic_index = OFF",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except BaseException:
        connection.close(True)
        raise
    return Salvage(connection, path)


def open_building(
    path: Path, *, page_size: int = 4096, incremental_vacuum: bool = False, search_modules: bool = True
) -> Building:
    """Open the private file `path` for filling, and make it when it is not there.

    Commits survive kill -9, not a power cut: whoever gives the file its name syncs it first.
    """
    if not path.exists():
        new_private_file(path)
    with translated(path, "opening"):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with translated(path, "opening", connection):
            connection.execute(f"PRAGMA page_size = {page_size}").fetchall()
            if incremental_vacuum:
                connection.execute("PRAGMA auto_vacuum = incremental").fetchall()
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            # The index of hermes-agent's search ends a text at its first NUL, as SQLite 3.40 does.
            if search_modules:
                register(connection, NulRule.CUT)
            for pragma in (
                "synchronous = OFF", "foreign_keys = OFF", f"cache_size = -{2 * CACHE_KIB}", "temp_store = FILE",
                "recursive_triggers = OFF", "journal_size_limit = 67108864",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        connection.close(True)
        raise
    return Building(connection, path)


@dataclass(frozen=True, kw_only=True)
class ColumnInfo:
    """One column as SQLite understands its definition."""

    # its name
    name: str
    # the declared type, "" when there is none
    declared: str
    # whether NULL is refused
    required: bool
    # the text of the DEFAULT clause, None without one
    default: str | None
    # place in the primary key from 1, 0 when it is not part of it
    key: int


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """One table as SQLite understands its CREATE statement."""

    # stored columns in order, generated ones left out
    columns: tuple[ColumnInfo, ...]
    # whether rows are kept by their primary key alone
    without_rowid: bool
    # whether types are enforced
    strict: bool
    # the column that is the rowid by another name, None when there is none
    rowid_column: str | None
    # columns that refer to another table: own column, table, its column ("" for its key)
    references: tuple[tuple[str, str, str], ...]


def describe_table(name: str, sql: str) -> TableInfo | None:
    """What SQLite makes of a CREATE TABLE statement, in an empty database in memory; None when it refuses it."""
    connection = apsw.Connection(":memory:")
    try:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        try:
            connection.execute(sql).fetchall()
            quoted = '"' + name.replace('"', '""') + '"'
            info = connection.execute(f"PRAGMA table_xinfo({quoted})").fetchall()
            listed = connection.execute("SELECT wr, strict FROM pragma_table_list WHERE name = ?", (name,)).fetchall()
            keys = connection.execute(f"PRAGMA foreign_key_list({quoted})").fetchall()
        except (apsw.Error, UnicodeDecodeError):
            return None  # garbage is no statement; the caller looks for the shape elsewhere
        if not info or not listed:
            return None
        columns = tuple(
            ColumnInfo(
                name=str(row[1]), declared=str(row[2] or ""), required=bool(row[3]),
                default=None if row[4] is None else str(row[4]), key=int(str(row[5])),
            )
            for row in info if not row[6]
        )
        without = bool(listed[0][0])
        in_key = [column for column in columns if column.key]
        alias = in_key[0].name if len(in_key) == 1 and not without and in_key[0].declared.upper() == "INTEGER" else None
        return TableInfo(
            columns=columns, without_rowid=without, strict=bool(listed[0][1]), rowid_column=alias,
            references=tuple((str(row[3]), str(row[2]), str(row[4] or "")) for row in keys),
        )
    finally:
        connection.close(True)


def schema_entries(sql: str) -> list[tuple[str, str, str, str | None]]:
    """Type, name, table and statement of everything that a script of CREATE statements makes."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(sql).fetchall()
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid").fetchall()
        return [
            (str(kind), str(name), str(table), None if text is None else str(text)) for kind, name, table, text in found
        ]
    finally:
        connection.close(True)
