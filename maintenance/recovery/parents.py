"""Rows that refer to rows which are gone: they get placeholder sessions, or the reference is cleared; none is deleted.

Invariant: after this no row of the file refers to nothing. A session that other rows need is made anew with the little
that they say of it (its id, the time of its first and last message) and says of itself that its metadata was
unreadable. A reference that may be empty is emptied and listed. A row that can do neither is kept apart.

Not for: inventing titles, models or parents. Deleting orphans was rejected: they are what was to be recovered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hermes_state.engine.salvage import Building
from maintenance.interop.typed import BadText, Cell, CellReader, to_json
from maintenance.quoting import quoted
from maintenance.recovery.filling import Filler, TableFiller, key_of
from maintenance.recovery.schema import Schema, Table

SOURCE = "recovered"
TITLE = "Recovered conversation {}: its metadata was unreadable"
REFERS_TO_NOTHING = "refers to a row that is lost"


def give_parents(filler: Filler, schema: Schema, fillers: dict[str, TableFiller]) -> None:
    """Mend every reference. One transaction: it is small beside the rows."""
    with filler.mending("references") as due:
        if not due:
            return
        for name in fillers:
            for column, parent, to in schema.tables[name].info.references:
                if parent not in fillers:
                    # A table that is lost as a whole: what may be empty is emptied, the rest keeps what it says.
                    if _may_be_empty(schema.tables[name], column):
                        _clear(filler, schema.tables[name], column, f"{quoted(column)} IS NOT NULL")
                    continue
                _mend(filler, schema, fillers, schema.tables[name], column, schema.tables[parent], to)
        for _again in range(8):  # what refers to a row that was just kept apart
            if not _what_is_left(filler, schema, fillers):
                break


def _mend(
    filler: Filler, schema: Schema, fillers: dict[str, TableFiller], table: Table, column: str, parent: Table, to: str
) -> None:
    target = to or _key_column(parent)
    if target is None or column not in table.names or target not in parent.names:
        return
    missing = (
        f"{quoted(column)} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {quoted(parent.name)} AS parent "
        f"WHERE parent.{quoted(target)} = {quoted(table.name)}.{quoted(column)})"
    )
    if parent.name == "sessions" and table.name != "sessions" and not _may_be_empty(table, column):
        _placeholders(filler, schema, fillers, table, column, missing)
        return
    if _may_be_empty(table, column):
        _clear(filler, table, column, missing)


def _placeholders(
    filler: Filler, schema: Schema, fillers: dict[str, TableFiller], table: Table, column: str, missing: str
) -> None:
    cells = CellReader([column])
    wanted = filler.db.rows(f"SELECT DISTINCT {cells.sql} FROM {quoted(table.name)} WHERE {missing}")
    sessions = fillers["sessions"]
    for value in [cells.cells(row)[0] for row in wanted]:
        first, last, count = _span(filler.db, schema, value)
        if schema.native:
            key = _native_session(filler.db, value, first, last)
        else:
            key = _foreign_session(filler.db, schema.tables["sessions"], value, first, last, count)
        if key is None:
            continue
        filler.notes.made(sessions.number, key)
        filler.decisions.append({
            "what": "placeholder_session", "session": to_json(value), "for_table": table.name,
            "first_message_at": first, "last_message_at": last, "messages": count,
        })


def _span(db: Building, schema: Schema, session: Any) -> tuple[float, float, int]:
    """Times of a session's first and last message, and their number."""
    messages = schema.tables.get("messages")
    if messages is None:
        return 0.0, 0.0, 0
    time, owner = ("created_at", "session_no") if schema.native else ("timestamp", "session_id")
    if not messages.has((time, owner)):
        return 0.0, 0.0, 0
    mark, bound = _bound(session)
    row = db.row(
        f"SELECT min({time}), max({time}), count(*) FROM messages WHERE {owner} = {mark} AND typeof({time}) = 'real'",
        (bound,),
    )
    if row is None or row[0] is None:
        return 0.0, 0.0, 0
    return float(row[0]), float(row[1]), int(row[2])


def _native_session(db: Building, no: Any, first: float, last: float) -> int | None:
    if not isinstance(no, int):
        return None
    db.execute(
        "INSERT INTO sessions (no, id, source, state, started_at, ended_at, end_reason, active_at, title, extra) "
        "VALUES (?, ?, ?, 'ended', ?, ?, 'recovered', ?, ?, '{\"recovered\": \"metadata unreadable\"}')",
        (no, _free(db, "id", f"recovered-{no}"), SOURCE, first, last, last, _free(db, "title", TITLE.format(no))),
    )
    return no


