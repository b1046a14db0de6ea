"""Stores and backups for the tests: made and restored in this process, on a machine where every process can be seen."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw

from maintenance.backups import Restored, restore
from tests.maintenance.adopting import nobody
from tests.support.children import Children


def leave_wal(db: Path, *statements: str) -> None:
    """Run statements and leave what they committed in the WAL only, with nobody there, as after a kill."""
    connection = apsw.Connection(str(db))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.wal_autocheckpoint(0)
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def tidy(db: Path) -> Path:
    """Bring the WAL of a store that nobody has open into it, and remove both sidecars."""
    connection = apsw.Connection(str(db))
    connection.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
    connection.close()
    for ending in ("-wal", "-shm"):
        Path(f"{db}{ending}").unlink(missing_ok=True)
    return db


def query(db: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a file that nobody has open; its WAL stays."""
    connection = apsw.Connection(str(db))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def put_back(backup: Path, db: Path, **options: Any) -> Restored:
    return restore(backup, db, scanner=nobody, **options)


def copied(source: Path, folder: Path) -> Path:
    """A copy of a backup with its manifest in another folder."""
    folder.mkdir(exist_ok=True)
    for path in (source, source.with_name(f"{source.name}.manifest.json")):
        shutil.copy(path, folder / path.name)
    return folder / source.name


def damage_table(db: Path, table: str = "messages") -> None:
    """Zero a leaf of a table in a file that nobody has open."""
    from tests.maintenance.damage import leaves

    page = leaves(db, table)[2]
    tidy(db)
    with db.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(bytes(4096))


UNFINISHED = """
import sys, gates, apsw
store = apsw.Connection(sys.argv[1])
store.execute("PRAGMA journal_mode = delete").fetchall()
store.execute("PRAGMA cache_size = 1").fetchall()
store.execute("BEGIN IMMEDIATE")
store.execute("UPDATE messages SET content = 'half of it ' || coalesce(content, '')").fetchall()
store.cache_flush()
gates.reach("written")
gates.wait("never")
"""


def leave_journal(db: Path, child: Children) -> dict[str, bytes]:
    """Let a process die within a change in rollback mode; the database and its journal, as bytes."""
    writer = child(UNFINISHED, db)
    writer.wait_for("written")
    writer.kill()
    return both_files(db)


def both_files(db: Path) -> dict[str, bytes]:
    """The database and its rollback journal."""
    return {ending: Path(f"{db}{ending}").read_bytes() for ending in ("", "-journal")}
