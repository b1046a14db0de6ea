"""What files of each release look like, for sources whose own schema is gone.

Invariant: the data files of `shapes/` are facts about files (a test makes them again from the fixtures), and statements
are built from them here in words of our own. A native store's shape is the schema of this library itself.

Not for: a source whose schema can be read; that is always believed first. One merged shape of all releases was
rejected: its column order would fit no file.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from hermes_state.engine.salvage import describe_table, schema_entries
from hermes_state.engine.schema import schema_sql
from maintenance.quoting import quoted

NATIVE = "native"
# Names of one table that damage may have changed before it counts as another table.
MOST_FLIPPED = 2


@dataclass(frozen=True, kw_only=True)
class KnownShape:
    """One release's file."""

    # "0.19.0", or "native"
    release: str
    # its number in the table schema_version; None for a native store
    version: int | None
    # CREATE TABLE statements by table, in the order of the release
    tables: Mapping[str, str]
    # CREATE INDEX statements by name
    indexes: Mapping[str, str]


@functools.cache
def known_shapes() -> tuple[KnownShape, ...]:
    """Every shape, newest release first, then the native one."""
    found = []
    for file in resources.files("maintenance.recovery.shapes").iterdir():
        if file.name.endswith(".json"):
            found.append(_shape(json.loads(file.read_text(encoding="utf-8"))))
    found.sort(key=lambda shape: -(shape.version or 0))
    return (*found, native_shape())


@functools.cache
def native_shape() -> KnownShape:
    """This library's own schema."""
    entries = schema_entries(schema_sql())
    return KnownShape(
        release=NATIVE, version=None,
        tables={
            name: sql for kind, name, _table, sql in entries
            if kind == "table" and sql and not name.startswith("sqlite_")
        },
        indexes={name: sql for kind, name, _table, sql in entries if kind == "index" and sql},
    )


def known_statement(table: str, beside: Mapping[str, Sequence[str]], width: int) -> tuple[str, str] | None:
    """The release that has this table and is most like the file, and its CREATE statement; None when none is like it.

    beside: columns of the file's other tables by name. width: columns of the widest row of the table itself, 0 when no
    row can be read. Of releases that are equally like the file the newest counts.
    """
    best: tuple[int, str, str] | None = None
    for shape in known_shapes():
        columns = _columns(shape.release, table)
        if columns is None or width > len(columns):
            continue
        alike = sum(_columns(shape.release, name) == tuple(theirs) for name, theirs in beside.items())
        if not alike and width != len(columns):
            continue
        # Rows are as wide as the table when the newest of them was written.
        alike = 2 * alike + (width == len(columns))
        if best is None or alike > best[0]:
            best = (alike, shape.release, shape.tables[table])
    return None if best is None else best[1:]


def nearly_known(table: str, columns: Sequence[str]) -> tuple[str, str] | None:
    """The release whose table differs from these columns in one or two names only, and its statement.

    None when a release has exactly these, or none is that near: one flipped bit in a statement makes another name.
    """
    near: tuple[str, str] | None = None
    for shape in known_shapes():
        theirs = _columns(shape.release, table)
        if theirs == tuple(columns):
            return None
        if theirs is None or len(theirs) != len(columns) or near is not None:
            continue
        if sum(one != two for one, two in zip(theirs, columns, strict=True)) <= MOST_FLIPPED:
            near = (shape.release, shape.tables[table])
    return near


@functools.cache
def _columns(release: str, table: str) -> tuple[str, ...] | None:
    shape = next(shape for shape in known_shapes() if shape.release == release)
    info = describe_table(table, shape.tables[table]) if table in shape.tables else None
    return None if info is None else tuple(column.name for column in info.columns)


def _shape(said: Mapping[str, Any]) -> KnownShape:
    return KnownShape(
        release=said["release"], version=said["schema_version"],
        tables={name: create_table(name, table) for name, table in said["tables"].items()},
        indexes={name: create_index(name, index) for name, index in said["indexes"].items()},
    )


def create_table(name: str, said: Mapping[str, Any]) -> str:
    """A CREATE TABLE statement for a described table."""
    columns = said["columns"]
    key = sorted((column for column in columns if column["key"]), key=lambda column: int(column["key"]))
    single = key[0]["name"] if len(key) == 1 else None
    references = {item["column"]: item for item in said["references"]}
    parts = [_column(column, single, bool(said["counts_up"]), references) for column in columns]
    if len(key) > 1:
        parts.append(f"PRIMARY KEY ({_names(column['name'] for column in key)})")
    return f"CREATE TABLE {quoted(name)} (\n    " + ",\n    ".join(parts) + "\n)"


def create_index(name: str, said: Mapping[str, Any]) -> str:
    """A CREATE INDEX statement for a described index."""
    columns = ", ".join(
        quoted(column.removesuffix(" DESC")) + (" DESC" if column.endswith(" DESC") else "")
        for column in said["columns"]
    )
    unique = "UNIQUE " if said["unique"] else ""
    where = f" WHERE {said['where']}" if said["where"] else ""
    return f"CREATE {unique}INDEX {quoted(name)} ON {quoted(said['table'])} ({columns}){where}"


def _column(
    said: Mapping[str, Any], single: str | None, counts_up: bool, references: Mapping[str, Mapping[str, Any]]
) -> str:
    words = [quoted(said["name"]), said["type"]]
    if said["name"] == single:
        words.append("PRIMARY KEY AUTOINCREMENT" if counts_up else "PRIMARY KEY")
    if said["required"]:
        words.append("NOT NULL")
    if said["default"] is not None:
        words.append(f"DEFAULT {said['default']}")
    if said["name"] in references:
        item = references[said["name"]]
        to = f" ({quoted(item['to'])})" if item["to"] else ""
        action = item.get("on_delete", "NO ACTION")
        words.append(f"REFERENCES {quoted(item['table'])}{to}")
        if action != "NO ACTION":
            words.append(f"ON DELETE {action}")
    return " ".join(word for word in words if word)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))
