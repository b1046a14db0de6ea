"""The schema of the file being filled: tables before the rows, the rest after them, and the checks at the end.

Invariant: unique indexes are there before rows are, so that two rows of one name meet when the second comes, but those
of gateways and cron, where a stale row would keep a later one out; other indexes and triggers come last. A statement of
the source that SQLite refuses is listed and left out. A file is finished only when its pages, its references and its
counts are right.

Not for: rows. Making everything first was rejected: triggers of a native store forbid what mending must do, and indexes
grow twice as fast in one go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hermes_state.engine import APPLICATION_ID
from hermes_state.engine.salvage import Building, Salvage, schema_entries
from hermes_state.engine.schema import schema_sql
from hermes_state.errors import Corrupt, StateError
from maintenance.dialects.native import scheduled, serving
from maintenance.quoting import quoted
from maintenance.recovery.filling import Filler
from maintenance.recovery.notes import NAMES
from maintenance.recovery.schema import Entry, Schema, add_table
from maintenance.recovery.search import create_search, is_search_trigger

AFTER_ROWS = serving.AFTER_ROWS | scheduled.AFTER_ROWS
VACUUM_SHARE = 0.2  # of free pages, from which on the result is rewritten


def prepare(filler: Filler, schema: Schema, *, search: bool) -> None:
    """Make the tables, and with `search` the search indexes. Does nothing in a file that has them already."""
    db = filler.db
    if db.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\\_recovery\\_%' ESCAPE '\\'"):
        filler.has_search = db.row("SELECT 1 FROM sqlite_schema WHERE sql LIKE '%using fts5%'") is not None
        return
    with db.transaction():
        # Every table in one transaction: a killed run finds all of them or none.
        for table in schema.tables.values():
            if table.name not in schema.texts:
                db.execute(table.sql)
        for entry in _unique_indexes(schema):
            _make(filler, entry)
        if search and not schema.native:
            said = create_search(db, schema)
            filler.decisions += said
            filler.has_search = not said and bool(schema.search)
        have = {str(name) for (name,) in db.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        for name in schema.texts:
            if name in schema.tables and name not in have:  # the index that would have made it is not there
                db.execute(schema.tables[name].sql)
        if schema.native:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        elif schema.application_id:
            db.execute(f"PRAGMA application_id = {schema.application_id}")
        if schema.user_version:
            db.execute(f"PRAGMA user_version = {schema.user_version}")


def complete_native(schema: Schema) -> None:
    """Add what a native store must have and the source does not say."""
    have = {(entry.kind, entry.name) for entry in schema.entries if entry.kind != "table"}
    have |= {("table", name) for name in schema.tables}
    more = [
        Entry(kind=kind, name=name, table=table, root=0, sql=sql)
        for kind, name, table, sql in schema_entries(schema_sql())
        if (kind, name) not in have and sql and not name.startswith("sqlite_")
    ]
    for entry in more:
        schema.entries.append(entry)
        if entry.kind == "table":
            add_table(schema, entry)
            schema.lost = [name for name in schema.lost if name != entry.name]


def finish(filler: Filler, schema: Schema, sequences: dict[str, int]) -> None:
    """Indexes, triggers, views and counters of ids; the notes go. The caller has read them."""
    db = filler.db
    have = {str(name) for (name,) in db.rows("SELECT name FROM sqlite_schema")}
    searches = schema.search
    with db.transaction():
        for entry in schema.entries:
            if entry.kind == "table" or entry.name in have or not entry.sql or entry.name.startswith("sqlite_"):
                continue
            if entry.kind in ("trigger", "view") and (
                is_search_trigger(entry, searches) or (searches and entry.name.startswith(searches))
            ):
                continue
            _make(filler, entry)
        _keep_sequences(db, sequences)
        for name in NAMES:
            db.execute(f"DROP TABLE IF EXISTS {name}")


def compact(db: Building) -> None:
    """Give back what the notes took, when that is much; and put everything into the one file."""
    pages, free = (int(db.rows(f"PRAGMA {name}")[0][0]) for name in ("page_count", "freelist_count"))
    if free > VACUUM_SHARE * pages:
        db.execute("VACUUM")
    db.copy_back()


def read_sequences(salvage: Salvage | None) -> dict[str, int]:
    """The counters of ids of the source, as many as can be read."""
    found: dict[str, int] = {}
    if salvage is None:
        return found
    try:
        for name, seq in salvage.iterate("SELECT CAST(name AS BLOB), seq FROM sqlite_sequence"):
            if isinstance(seq, int) and name is not None:
                found[bytes(name).decode("utf-8", errors="replace")] = seq
    except StateError as error:
        if error.retryable:
            raise
    return found


def require_sound(db: Building) -> dict[str, Any]:
    """Page check, references, foreign to no table; raises `Corrupt` when the result is not what it must be."""
    pages = [str(row[0]) for row in db.rows("PRAGMA integrity_check(20)")]
    # Search has a check of its own: the text rule of an index is that of the program that built it.
    problems = [text for text in pages if text != "ok"]
    tables = {str(name) for (name,) in db.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    # A reference to a table that is lost as a whole is one to nothing, and listed as such.
    references = sum(str(row[2]) in tables for row in db.rows("PRAGMA foreign_key_check"))
    if problems or references:
        raise Corrupt(
            f"The file that was made is not sound ({problems[0] if problems else f'{references} references'}). It was "
            "not given its name.",
            hint="Report this sentence with the report of the recovery.", path=db.path, search_index=False,
        )
    return {"pages": "ok", "references": "ok"}


def _unique_indexes(schema: Schema) -> Iterator[Entry]:
    for entry in schema.entries:
        if entry.kind == "index" and entry.sql and entry.sql.upper().split()[1:2] == ["UNIQUE"] and (
            entry.table in schema.tables and not (schema.native and entry.name in AFTER_ROWS)
        ):
            yield entry


def _make(filler: Filler, entry: Entry) -> None:
    if entry.table and entry.kind != "view":
        sql = "SELECT 1 FROM sqlite_schema WHERE name = ? AND type IN ('table', 'view')"
        found = filler.db.row(sql, (entry.table,))
        if found is None:
            return  # of a table that is not there: its loss is said elsewhere
    try:
        filler.db.execute(entry.sql or "")
    except StateError as error:
        if error.retryable:
            raise
        filler.decisions.append({
            "what": "schema_left_out", "kind": entry.kind, "name": entry.name, "why": str(error.__cause__ or error),
        })


def _keep_sequences(db: Building, sequences: dict[str, int]) -> None:
    if db.row("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'") is None:
        return
    for name, seq in sequences.items():
        if db.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)) is None:
            continue
        there = db.row("SELECT seq FROM sqlite_sequence WHERE name = ?", (name,))
        if there is None:
            db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, seq))
        elif isinstance(there[0], int) and there[0] < seq:
            db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (seq, name))


def counts(db: Building, schema: Schema) -> dict[str, int]:
    """Rows of each table of the result."""
    return {name: int(db.rows(f"SELECT count(*) FROM {quoted(name)}")[0][0]) for name in schema.tables}
