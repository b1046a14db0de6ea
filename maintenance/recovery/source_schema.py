"""The schema of a private copy: what SQLite gives, else what its pages give, else what a release is known to have.

Invariant: the same copy gives the same schema, so a run that goes on later works with the one it began with; neither
SQLite nor the pages are left open. Not for: what a schema means (`schema.py`).
"""

from __future__ import annotations

from pathlib import Path

from hermes_state.engine.salvage import Salvage, open_salvage
from hermes_state.errors import NotAStore, StateError
from maintenance.recovery.carving import (
    carved_schema,
    columns_of_rows,
    open_image,
    plain_statement,
    release_schema,
)
from maintenance.recovery.finishing import complete_native
from maintenance.recovery.format.header import HEADER_BYTES
from maintenance.recovery.known import known_statement, nearly_known
from maintenance.recovery.ladder import said_ok
from maintenance.recovery.schema import (
    Entry,
    Schema,
    build_schema,
    mend_statements,
    replace_statements,
    schema_of_rows,
    single,
)

ESSENTIAL = frozenset({"sessions", "messages"})


def find_schema(copy: Path, wal: Path, *, name: Path) -> Schema:
    """The schema of the private copy of `name`. Raises `NotAStore` when there are no tables and no rows at all."""
    schema = Schema(origin="none")
    if (salvage := try_open(copy)) is not None:
        with salvage:
            schema = build_schema(schema_of_rows(salvage), "file")
            schema.application_id, schema.user_version = (
                single(salvage, pragma) for pragma in ("application_id", "user_version")
            )
            schema.page_size = single(salvage, "page_size") or 4096
            # Asked only when there is something to mend: it reads the whole file.
            strange = any(nearly_known(table.name, table.names) for table in schema.tables.values())
            if strange and not said_ok(salvage, "PRAGMA quick_check(1)"):
                mend_statements(schema)
    if not schema.tables and not schema.lost:
        # A schema that SQLite gives nothing of may still be on its pages.
        with open_image(copy, wal) as image:
            known = carved_schema(image)
            if not known.tables:
                known = release_schema(image) or known
            known.page_size = image.page_size
            first = image.page(1)
            if image.header_whole and len(first) >= HEADER_BYTES:
                known.user_version, known.application_id = (
                    int.from_bytes(first[at : at + 4], "big", signed=True) for at in (60, 68)
                )
        schema = known
    if schema.tables and not set(schema.tables) >= ESSENTIAL:
        # An entry of the schema is gone: it may be on a page of its own, and its rows are somewhere.
        with open_image(copy, wal) as image:
            _add_missing(schema, carved_schema(image))
    if schema.lost:
        with open_image(copy, wal) as image:
            replace_statements(
                schema, lambda root: columns_of_rows(image, root),
                lambda table, root: plain_statement(image, table, root),
            )
    if not schema.tables:
        raise NotAStore(
            f"{name} has no tables and no rows that fit the tables of any known release.",
            hint="Recover from another file: `hermes-state sessions leftovers` lists the copies beside a store.",
            path=name,
        )
    if schema.native:
        complete_native(schema)
    return schema


def _add_missing(schema: Schema, carved: Schema) -> None:
    """Tables that only pages tell of; then the two without which there is no store, as releases like this have them."""
    have = {(entry.kind, entry.name) for entry in schema.entries}
    schema.entries += [entry for entry in carved.entries if (entry.kind, entry.name) not in have]
    for name, table in carved.tables.items():
        if name not in schema.tables:
            schema.tables[name] = table
            schema.lost = [lost for lost in schema.lost if lost != name]
    for name in sorted(ESSENTIAL - set(schema.tables) - set(schema.lost)):
        if known_statement(name, {other: table.names for other, table in schema.tables.items()}, 0) is not None:
            schema.entries.append(Entry(kind="table", name=name, table=name, root=0, sql=None))
            schema.lost.append(name)


def try_open(copy: Path) -> Salvage | None:
    """The copy through SQLite; None when it cannot be read that way at all."""
    if not copy.exists():
        return None
    try:
        return open_salvage(copy)
    except StateError as error:
        if error.retryable:
            raise
        return None