def _foreign_session(db: Building, table: Table, session: Any, first: float, last: float, count: int) -> int | None:
    values: dict[str, Any] = {
        "id": session, "source": SOURCE, "started_at": first, "ended_at": last, "end_reason": SOURCE,
        "title": _free(db, "title", TITLE.format(session)) if "title" in table.names else None, "message_count": count,
    }
    for column in table.info.columns:
        # What a release demands beyond these has a default, or an empty value of its type.
        if column.required and column.default is None and column.name not in values:
            values[column.name] = 0 if "INT" in column.declared.upper() or "REAL" in column.declared.upper() else ""
    known = {name: _bound(value) for name, value in values.items() if name in table.names}
    marks = ", ".join(mark for mark, _value in known.values())
    db.execute(
        f"INSERT INTO sessions ({', '.join(map(quoted, known))}) VALUES ({marks})",
        [value for _mark, value in known.values()],
    )
    mark, bound = _bound(session)
    row = db.row(f"SELECT rowid FROM sessions WHERE id = {mark}", (bound,))
    return None if row is None else int(row[0])


def _bound(cell: Cell) -> tuple[str, Any]:
    """How a cell is bound: text that is not UTF-8 goes as its bytes."""
    return ("CAST(? AS TEXT)", cell.data) if isinstance(cell, BadText) else ("?", cell)


def _free(db: Building, column: str, wanted: str) -> str:
    """`wanted`, or with a number behind it when a session has it already."""
    name, number = wanted, 1
    while db.row(f"SELECT 1 FROM sessions WHERE {column} = ?", (name,)) is not None:
        number += 1
        name = f"{wanted} ({number})"
    return name


def _clear(filler: Filler, table: Table, column: str, missing: str) -> None:
    key = table.rowid or quoted(table.names[table.key[0]])
    cells = CellReader([column])
    gone = filler.db.rows(f"SELECT {cells.sql}, {key} FROM {quoted(table.name)} WHERE {missing}")
    if not gone:
        return
    filler.db.execute(f"UPDATE {quoted(table.name)} SET {quoted(column)} = NULL WHERE {missing}")
    for where, was in ((row[-1], cells.cells(row)[0]) for row in gone):
        filler.decisions.append({
            "what": "reference_cleared", "table": table.name, "column": column, "key": to_json(where),
            "was": to_json(was),
        })


def _what_is_left(filler: Filler, schema: Schema, fillers: dict[str, TableFiller]) -> bool:
    """Keep rows apart whose reference can be neither given nor cleared; whether there were any."""
    left = [row for row in filler.db.rows("PRAGMA foreign_key_check") if str(row[2]) in fillers]
    moved = False
    for name, rowid, _parent, _number in left:
        table = schema.tables.get(str(name))
        if table is None or str(name) not in fillers or rowid is None:
            continue
        one = fillers[str(name)]
        cells = one.current(rowid)
        if cells is not None:
            one.keep_apart(rowid, cells, REFERS_TO_NOTHING, "references")
            one.remove(rowid, cells)
            moved = True
    return moved | _without_rowid(filler, schema, fillers, [str(row[0]) for row in left if row[1] is None])


def _without_rowid(
    filler: Filler, schema: Schema, fillers: dict[str, TableFiller], names: Sequence[str]
) -> bool:
    """The same for tables without rowid, of whose rows the check gives no key."""
    moved = False
    for name in dict.fromkeys(names):
        table = schema.tables.get(name)
        if table is None or name not in fillers:
            continue
        cells = CellReader(table.names)
        for column, parent, to in table.info.references:
            target = to or (_key_column(schema.tables[parent]) if parent in schema.tables else None)
            if target is None or parent not in fillers or column not in table.names:
                continue
            sql = (
                f"SELECT {cells.sql} FROM {quoted(name)} WHERE {quoted(column)} IS NOT NULL AND NOT EXISTS (SELECT 1 "
                f"FROM {quoted(parent)} AS parent WHERE parent.{quoted(target)} = {quoted(name)}.{quoted(column)})"
            )
            for row in filler.db.rows(sql):
                found = cells.cells(row)
                key = key_of(table, None, found)
                fillers[name].keep_apart(key, found, REFERS_TO_NOTHING, "references")
                fillers[name].remove(key, found)
                moved = True
    return moved


def _key_column(table: Table) -> str | None:
    key = [column.name for column in table.info.columns if column.key]
    return key[0] if len(key) == 1 else None


def _may_be_empty(table: Table, column: str) -> bool:
    found = next((item for item in table.info.columns if item.name == column), None)
    return found is not None and not found.required and not found.key
