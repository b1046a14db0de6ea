"""A native store that was adopted as a file of hermes-agent again: the way back.

Invariant: the file has the schema that the adopted one had, word for word, and every row as hermes-agent had it or
would have written it: ids, flags, routing, counters and tables that nobody knows included. It is a new file, compared
row by row before it gets its name. Search indexes are left out with their triggers; hermes-agent builds them when it
opens a file that has none, so its notes about their state stay behind.

Not for: stores that began as native ones; there is no schema to go back to (`to_hermes_agent.py` is for those).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_state.engine import ExclusiveStore, open_exclusive, open_read
from hermes_state.engine.create import fill_empty_database
from hermes_state.errors import Refused
from maintenance.interop.adopt.build import batches
from maintenance.interop.adopt.kept import KeptTable, size_of
from maintenance.interop.adopt.source import PREFIX, Columns, read_adopted, read_columns
from maintenance.interop.adopt.usage import USAGE_SQL, usage_cells
from maintenance.interop.adopt.verify import compare, not_the_same
from maintenance.interop.compacted import compacted, compacted_sessions, view_cells
from maintenance.interop.convert.back import settled_since
from maintenance.interop.foreign_rows import ForeignRows, Live
from maintenance.interop.typed import Cell
from maintenance.space.verify import page_problems

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import Reader, Transaction

# hermes-agent's notes about search indexes, which are not in the file.
_SEARCH_NOTES = "fts_"

Cells = dict[str, Cell]


@dataclass(frozen=True, kw_only=True)
class Written:
    """What was written."""

    sessions: int  # session rows
    messages: int  # message rows
    other_rows: int  # rows of all other tables


def write_state_db(reader: Reader, working: Path, clock: Clock) -> Written:
    """Fill the new private file `working`. The caller holds a snapshot. Raises `Refused` and `Corrupt`."""
    row = reader.row("SELECT adopted_from FROM store")
    if row is None or row[0] is None:
        raise Refused(
            f"{reader.path} was never a file of hermes-agent, so there is no schema to give it back in.",
            hint="Use `hermes-state sessions export --format hermes-agent`, which hermes-agent imports.",
            path=reader.path,
        )
    document = json.loads(row[0])
    tables = read_adopted(row[0])
    fill_empty_database(working)
    with open_exclusive(working, foreign=True, clock=clock) as store:
        # Rows arrive in no order that keys would like, and some referred to nothing in the first place.
        store.tune(foreign_keys=0)
        _run(store, _statements(document, "table"))
        written = _rows(reader, store, document, tables)
        _run(store, [sql for kind in ("index", "view", "trigger") for sql in _statements(document, kind)])
        _finish(store, document)
        store.copy_back()
    _verify(reader, working, tables)
    return written


def _rows(reader: Reader, store: ExclusiveStore, document: dict[str, Any], tables: dict[str, Columns]) -> Written:
    rows = ForeignRows.of(reader)
    messages = _insert(store, "messages", tables["messages"].names, _messages(reader, rows))
    named: set[Cell] = set()
    sessions = _insert(store, "sessions", tables["sessions"].names, _sessions(rows, named))
    other = 0
    if (columns := tables.get("session_model_usage")) is not None:
        other += _insert(store, "session_model_usage", columns.names, _usage(reader, rows, columns))
    if (columns := tables.get("system_prompts")) is not None:
        other += _insert(store, "system_prompts", columns.names, _prompts(reader, columns, named))
    for name in document["tables"]:
        other += _insert_kept(reader, store, name, *settled_since(reader, document, name))
    return Written(sessions=sessions, messages=messages, other_rows=other)


def _messages(reader: Reader, rows: ForeignRows) -> Iterator[Cells]:
    """All messages in order of id. A branch that shares messages gets copies of them, and its own anew behind them.

    What is seen through a compaction of this library is compacted there too: its view comes as new rows at the end.
    """
    sharing = [int(no) for (no,) in reader.rows(
        "SELECT no FROM sessions s WHERE relation = 'branch' AND (branched_at_seq > 0 OR EXISTS"
        " (SELECT 1 FROM sessions p WHERE p.no = s.parent_no AND p.relation = 'branch')) ORDER BY no"
    )]
    names = {rows.name(no): no for no in sharing}
    summarised = {rows.name(no): no for no in compacted_sessions(reader)}
    highest = 0
    for cells in rows.messages():
        highest = max(highest, int(str(cells["id"])))
        if cells["session_id"] not in names:
            yield _archived(cells) if cells["session_id"] in summarised else cells
    floor = reader.row("SELECT message_floor FROM store")
    highest = max(highest, 0 if floor is None else int(floor[0]))
    for session_id, no in names.items():
        rows.live[no] = Live()
        # Rows of its own: what a parent shares is not to be counted a second time there.
        for cells in _shared_and_own(reader, ForeignRows.of(reader), no):
            highest += 1
            copy = {**cells, "id": highest, "session_id": session_id}
            yield _archived(copy) if session_id in summarised else copy
            _count(rows, no, cells)
    for no in summarised.values():
        found = compacted(reader, no)
        rows.live[no] = Live()
        for cells in () if found is None else view_cells(reader, ForeignRows.of(reader), found):
            highest += 1
            yield {**cells, "id": highest}
            _count(rows, no, cells)


def _archived(cells: Cells) -> Cells:
    """An active row as a compaction of hermes-agent leaves it."""
    if cells.get("active", 1) != 1:
        return cells
    flags = {"active": 0, "compacted": 1}
    return {**cells, **{name: flag for name, flag in flags.items() if name in cells}}


def _count(rows: ForeignRows, no: int, cells: Cells) -> None:
    if cells.get("active", 1) == 1:
        rows.live[no].messages += 1
        rows.live[no].calls += len(json.loads(str(cells.get("tool_calls") or "[]")))


def _shared_and_own(reader: Reader, rows: ForeignRows, no: int) -> Iterator[Cells]:
    from hermes_state.conversation.lineage import segments
    from hermes_state.conversation.view import view_of

    view = view_of(reader, segments(reader, no))
    for part in view.parts:
        first, last = part.first - part.offset, part.last - part.offset
        for seq, cells in enumerate(rows.messages(part.session_no, first=first, last=last), first):
            hidden = view.hidden(seq + part.offset)
            flags = {"active": 0 if hidden else 1, "compacted": int(hidden == "compact")}
            yield {**cells, **{name: flag for name, flag in flags.items() if name in cells}}


def _usage(reader: Reader, rows: ForeignRows, columns: Columns) -> Iterator[Cells]:
    for row in reader.iterate(USAGE_SQL):
        yield usage_cells(row, rows.name(row[0]), columns)
    yield from _kept_cells(reader, "session_model_usage", columns.names)


def _sessions(rows: ForeignRows, named: set[Cell]) -> Iterator[Cells]:
    """All sessions; `named` gets the hashes of texts that they refer to."""
    for _no, cells in rows.sessions():
        named.update(cells[name] for name in ("system_prompt_hash", "tool_names") if name in cells)
        yield cells


def _prompts(reader: Reader, columns: Columns, named: set[Cell]) -> Iterator[Cells]:
    """Texts that sessions refer to by their hash, then the rows that were kept as they were."""
    kept = list(_kept_cells(reader, "system_prompts", columns.names))
    there = {cells["hash"] for cells in kept}
    numbers = reader.rows(
        "SELECT DISTINCT prompt_no FROM sessions WHERE prompt_no IS NOT NULL"
        " UNION SELECT tools_no FROM sessions WHERE tools_no IS NOT NULL"
    )
    from hermes_state.conversation.shared_texts import text_of

    for (number,) in numbers:
        prompt = text_of(reader, number) or ""
        key = sha256(prompt.encode("utf-8")).hexdigest()
        if key in named and key not in there:
            yield {"hash": key, "prompt": prompt}
    yield from kept


def _kept_cells(reader: Reader, name: str, columns: Sequence[str]) -> Iterator[Cells]:
    if reader.row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (PREFIX + name,)) is None:
        return
    for _rowid, cells in KeptTable(reader, name, columns).rows(reader, of_copy=True):
        yield dict(zip(columns, cells, strict=True))


def _insert(store: ExclusiveStore, name: str, columns: Sequence[str], rows: Iterable[Cells]) -> int:
    table = KeptTable(store, name, columns)
    table.copy, table.rowid = name, None
    count = 0
    listed = ((None, [cells[column] for column in columns]) for cells in rows)
    for batch in batches(listed, lambda row: size_of(row[1])):
        with store.transaction() as tx:
            table.insert(tx, batch)
        count += len(batch)
    return count


def _insert_kept(
    reader: Reader, store: ExclusiveStore, name: str, key: str, since: Mapping[Cell, Mapping[str, Cell]]
) -> int:
    columns = read_columns(store, name).names
    source, target = KeptTable(reader, name, columns), KeptTable(store, name, columns)
    target.copy = name
    count = 0
    at = columns.index(key) if since else 0

    def by_now(cells: list[Cell]) -> list[Cell]:
        said = since.get(cells[at])
        return cells if not said else [said.get(name, cell) for name, cell in zip(columns, cells, strict=True)]

    rows = (
        (rowid, by_now(cells) if since else cells) for rowid, cells in source.rows(reader, of_copy=True)
        if not _is_search_note(name, columns, cells)
    )
    for batch in batches(rows, lambda row: size_of(row[1])):
        with store.transaction() as tx:
            target.insert(tx, batch)
        count += len(batch)
    return count


def _is_search_note(name: str, columns: Sequence[str], cells: Sequence[Cell]) -> bool:
    return name == "state_meta" and str(cells[list(columns).index("key")]).startswith(_SEARCH_NOTES)


def _statements(document: dict[str, Any], kind: str) -> list[str]:
    """CREATE texts of one kind; what belongs to search indexes is left out."""
    return [
        sql
        for found, name, _table, sql in document["schema"]
        if found == kind and sql and not name.startswith(("sqlite_", "messages_fts", _SEARCH_NOTES))
    ]


def _run(store: ExclusiveStore, statements: Iterable[str]) -> None:
    with store.transaction() as tx:
        for sql in statements:
            tx.execute(sql)


def _finish(store: ExclusiveStore, document: dict[str, Any]) -> None:
    with store.transaction(durability="power") as tx:
        for name, number in document["sequences"].items():
            _raise_sequence(tx, name, int(number))
        tx.execute(f"PRAGMA application_id = {int(document['application_id'])}")


def _raise_sequence(tx: Transaction, name: str, number: int) -> None:
    """Ids that were given once are not given again."""
    changed = tx.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (number, name))
    if not changed:
        tx.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, number))


def _verify(reader: Reader, working: Path, tables: dict[str, Columns]) -> None:
    with open_read(working, search_modules=False) as store:
        if problems := page_problems(store):
            raise not_the_same(reader, f"its page check says: {problems[0]}")
        rows, total = ForeignRows.of(reader), blake2b(digest_size=16)
        compare(store, "messages", tables["messages"], "id", _messages(reader, rows), total, about=reader)
        cells = (said for _no, said in rows.sessions())
        compare(store, "sessions", tables["sessions"], "rowid", cells, total, about=reader)
