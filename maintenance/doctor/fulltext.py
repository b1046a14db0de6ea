"""The full-text indexes of a file, and which rows each of them should hold.

Invariant: read from the schema and from what hermes-agent keeps in `state_meta`; nothing is assumed from a version
number. Not for: judging them (`search`). Asking the FTS5 table itself was rejected: a damaged one does not answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hermes_state.engine import Reader
from maintenance.dialects.base import SearchIndex
from maintenance.dialects.detect import dialect_of
from maintenance.dialects.foreign.shape import SEARCH_PREFIXES
from maintenance.quoting import quoted

_CONTENT_ROWID = re.compile(r"content_rowid\s*=\s*['\"]?(\w+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """Where the text of an index can be read."""

    # Table or view.
    table: str
    # Its column with the row's id.
    key: str
    # The columns with the text, in the order of the index.
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A backfill of an index that is under way: rows above `progress` up to `high_water` are not in it yet."""

    progress: int
    high_water: int


def fulltext_indexes(reader: Reader) -> tuple[SearchIndex, ...]:
    """The search indexes of the file."""
    return dialect_of(reader).search_indexes(reader)


def is_of_messages(index: SearchIndex) -> bool:
    """Whether an index is built from the messages. False for one of another program that keeps a text of its own: that
    text is nowhere else, so such an index is a table of rows and not a thing that can be built again."""
    return index.layout == "external" or index.name.startswith(SEARCH_PREFIXES)


def text_source(reader: Reader, index: SearchIndex) -> TextSource | None:
    """Where the text that `index` was built from is, or None when the index keeps none and names none."""
    if index.layout == "inline":
        columns = tuple(f"c{number}" for number in range(len(index.columns)))
        return TextSource(table=f"{index.name}_content", key="id", columns=columns)
    if index.content_source is None:
        return None
    row = reader.row("SELECT sql FROM sqlite_schema WHERE name = ?", (index.name,))
    key = _CONTENT_ROWID.search(str(row[0])) if row else None
    return TextSource(table=index.content_source, key=key.group(1) if key else "rowid", columns=index.columns)


def should_hold(reader: Reader, index: SearchIndex) -> tuple[str, str] | None:
    """Table and key column of the rows that the index should hold; None when that is not known."""
    if index.layout == "inline":
        return ("messages", "id") if is_of_messages(index) else None
    source = text_source(reader, index)
    return (source.table, source.key) if source else None


def gate_of(reader: Reader, index: SearchIndex) -> Gate | None:
    """The backfill of hermes-agent's newer layout, when one is recorded and not complete."""
    if index.layout == "inline" or not reader.row("SELECT 1 FROM sqlite_schema WHERE name = 'state_meta'"):
        return None
    prefix = "fts_cjk_rebuild" if index.name.endswith("_cjk") else "fts_rebuild"
    keys = (f"{prefix}_progress", f"{prefix}_high_water")
    rows = reader.rows("SELECT key, CAST(value AS BLOB) FROM state_meta WHERE key IN (?, ?)", keys)
    values = {str(key): bytes(value or b"").decode(errors="replace") for key, value in rows}
    progress, high_water = (values.get(key, "") for key in keys)
    if not (progress.isdecimal() and high_water.isdecimal()):
        return None
    gate = Gate(progress=int(progress), high_water=int(high_water))
    return gate if gate.progress < gate.high_water else None


def row_set(reader: Reader, index: SearchIndex) -> tuple[int, int] | None:
    """How many rows the index lacks, and how many it holds that are gone; None when it keeps no list of rows."""
    expected = should_hold(reader, index)
    docsize = f"{index.name}_docsize"
    if expected is None or not reader.row("SELECT 1 FROM sqlite_schema WHERE name = ?", (docsize,)):
        return None
    table, key = quoted(expected[0]), quoted(expected[1])
    gate = gate_of(reader, index)
    filled = f"(source.{key} <= {gate.progress} OR source.{key} > {gate.high_water})" if gate else "1"
    missing = reader.row(
        f"SELECT count(*) FROM {table} AS source WHERE {filled} "
        f"AND NOT EXISTS (SELECT 1 FROM {quoted(docsize)} AS held WHERE held.id = source.{key})"
    )
    stale = reader.row(
        f"SELECT count(*) FROM {quoted(docsize)} AS held "
        f"WHERE NOT EXISTS (SELECT 1 FROM {table} AS source WHERE source.{key} = held.id)"
    )
    return (int(missing[0]) if missing else 0, int(stale[0]) if stale else 0)
