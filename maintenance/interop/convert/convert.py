"""Converting what adoption kept of hermes-agent's gateway tables: the step that an open does not make.

Invariant: one transaction writes the rows, compares each with the row that it was made of, counts both sides, reads the
kept rows once more and notes in `store.adopted_from` that it was done: a kill leaves all of it or nothing. Every row
is converted, here already, or stays with its reason. The kept rows are never changed or dropped, so the way back gives
the same cells; nothing is converted twice.

Not for: `compression_locks` and `session_turn_leases`, whose holders are gone within minutes. A numbered `post` step
was rejected: while one is missing no store opens, also none that was never hermes-agent's, and SQL cannot say of a row
why it stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_state.errors import (
    Corrupt,
    HomeRemoved,
    IdempotencyConflict,
    InvalidInput,
    NotFound,
    Refused,
    StatementFailed,
    TooOld,
    WrongHome,
)
from hermes_state.routing.homes import Home, canonical_home, guard, removed_at
from hermes_state.routing.records import has_routing
from hermes_state.routing.topics import has_topics
from hermes_state.shell_words import shell_word
from maintenance.interop.adopt.kept import KeptTable
from maintenance.interop.adopt.source import PREFIX
from maintenance.interop.adopt.survey import sane_time
from maintenance.interop.convert.delegations import DELEGATIONS, delegations
from maintenance.interop.convert.deliveries import DELIVERIES, obligations
from maintenance.interop.convert.records import MOST_NAMED, STAYS, THERE, Conversion, Outcome, Ready, counted
from maintenance.interop.convert.routing import BINDINGS, MODES, ROUTING, bindings, entries, modes
from maintenance.interop.typed import Cell
from maintenance.quoting import quoted

if TYPE_CHECKING:
    from hermes_state.clock import Clock
    from hermes_state.engine import ExclusiveStore, Reader, Store, Transaction

Cells = Mapping[str, Cell]

# In the order in which they need each other: a delegation looks for the entry of its conversation.
TABLES: Mapping[str, tuple[str, Callable[[Home, Sequence[Cells]], Iterator[Ready | InvalidInput]]]] = {
    ROUTING: ("session_key", entries),
    BINDINGS: ("thread_id", bindings),
    MODES: ("chat_id", modes),
    DELIVERIES: ("obligation_id", obligations),
    DELEGATIONS: ("delegation_id", delegations),
}
# Why one row stays; whatever else is raised ends the conversion, and nothing is written.
_ROW_ERRORS = (InvalidInput, NotFound, Refused, TooOld, IdempotencyConflict, StatementFailed)


def look(reader: Reader) -> Conversion:
    """What a conversion would do. Writes nothing; the caller holds a snapshot."""
    document = _adopted(reader)
    rows = _rows(reader, document)
    home = _home(reader)
    if document is None or not rows:
        return Conversion(rows={}, outcomes=(), counts={}, already_done=False)
    if (before := document.get("converted")) is not None:
        return _before(before)
    if (refused := _refused(reader, home)) is not None:
        return Conversion(rows=rows, outcomes=(), counts={}, already_done=False, refused=refused)
    ready = has_topics(reader)  # before its schema step nothing of ours can be there
    outcomes = tuple(_would(reader, table, key, one, ready) for table, key, one in _prepared(reader, rows, home))
    return Conversion(rows=rows, outcomes=outcomes, counts=counted(outcomes), already_done=False)


def convert(store: Store | ExclusiveStore, clock: Clock) -> Conversion:
    """Do it, unless it was done. Every schema step must have been applied. Raises `Corrupt` when a row differs."""
    found = look(store)
    if not found.pending:
        return found
    home = _home(store)
    prepared = list(_prepared(store, found.rows, home))
    before = {table: _kept(store, table).content(store, of_copy=True) for table in found.rows}
    with store.transaction(durability="power") as tx:
        document = _adopted(tx)
        if document is None or "converted" in document:  # another run was first
            return replace(found, already_done=True)
        guard(tx, home)
        at = clock.now()
        outcomes = tuple(_written(tx, table, key, one, at) for table, key, one in prepared)
        counts = counted(outcomes)
        for table, (rows, content) in before.items():
            after = _kept(tx, table).content(tx, of_copy=True)
            if after != (rows, content) or sum(counts[table].values()) != rows:
                raise _differs(tx, f"{PREFIX}{table} has {after[0]} rows, and {rows} were looked at")
        stays = [one for one in outcomes if one.became == STAYS]
        document["converted"] = {
            "at": at,
            "rows": dict(found.rows),
            "content": {table: f"{content:032x}" for table, (_rows, content) in before.items()},
            "became": counts,
            "stays": [one.document() for one in stays[:MOST_NAMED]],
        }
        tx.execute("UPDATE store SET adopted_from = ?", (json.dumps(document, ensure_ascii=False),))
    return replace(found, outcomes=outcomes, counts=counts)


# --- parts -----------------------------------------------------------------------------------------------------------


def _adopted(reader: Reader) -> dict[str, Any] | None:
    row = reader.row("SELECT adopted_from FROM store")
    if row is None or row[0] is None:
        return None
    found = json.loads(row[0])
    return found if isinstance(found, dict) else None


def _rows(reader: Reader, document: dict[str, Any] | None) -> dict[str, int]:
    """How many rows each of the tables has that were kept."""
    kept = {} if document is None else document.get("tables", {})
    there = {str(name) for (name,) in reader.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    counts = {
        table: int(reader.rows(f"SELECT count(*) FROM {quoted(PREFIX + table)}")[0][0])
        for table in TABLES if table in kept and PREFIX + table in there
    }
    return {table: count for table, count in counts.items() if count}


def _home(reader: Reader) -> Home:
    (store_id,) = reader.rows("SELECT store_id FROM store")[0]
    return Home(path=canonical_home(reader.path.parent), store_id=str(store_id))


def _refused(reader: Reader, home: Home) -> str | None:
    if has_routing(reader) and removed_at(reader) is not None:
        return f"{home} was marked as removed"
    return None


def _kept(reader: Reader, table: str) -> KeptTable:
    names = [str(row[1]) for row in reader.rows(f"PRAGMA table_info({quoted(PREFIX + table)})")]
    return KeptTable(reader, table, names)


def _prepared(reader: Reader, rows: Mapping[str, int], home: Home) -> Iterator[tuple[str, str, Ready | InvalidInput]]:
    for table in rows:
        kept = _kept(reader, table)
        cells = [dict(zip(kept.columns, found, strict=True)) for _rowid, found in kept.rows(reader, of_copy=True)]
        if table == DELIVERIES:
            cells.sort(key=lambda one: sane_time(one.get("created_at")) or 0.0)
        name, read = TABLES[table]
        for one, ready in zip(cells, read(home, cells), strict=True):
            yield table, ready.key if isinstance(ready, Ready) else str(one.get(name)), ready


def _would(reader: Reader, table: str, key: str, one: Ready | InvalidInput, ready: bool) -> Outcome:
    if isinstance(one, InvalidInput):
        return Outcome(table=table, key=key, became=STAYS, why=one.message)
    if ready:
        if one.there(reader):
            return Outcome(table=table, key=key, became=THERE)
        try:
            one.refuse(reader)
        except _ROW_ERRORS as error:
            return Outcome(table=table, key=key, became=STAYS, why=error.message)
    return Outcome(table=table, key=key, became=one.into)


def _written(tx: Transaction, table: str, key: str, one: Ready | InvalidInput, at: float) -> Outcome:
    if isinstance(one, InvalidInput):
        return Outcome(table=table, key=key, became=STAYS, why=one.message)
    if one.there(tx):
        return Outcome(table=table, key=key, became=THERE)
    tx.execute("SAVEPOINT kept_row")
    try:
        one.refuse(tx)
        one.write(tx, at)
    except (HomeRemoved, WrongHome):
        raise
    except _ROW_ERRORS as error:
        tx.execute("ROLLBACK TO kept_row")
        tx.execute("RELEASE kept_row")
        return Outcome(table=table, key=key, became=STAYS, why=error.message)
    tx.execute("RELEASE kept_row")
    if wrong := one.differs(tx):
        raise _differs(tx, f"row {key} of {table} differs in {', '.join(wrong)}")
    return Outcome(table=table, key=key, became=one.into)


def _before(said: Mapping[str, Any]) -> Conversion:
    stays = tuple(Outcome(**one) for one in said["stays"])
    return Conversion(rows=said["rows"], outcomes=stays, counts=said["became"], already_done=True)


def _differs(reader: Reader, what: str) -> Corrupt:
    return Corrupt(
        f"What adoption kept in {reader.path} and what was made of it are not the same: {what}. Nothing was changed.",
        hint=f"Run `hermes-state doctor --db {shell_word(reader.path)}`; if that finds nothing, report this sentence.",
        path=reader.path, search_index=False,
    )
