"""Comparing an adopted store with the file it was made from, before anything is replaced by it.

Invariant: nothing here shares code with the writing side but the two ends: each row is read anew from the file, each
native row is turned back by `foreign_rows`, and the two must have the same hash, cell by cell, type by type. Pages,
foreign keys, each message's own check and the rows of every kept table are looked at too. One difference stops all.

Not for: search indexes, which are not adopted. Comparing counts only was rejected: a column that was dropped keeps
every count as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hermes_state.engine import open_read
from hermes_state.errors import Corrupt
from hermes_state.shell_words import shell_word
from maintenance.interop.adopt.kept import KeptTable, row_hash
from maintenance.interop.adopt.source import Columns, Source, read_columns
from maintenance.interop.adopt.usage import USAGE_SQL, usage_cells
from maintenance.interop.foreign_rows import ForeignRows
from maintenance.interop.tripwire import tripwire_problem
from maintenance.interop.typed import Cell, CellReader, canonical
from maintenance.space.verify import foreign_key_problems, page_problems

if TYPE_CHECKING:
    from hermes_state.engine import Reader

_MASK = (1 << 128) - 1


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What was compared."""

    sessions: int  # session rows
    messages: int  # message rows
    other_rows: int  # rows of all other tables
    content_hash: str  # over all message and session rows in order, hexadecimal

    @property
    def rows(self) -> int:
        """All rows."""
        return self.sessions + self.messages + self.other_rows

    def document(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return {
            "sessions": self.sessions, "messages": self.messages, "other_rows": self.other_rows,
            "content_hash": self.content_hash,
        }


def verify_adopted(
    reader: Reader, source: Source, copy: Path, advance: Callable[[int], None] = lambda _rows: None
) -> Verified:
    """Compare the private native file `copy` with the one behind `reader`. Raises `Corrupt` at a difference."""
    with open_read(copy, search_modules=False) as store:
        if problems := page_problems(store):
            _refuse(reader, f"its page check says: {problems[0]}")
        if foreign_key_problems(store):
            _refuse(reader, "a row in it refers to a row that is not there")
        if problem := tripwire_problem(store):
            _refuse(reader, problem)
        rows = ForeignRows.of(store)
        total = blake2b(digest_size=16)
        messages = compare(
            reader, "messages", source.columns["messages"], "id", rows.messages(checked=True), total, advance
        )
        cells = (said for _no, said in rows.sessions())
        sessions = compare(reader, "sessions", source.columns["sessions"], "rowid", cells, total, advance)
        other = _usage(reader, store, source.columns.get("session_model_usage"), rows)
        other += _prompts(reader, store, source.columns.get("system_prompts"))
        for name in source.kept:
            other += _kept(reader, store, name)
        _counts(reader, store, messages)
    return Verified(sessions=sessions, messages=messages, other_rows=other, content_hash=total.hexdigest())


def compare(
    reader: Reader, table: str, columns: Columns, order: str, given: Iterator[dict[str, Cell]], total: Any,
    advance: Callable[[int], None] = lambda _rows: None, about: Reader | None = None,
) -> int:
    """Compare the rows of a file's table with the same rows as they are `given`, by their hashes; how many they are."""
    cells = CellReader(columns.names)
    count = 0
    for row in reader.iterate(f"SELECT {cells.sql} FROM {table} ORDER BY {order}", batch=100):
        wanted = cells.named(row)
        found = next(given, None)
        if found is None:
            _refuse(about or reader, f"{table} has rows that are not in it, from number {count + 1}")
        one = canonical(wanted, columns.names)
        digest = blake2b(one, digest_size=16).digest()
        if digest != blake2b(canonical(found, columns.names), digest_size=16).digest():
            differing = [name for name in columns.names if canonical(wanted, [name]) != canonical(found, [name])]
            _refuse(about or reader, f"row {count + 1} of {table} differs in {', '.join(differing)}")
        total.update(digest)
        count += 1
        if count % 500 == 0:
            advance(500)
    advance(count % 500)
    if next(given, None) is not None:
        _refuse(about or reader, f"it has rows that are not in {table}")
    return count


def _usage(reader: Reader, store: Reader, columns: Columns | None, rows: ForeignRows) -> int:
    if columns is None:
        return 0
    names = columns.names
    cells = CellReader(names)
    listed = reader.iterate(f"SELECT {cells.sql} FROM session_model_usage")
    wanted = [canonical(cells.named(row), names) for row in listed]
    found = [canonical(usage_cells(row, rows.name(row[0]), columns), names) for row in store.iterate(USAGE_SQL)]
    kept = KeptTable(reader, "session_model_usage", names)
    if _has_table(store, kept.copy):
        found += [canonical(dict(zip(names, row, strict=True)), names) for _id, row in kept.rows(store, of_copy=True)]
    if sum(map(row_hash, wanted)) & _MASK != sum(map(row_hash, found)) & _MASK or len(wanted) != len(found):
        _refuse(reader, "the usage of models differs")
    return len(wanted)


def _prompts(reader: Reader, store: Reader, columns: Columns | None) -> int:
    """Each row of `system_prompts` is there as it was, or its text is, under the hash that it had."""
    if columns is None:
        return 0
    kept = KeptTable(reader, "system_prompts", columns.names)
    as_it_was = {row_hash(_row_bytes(kept, cells)) for _rowid, cells in kept.rows(store, of_copy=True)}
    texts = {sha256(body).hexdigest() for (body,) in store.iterate("SELECT body FROM shared_texts", batch=8)}
    count = 0
    for _rowid, cells in kept.rows(reader):
        count += 1
        if row_hash(_row_bytes(kept, cells)) in as_it_was:
            continue
        named = dict(zip(kept.columns, cells, strict=True))
        prompt = named.get("prompt")
        if {*named} != {"hash", "prompt"} or not isinstance(prompt, str) or named["hash"] not in texts or (
            sha256(prompt.encode("utf-8")).hexdigest() != named["hash"]
        ):
            _refuse(reader, f"row {count} of system_prompts is not in it")
    return count


def _kept(reader: Reader, store: Reader, name: str) -> int:
    table = KeptTable(reader, name, read_columns(reader, name).names)
    wanted, found = table.content(reader), table.content(store, of_copy=True)
    if wanted != found:
        _refuse(reader, f"{name} has {wanted[0]} rows, {table.copy} has {found[0]}, and their content differs")
    return wanted[0]


def _counts(reader: Reader, store: Reader, messages: int) -> None:
    """What the native store says of itself must agree with its rows."""
    row = store.row("SELECT count(*), coalesce(max(id), 0) FROM messages")
    per_session = store.row("SELECT coalesce(sum(n), 0) FROM (SELECT max(seq) AS n FROM messages GROUP BY session_no)")
    floor = store.row("SELECT message_floor FROM store")
    if row is None or per_session is None or floor is None:
        _refuse(reader, "it has no identity")
    if row[0] != messages or per_session[0] != messages:
        _refuse(reader, f"it counts {per_session[0]} messages by session, and has {row[0]}")
    if floor[0] < max(row[1], 0):
        _refuse(reader, "its highest message id is not recorded")


def _row_bytes(table: KeptTable, cells: list[Cell]) -> bytes:
    return canonical(dict(zip(table.columns, cells, strict=True)), table.columns)


def _has_table(store: Reader, name: str) -> bool:
    return store.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)) is not None


def _refuse(reader: Reader, what: str) -> NoReturn:
    raise not_the_same(reader, what)


def not_the_same(reader: Reader, what: str) -> Corrupt:
    """A copy differs from what it was made of, and must not be used."""
    return Corrupt(
        f"The copy made from {reader.path} is not the same: {what}. It was thrown away; {reader.path} was not changed.",
        hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}`; if that finds nothing, report this sentence.",
        path=reader.path, search_index=False,
    )
