"""What a foreign file consists of, read before anything is made of it.

Invariant: everything of the file has a place in the result: a table that is mapped, a table that is kept as it is, or a
search index, whose text is in the messages anyway. What the schema says (texts, columns, defaults) goes along as it is.

Not for: rows. Going by `schema_version` was rejected: files carry columns of several releases at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_state.errors import Refused
from maintenance.dialects.base import Dialect
from maintenance.dialects.detect import dialect_of
from maintenance.interop.typed import Cell, default_of, to_json
from maintenance.quoting import quoted
from maintenance.space.sizes import SHADOWS, TRASH_PREFIX, is_fulltext

if TYPE_CHECKING:
    from hermes_state.engine import Reader

PREFIX = "foreign_"
MAPPED = ("sessions", "messages", "session_model_usage", "system_prompts")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of one table."""

    names: tuple[str, ...]  # in the file's order, generated ones left out: they follow from the others
    defaults: Mapping[str, Cell]  # what a column holds when nothing was written; a column without an entry has no such

    def differs(self, name: str, cell: Cell) -> bool:
        """Whether a cell says something that its column's default does not."""
        if name not in self.defaults:
            return True
        default = self.defaults[name]
        return type(cell) is not type(default) or cell != default

    def document(self) -> dict[str, Any]:
        """For `store.adopted_from`: the columns in order, and their defaults."""
        return {
            "names": list(self.names), "defaults": {name: to_json(cell) for name, cell in self.defaults.items()}
        }


@dataclass(frozen=True, kw_only=True)
class Source:
    """A foreign file as far as its schema tells."""

    dialect: Dialect  # how its sessions hang together
    columns: Mapping[str, Columns]  # of the mapped tables that are there
    kept: tuple[str, ...]  # tables that are copied cell by cell
    derived: tuple[str, ...]  # search indexes and their tables: left behind
    schema: tuple[tuple[str, str, str, str | None], ...]  # type, name, table and text of every other schema entry
    sequences: Mapping[str, int]  # sqlite_sequence
    schema_version: int | None  # as the file states it
    application_id: int  # as the file states it
    page_size: int  # bytes

    def document(self) -> dict[str, Any]:
        """For `store.adopted_from`."""
        return {
            "program": "hermes-agent",
            "schema_version": self.schema_version,
            "application_id": self.application_id,
            "columns": {table: columns.document() for table, columns in self.columns.items()},
            "tables": {table: PREFIX + table for table in self.kept},
            "sequences": dict(self.sequences),
            "schema": [list(entry) for entry in self.schema],
        }


def read_source(reader: Reader) -> Source:
    """Look at the file behind `reader`. Raises `NotAStore`, or `Refused` for what cannot be adopted."""
    dialect = dialect_of(reader)
    encoding = _single(reader, "PRAGMA encoding")
    if encoding != "UTF-8":
        raise Refused(
            f"{reader.path} keeps its text as {encoding}; hermes-agent writes UTF-8 only.",
            hint="Export it with the program that wrote it.", path=reader.path,
        )
    entries = [
        (str(kind), str(name), str(table), None if sql is None else str(sql))
        for kind, name, table, sql in reader.rows("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid")
    ]
    tables = [(name, sql) for kind, name, _table, sql in entries if kind == "table"]
    fulltext = {name for name, sql in tables if is_fulltext(sql)}
    # A virtual table of another module has no rows of its own; the tables behind it are copied like any other.
    virtual = {name for name, sql in tables if sql is not None and sql.lower().split()[1:2] == ["virtual"]}
    shadows = {f"{index}_{shadow}" for index in fulltext for shadow in SHADOWS}
    derived = {name for name, _sql in tables if name in fulltext or name in shadows or name.startswith(TRASH_PREFIX)}
    plain = [name for name, _sql in tables if name not in derived | virtual and not name.startswith("sqlite_")]
    return Source(
        dialect=dialect,
        columns={name: read_columns(reader, name) for name in MAPPED if name in plain},
        kept=tuple(name for name in plain if name not in MAPPED),
        derived=tuple(sorted(derived)),
        schema=tuple(entry for entry in entries if entry[1] not in derived and entry[2] not in derived),
        sequences=_sequences(reader, {name for name, _sql in tables}),
        schema_version=dialect.shape.schema_version,
        application_id=int(_single(reader, "PRAGMA application_id")),
        page_size=int(_single(reader, "PRAGMA page_size")),
    )


def read_columns(reader: Reader, table: str) -> Columns:
    """The columns of one table with their defaults."""
    names, defaults = [], {}
    for row in reader.rows(f"PRAGMA table_xinfo({quoted(table)})"):
        if row[6]:
            continue  # hidden or generated
        name = str(row[1])
        names.append(name)
        plain, default = default_of(row[4])
        if plain:
            kind = str(row[2]).upper()
            # What SQLite makes of the literal when it stores it.
            real = isinstance(default, int) and any(word in kind for word in ("REAL", "FLOA", "DOUB"))
            defaults[name] = float(default) if real and isinstance(default, int) else default
    return Columns(names=tuple(names), defaults=defaults)


def read_adopted(document: str | None) -> dict[str, Columns]:
    """The columns that `Source.document` kept in `store.adopted_from`, by table; empty when nothing was adopted."""
    from maintenance.interop.typed import from_json

    columns = json.loads(document).get("columns", {}) if document else {}
    return {
        table: Columns(
            names=tuple(said["names"]), defaults={name: from_json(value) for name, value in said["defaults"].items()}
        )
        for table, said in columns.items()
    }


def _sequences(reader: Reader, tables: set[str]) -> dict[str, int]:
    if "sqlite_sequence" not in tables:
        return {}
    rows = reader.rows("SELECT name, seq FROM sqlite_sequence WHERE typeof(name) = 'text' AND typeof(seq) = 'integer'")
    return {str(name): int(seq) for name, seq in rows}


def _single(reader: Reader, sql: str) -> Any:
    row = reader.row(sql)
    return None if row is None else row[0]
