"""Write what each release's file looks like as data: `python -m tests.support.make_shapes`.

Invariant: tables, columns, types, indexes and the names of triggers, read from the committed fixtures through SQLite's
own description; no statement of hermes-agent is copied. A test compares the committed files with what this makes.

Not for: shapes that no fixture exists for (`newer.json` is written by hand from the fact sheet).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import apsw

from tests.support.stores import unpack, versions

FOLDER = Path(__file__).resolve().parents[2] / "maintenance" / "recovery" / "shapes"


def shape_of(version: str, folder: Path) -> dict[str, Any]:
    """The shape of one release's fixture."""
    connection = apsw.Connection(str(unpack(version, folder / f"{version}.db")))
    try:
        return {"release": version, **describe(connection)}
    finally:
        connection.close()


def describe(connection: apsw.Connection) -> dict[str, Any]:
    """Tables with columns and references, indexes, search indexes, triggers by name."""

    def ask(sql: str, *params: Any) -> list[Any]:
        return connection.execute(sql, params).fetchall()

    entries = ask("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid")
    search = [name for kind, name, _t, sql in entries if kind == "table" and "using fts5" in (sql or "").lower()]
    shadows = {f"{name}_{part}" for name in search for part in ("data", "idx", "content", "docsize", "config")}
    tables: dict[str, Any] = {}
    indexes: dict[str, Any] = {}
    for kind, name, table, sql in entries:
        if kind == "table" and name not in shadows and name not in search and not name.startswith("sqlite_"):
            tables[name] = {
                "columns": [
                    {"name": row[1], "type": row[2], "required": bool(row[3]), "default": row[4], "key": row[5]}
                    for row in ask(f'PRAGMA table_xinfo("{name}")')
                ],
                "counts_up": "autoincrement" in sql.lower(),
                "references": [
                    {"column": row[3], "table": row[2], "to": row[4], "on_delete": row[6]}
                    for row in ask(f'PRAGMA foreign_key_list("{name}")')
                ],
            }
        elif kind == "index" and sql:
            _head, _where, condition = sql.partition(" WHERE ")
            (unique,) = [row[2] for row in ask(f'PRAGMA index_list("{table}")') if row[1] == name]
            indexes[name] = {
                "table": table, "unique": bool(unique), "where": " ".join(condition.split()) or None,
                "columns": [
                    row[2] + (" DESC" if row[3] else "") for row in ask(f'PRAGMA index_xinfo("{name}")') if row[5]
                ],
            }
    (version,) = ask("SELECT max(version) FROM schema_version")[0]
    return {
        "schema_version": version, "tables": tables, "indexes": indexes, "search": search,
        "triggers": [name for kind, name, _table, _sql in entries if kind == "trigger"],
    }


def as_text(shape: dict[str, Any]) -> str:
    """The file's content."""
    return json.dumps(shape, indent=1, sort_keys=False) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for version in versions():
            (FOLDER / f"{version}.json").write_text(as_text(shape_of(version, Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
