"""The schema as page 1 and its tree have it.

Invariant: each row of sqlite_schema that can be read counts, whatever another row says; two rows of one name give one
object, the first. Not for: shapes of releases, which come as data.

Stopping at the first bad row was rejected: SQLite does, and then no table of the file can be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from maintenance.recovery.carve.ddl import index_shape, parse_index, parse_table
from maintenance.recovery.carve.shapes import ColumnShape, IndexShape, Schema, TableShape
from maintenance.recovery.format.btree import (
    TABLE_INTERIOR,
    TABLE_LEAF,
    Layout,
    children,
    table_cells,
)
from maintenance.recovery.format.header import HEADER_BYTES
from maintenance.recovery.format.image import Image

SCHEMA_SHAPE = TableShape(
    name="sqlite_schema",
    columns=(
        ColumnShape(name="type", affinity="TEXT", pattern="table|index|view|trigger"),
        ColumnShape(name="name", affinity="TEXT"),
        ColumnShape(name="tbl_name", affinity="TEXT"),
        ColumnShape(name="rootpage", affinity="INTEGER"),
        ColumnShape(name="sql", affinity="TEXT"),
    ),
    root=1,
)


def layout_of(image: Image) -> Layout:
    """The sizes by which the pages of an image are read."""
    return Layout(usable=image.usable, encoding=image.encoding, pages=image.page_count)


def shapes_of(image: Image) -> list[TableShape]:
    """The tables of an image whose schema rows can be read, with their roots; empty when page 1 says nothing."""
    return list(schema_of(image).tables)


def schema_of(image: Image) -> Schema:
    """Tables and indexes of an image. A table whose SQL is garbage has no columns and is in `unreadable` too."""
    rows = list(_schema_rows(image))
    tables: dict[str, TableShape] = {}
    automatic: dict[str, list[tuple[str, ...]]] = {}
    unreadable: list[tuple[str, int]] = []
    for kind, name, _, root, sql in rows:
        if kind != "table" or not root or name in tables:
            continue
        parsed = parse_table(sql, name=name, root=root) if sql else None
        if parsed is None:
            unreadable.append((name, root))
            tables[name] = TableShape(name=name, columns=(), root=root)
        else:
            tables[name] = parsed.shape
            automatic[name.lower()] = parsed.automatic
    by_name = {name.lower(): shape for name, shape in tables.items()}
    indexes: dict[str, IndexShape] = {}
    for kind, name, table, root, sql in rows:
        owner = by_name.get(table.lower())
        if kind != "index" or not root or name in indexes:
            continue
        shape = None
        if owner is not None and sql:
            shape = parse_index(sql, owner, name=name, root=root)
        elif owner is not None:
            columns = _automatic_columns(name, automatic.get(table.lower(), []))
            shape = index_shape(list(columns), owner, name=name, root=root) if columns else None
        if shape is None:
            unreadable.append((name, root))
        else:
            indexes[name] = shape
    return Schema(tables=tuple(tables.values()), indexes=tuple(indexes.values()), unreadable=tuple(unreadable))


def _automatic_columns(name: str, automatic: list[tuple[str, ...]]) -> tuple[str, ...] | None:
    number = name.rpartition("_")[2]
    place = int(number) - 1 if number.isascii() and number.isdigit() and len(number) < 9 else -1
    return automatic[place] if 0 <= place < len(automatic) else None


def _schema_rows(image: Image) -> Iterator[tuple[str, str, str, int, str | None]]:
    """(type, name, table, root, sql) of every row that has the form of one."""
    layout = layout_of(image)
    seen: set[int] = set()
    waiting = [1]
    while waiting:
        number = waiting.pop()
        page = image.page(number)
        base = HEADER_BYTES if number == 1 else 0
        if number in seen or len(page) < image.usable:
            continue
        seen.add(number)
        if page[base] == TABLE_INTERIOR:
            waiting.extend(reversed(children(page, base, layout.usable, layout.pages)))
        elif page[base] == TABLE_LEAF:
            cells, _ = table_cells(
                page, base, image.real_bytes(number), layout, lambda wanted: (image.page(wanted), True)
            )
            for _, row, _, _, _ in cells:
                if len(row) != 5:
                    continue
                kind, name, table, root, sql = row
                if isinstance(kind, str) and isinstance(name, str) and isinstance(table, str):
                    page_of_root = root if isinstance(root, int) and 0 < root <= layout.pages else 0
                    yield kind, name, table, page_of_root, sql if isinstance(sql, str) else None
