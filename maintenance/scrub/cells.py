"""Every text of every table that has no rules of its own, searched and replaced cell by cell.

Invariant: a table that is not known here is searched like the others, and so is another program's search index that
keeps texts itself, through its own columns; other virtual tables and all shadows are not, since they are made anew from
the rows. Cells are read as bytes, so one that is no UTF-8 stops nobody. A trigger that refuses
changes is taken away and put back, word for word, in the transaction that needs it.

Not for: messages and shared texts of a native store, whose checks and hashes change with them (see `native`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maintenance.dialects.foreign.shape import SEARCH_PREFIXES
from maintenance.quoting import quoted
from maintenance.space.segments import fulltext_tables

if TYPE_CHECKING:
    from hermes_state.engine import Reader, Transaction
    from maintenance.scrub.patterns import Redactor

ROWS_A_STEP = 200
_CONTENT = re.compile(r"[(,]\s*content\s*=\s*('[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|[^\s,)]*)", re.IGNORECASE)
_OLD_MODULE = re.compile(r"\bUSING\s+[\"'`\[]?fts[34]\b", re.IGNORECASE)
_OLD_PARTS = ("segments", "segdir", "stat", "docsize")
# How bytes that are no text come back as they were.
_LOSSLESS = {"utf-8": "surrogateescape", "utf-16-le": "surrogatepass", "utf-16-be": "surrogatepass"}


@dataclass(frozen=True, kw_only=True)
class Table:
    """An ordinary table, or a search index that keeps its texts."""

    # its name
    name: str
    # the columns that name a row: the rowid, or the primary key
    key: tuple[str, ...]
    # the columns that are searched
    columns: tuple[str, ...]
    # which of its rows, in SQL
    where: str = "true"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One row with a secret in it."""

    # values of the table's key
    key: tuple[Any, ...]
    # by column: "text" or "blob", and the new bytes in the store's encoding
    values: dict[str, tuple[str, bytes]]


def tables_of(reader: Reader, left_out: frozenset[str], fixed: frozenset[str]) -> list[Table]:
    """The tables to search: all but `left_out`, without the columns `fixed`, which hold words of ours."""
    found = []
    listed = reader.rows(
        "SELECT name, wr, type FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') "
        "ORDER BY name"
    )
    keeping = indexes_with_texts(reader)
    for name, without_rowid, kind in listed:
        if name in left_out or name.startswith("sqlite_") or (kind == "virtual" and name not in keeping):
            continue
        # Generated columns follow the others and cannot be written.
        columns = reader.rows("SELECT name, pk FROM pragma_table_xinfo(?) WHERE hidden = 0", (name,))
        key = tuple(column for column, number in sorted(columns, key=lambda row: row[1]) if number)
        taken = {column for column, _number in columns}
        rowid = next((word for word in ("rowid", "_rowid_", "oid") if word not in taken), None)
        if not without_rowid and rowid is not None:
            key = (rowid,)
        # A table that hides its rowid behind columns of that name: rows that are equal are changed together.
        key = key or tuple(sorted(taken))
        found.append(Table(name=name, key=key, columns=tuple(c for c in sorted(taken) if c not in fixed)))
    return found


def indexes_with_texts(reader: Reader) -> list[str]:
    """Search indexes of other programs that hold their texts themselves: those without the option `content`."""
    return [
        name for name in search_indexes(reader)
        if not name.startswith(SEARCH_PREFIXES) and _content_of(reader, name) is None
    ]


def search_indexes(reader: Reader) -> list[str]:
    """The FTS5 tables of a file, and those of the older modules FTS3 and FTS4."""
    return [*fulltext_tables(reader), *_old_indexes(reader)]


def old_index_tables(reader: Reader) -> frozenset[str]:
    """The tables of FTS3 and FTS4 whose rows are not texts: another number of them after a rebuild is no loss."""
    names = _old_indexes(reader)
    return frozenset([*names, *(f"{name}_{part}" for name in names for part in _OLD_PARTS)])


