"""Stores in every state, and the replacement of their content without looking at all processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from hermes_state.engine.create import create_store
from maintenance.replacement import Replaced, replace_content
from tests.maintenance.adopting import nobody
from tests.support.space import context

VERB = "sessions repair"
STATES: dict[str, Callable[[Path], None]] = {
    "healthy": lambda db: None,
    "zeroed header": lambda db: overwrite(db, bytes(100)),
    "zeroed page 1": lambda db: overwrite(db, bytes(4096)),
    "cut": lambda db: cut(db, db.stat().st_size // 2 + 777),
    "no database": lambda db: (cut(db, 0), overwrite(db, b"hello world " * 1001))[0],
    "five bytes": lambda db: (cut(db, 0), overwrite(db, b"hello"))[0],
    "empty": lambda db: cut(db, 0),
    "all zero": lambda db: overwrite(db, bytes(db.stat().st_size)),
    "missing": lambda db: db.unlink(),
}


def overwrite(db: Path, content: bytes) -> None:
    with db.open("r+b") as file:
        file.write(content)


def cut(db: Path, size: int) -> None:
    with db.open("r+b") as file:
        file.truncate(size)


def make(
    path: Path, word: str, *, rows: int = 400, mode: str = "wal", page_size: int = 4096, wal: bool = False
) -> Path:
    """A private database with `rows` rows of `word`; with `wal` its last rows are in the WAL only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA page_size = {page_size}; PRAGMA journal_mode = {mode}").fetchall()
    connection.execute("CREATE TABLE note(id INTEGER PRIMARY KEY, body TEXT)").fetchall()
    with connection:
        connection.executemany("INSERT INTO note(body) VALUES(?)", ((f"{word} {n} " + "x" * 300,) for n in range(rows)))
    kept = path.with_name(f"{path.name}.kept-wal")
    if wal:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
        connection.execute(f"UPDATE note SET body = '{word} in the WAL' WHERE id < 50").fetchall()
    connection.close()
    if wal and not Path(f"{path}-wal").exists():
        shutil.move(kept, f"{path}-wal")
    return path


def native(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    assert create_store(path)
    return path


def query(db: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a file that nobody has open; its WAL, if it has one, stays."""
    connection = apsw.Connection(str(db))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def words(db: Path) -> set[str]:
    return {str(body).split()[0] for (body,) in query(db, "SELECT body FROM note")}


def replace(db: Path, new: Path, **options: Any) -> Replaced:
    return replace_content(context(db), VERB, new, scanner=nobody, **options)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