def _old_indexes(reader: Reader) -> list[str]:
    rows = reader.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND rootpage = 0 ORDER BY name")
    return [str(name) for name, sql in rows if _OLD_MODULE.search(str(sql))]


def has_no_texts(reader: Reader, name: str) -> bool:
    """Whether a search index keeps no texts at all, so that it cannot be made anew."""
    return _content_of(reader, name) == ""


def still_found(reader: Reader, secrets: Iterable[str]) -> Counter[str]:
    """Search indexes without texts that still find a secret, with how many rows: nobody can build those anew."""
    found: Counter[str] = Counter()
    phrases = ['"' + secret.replace('"', " ") + '"' for secret in secrets]
    for name in search_indexes(reader):
        if has_no_texts(reader, name):
            sql = f"SELECT count(*) FROM {quoted(name)} WHERE {quoted(name)} MATCH ?"
            found[name] = sum(int(reader.rows(sql, (phrase,))[0][0]) for phrase in phrases)
    return +found


def _content_of(reader: Reader, name: str) -> str | None:
    """The option `content` of a search index, None when it has none."""
    (sql,) = reader.rows("SELECT sql FROM sqlite_schema WHERE name = ?", (name,))[0]
    found = _CONTENT.search(str(sql))
    return None if found is None else found.group(1).strip("'\"`[]")


def codec_of(reader: Reader) -> str:
    """Python's name for the encoding of the store's texts."""
    return {"UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}.get(str(reader.rows("PRAGMA encoding")[0][0]), "utf-8")


def search(reader: Reader, table: Table, redactor: Redactor, codec: str) -> Iterator[list[Change]]:
    """The rows of a table with secrets in them, in portions."""
    if not table.columns:
        return
    key = ", ".join(quoted(name) for name in table.key)
    cells = ", ".join(f"typeof({quoted(name)}), CAST({quoted(name)} AS BLOB)" for name in table.columns)
    portion: list[Change] = []
    for row in reader.iterate(f"SELECT {key}, {cells} FROM {quoted(table.name)} WHERE {table.where}"):
        values: dict[str, tuple[str, bytes]] = {}
        for number, name in enumerate(table.columns):
            kind, raw = row[len(table.key) + 2 * number : len(table.key) + 2 * number + 2]
            if kind == "text":
                text = raw.decode(codec, _LOSSLESS[codec])
                changed = redactor.text(text)
                if changed != text:
                    values[name] = kind, changed.encode(codec, _LOSSLESS[codec])
            elif kind == "blob":
                cell = redactor.cell(raw)
                if cell != raw:
                    values[name] = kind, cell
        if values:
            portion.append(Change(key=tuple(row[: len(table.key)]), values=values))
            if len(portion) == ROWS_A_STEP:
                yield portion
                portion = []
    if portion:
        yield portion


def replace(tx: Transaction, table: Table, changes: Sequence[Change]) -> int:
    """Write the changes; returns how many cells."""
    where = " AND ".join(f"{quoted(name)} IS ?" for name in table.key)
    for change in changes:
        sets = ", ".join(
            f"{quoted(name)} = CAST(? AS {kind.upper()})" for name, (kind, _new) in change.values.items()
        )
        new = [value for _kind, value in change.values.values()]
        tx.execute(f"UPDATE {quoted(table.name)} SET {sets} WHERE {where}", (*new, *change.key))
    return sum(len(change.values) for change in changes)


def still_json(text: str) -> str:
    """JSON in which texts were replaced: as it is, or as one text when it can be read no more."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    return text


@contextmanager
def unlocked(tx: Transaction, table: str) -> Iterator[None]:
    """The table without its triggers that refuse changes; they are put back at the end."""
    kept = tx.rows(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? AND sql LIKE '%raise(%'", (table,)
    )
    for name, _sql in kept:
        tx.execute(f"DROP TRIGGER {quoted(name)}")
    yield
    for _name, sql in kept:
        tx.execute(sql)
