"""Putting rows into the file that is being made, each once, the most trustworthy version of each.

Invariant: rungs come in order of trust, so the first version of a row stays unless a later one is proven and it is not,
or both are unproven and the later one is newer by the order of commits; every other version is noted. A row that is
wrong, or that a constraint of its table refuses, is kept apart. Work is committed in bounded batches together with how
far it got.

Not for: where rows come from (`reading.py`, `carving.py`). Staging all candidates in tables of their own was rejected:
it would write every row twice to find the few that have two versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hermes_state.engine.salvage import Building
from hermes_state.errors import StateError, StatementFailed
from maintenance.dialects.native import routed, scheduled, serving
from maintenance.interop.typed import BadText, Cell, CellReader, digest_of, from_json
from maintenance.quoting import quoted
from maintenance.recovery import owing
from maintenance.recovery.judging import Grade, Judge, Verdict
from maintenance.recovery.notes import Key, Notes, cell_bytes, said_cells
from maintenance.recovery.schema import Table
from maintenance.recovery.search import drop_search

BATCH_ROWS = 2_000
BATCH_BYTES = 4_000_000
CONSTRAINT = 19  # SQLite's result code
TWICE = "another row has the same key"
REFUSED = "refused by a constraint of its table"
# One cell of any kind in a statement: whether it is text that is not UTF-8, the bytes of such a text, any other value.
CELL = "iif(?, CAST(? AS TEXT), ?)"


class Filler:
    """The file being filled: batches over all its tables."""

    def __init__(self, building: Building, notes: Notes) -> None:
        self.db = building
        self.notes = notes
        # what a killed run decided counts as well
        self.decisions: list[dict[str, Any]] = notes.load("decisions").get("made", [])
        self.has_search = False
        self._rows = self._bytes = 0
        self._open = False
        self._tables: list[TableFiller] = []

    @contextmanager
    def batches(self) -> Iterator[None]:
        """Everything offered inside is committed, batch by batch; an error leaves whole batches."""
        self._begin()
        try:
            yield
        except BaseException:
            if self._open:
                self._open = False
                self.db.execute("ROLLBACK")
                for table in self._tables:
                    table.load()
            raise
        self._commit()

    def tick(self, size: int) -> None:
        """A row of about `size` bytes was worked on."""
        self._rows += 1
        self._bytes += size
        if self._rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            self._commit()
            self._begin()

    def _begin(self) -> None:
        self._rows = self._bytes = 0
        self.db.execute("BEGIN IMMEDIATE")
        self._open = True

    def _commit(self) -> None:
        for table in self._tables:
            table.save()
        if self.decisions:
            self.notes.save("decisions", {"made": self.decisions})
        self.db.execute("COMMIT")
        self._open = False

    @contextmanager
    def mending(self, step: str) -> Iterator[bool]:
        """One transaction for a step after the rows, with what it decides; False: a run that was killed did it."""
        if self.notes.load(f"mended {step}"):
            yield False
            return
        with self.db.transaction():
            yield True
            self.notes.save(f"mended {step}", {"done": True})
            self.notes.save("decisions", {"made": self.decisions})

    def number(self, table: str) -> int:
        """The number under which notes know a table; -2 for one that is not filled."""
        return next((one.number for one in self._tables if one.table.name == table), -2)

    def add(self, table: TableFiller) -> None:
        """Keep a table's progress with each commit."""
        self._tables.append(table)

    def without_search(self, problem: StateError) -> None:
        """The search index could not take a row: it is left out, and hermes-agent builds one when it next starts."""
        self.has_search = False
        drop_search(self.db)
        self.decisions.append({
            "what": "search_left_out",
            "sentence": "The search index could not be built and was left out; hermes-agent builds it at its start.",
            "why": str(problem),
        })


class TableFiller:
    """One table of the file being filled."""

    def __init__(self, filler: Filler, table: Table, number: int, judge: Judge) -> None:
        self.table, self.number, self.judge = table, number, judge
        self._filler, self._db, self._notes = filler, filler.db, filler.notes
        names = table.names
        self._alias = table.alias
        # Rowids are kept even where no column shows them: other rows are found by them, and so are repeats.
        self._own_rowid = table.rowid if table.alias is None else None
        columns = [*([self._own_rowid] if self._own_rowid else []), *map(quoted, names)]
        into = f"INTO {quoted(table.name)} ({', '.join(columns)}) VALUES "
        self._insert = f"INSERT {into}({', '.join('?' * len(columns))})"
        cells = ["?"] * (1 if self._own_rowid else 0) + [CELL] * len(names)
        self._insert_bad = f"INSERT {into}({', '.join(cells)})"
        self._cells = CellReader(names)
        rules = next((one for one in (serving, routed, scheduled) if one.tells_later(table.name, names)), None)
        self._later_of = None if rules is None else rules.later_of
        self._owed = table.name == owing.TABLE and {"dedupe_id", "fence", "settled_at"} <= {*names}
        where = (
            f"{table.rowid} = ?" if table.rowid
            else " AND ".join(f"{quoted(names[place])} IS {CELL}" for place in table.key)
        )
        self._where = where
        self._select = f"SELECT {self._cells.sql} FROM {quoted(table.name)} WHERE {where}"
        self.state: dict[str, Any] = {}
        self.load()
        filler.add(self)

    def load(self) -> None:
        """Progress as it was committed."""
        self.state = self._notes.load(f"table:{self.table.name}") or {"rungs": {}, "last": None, "proven": 0}

    def save(self) -> None:
        """Keep progress; part of the batch's transaction."""
        self._notes.save(f"table:{self.table.name}", self.state)

    # --- rows that have no rival -----------------------------------------------------------------------------

    def pour(self, rows: Iterable[tuple[Key, list[Cell]]], rung: str) -> Iterator[int]:
        """Take the rows of a whole table, in key order. Yields the number of rows now and then."""
        waiting: list[tuple[Key, list[Cell], Verdict]] = []
        size = 0
        for key, cells in rows:
            waiting.append((key, cells, self.judge(cells)))
            size += sum(map(cell_bytes, cells))
            if len(waiting) >= 500 or size >= BATCH_BYTES:
                self._pour(waiting, rung)
                yield len(waiting)
                waiting, size = [], 0
        self._pour(waiting, rung)
        yield len(waiting)

    def _pour(self, rows: list[tuple[Key, list[Cell], Verdict]], rung: str) -> None:
        good = [row for row in rows if row[2].grade is Grade.CERTAIN]
        try:
            self._db.execute("SAVEPOINT pour")
            self._db.executemany(self._insert, [self._bound(key, cells) for key, cells, _verdict in good])
            self._db.execute("RELEASE pour")
            added = len(good)
        except StateError as error:
            self._db.execute("ROLLBACK TO pour")
            self._db.execute("RELEASE pour")
            if not isinstance(error, StatementFailed) and not self._filler.has_search:
                raise
            added = 0  # one of them was refused: which one is found row by row
            rows, good = rows, []
        self._count(rung, added)
        self.state["proven"] += sum(verdict.proven for _key, _cells, verdict in good)
        for key, cells, verdict in rows:
            if not good or verdict.grade is not Grade.CERTAIN:
                self.offer(key, cells, rung, verdict=verdict)
        if rows:
            last = rows[-1][0]
            self.state["last"] = last if isinstance(last, int) else None
            for _key, cells, _verdict in rows:
                self._filler.tick(sum(map(cell_bytes, cells)))

    # --- rows that may have rivals ---------------------------------------------------------------------------

    def offer(
        self, key: Key, cells: list[Cell], rung: str, *, doubt: str = "", position: int = 0,
        verdict: Verdict | None = None,
    ) -> str:
        """Offer a version of a row. `doubt`: why it is not certain whatever its content says.

        Returns "added", "same", "version" (another one is kept), "replaced" (it is kept now) or "apart".
        """
        if verdict is None:
            verdict = self.judge(cells)
        if verdict.grade is Grade.WRONG:
            self.keep_apart(key, cells, verdict.reason, rung)
            return "apart"
        if verdict.proven:
            doubt = ""
        reason = verdict.reason or doubt
        there = self.current(key, cells)
        if there is None:
            return self._add(key, cells, rung, reason, position, verdict)
        if self._digest(there) == self._digest(cells):
            if not reason:
                self._notes.proven(self.number, key)
            return "same"
        was = self._notes.doubt(self.number, key)
        better = was is not None and (not reason or (position > was[1] and not self._is_bad(cells)))
        if self._owed and not self._is_bad(cells):
            later = owing.later_of(self.table.names, there, cells)
            better = better if later is None else later
        elif self._later_of is not None and not self._is_bad(cells):
            one, two = (dict(zip(self.table.names, version, strict=True)) for version in (there, cells))
            later = self._later_of(self.table.name, one, two)
            better = better if later is None else later
        kept, other = (cells, there) if better else (there, cells)
        self._notes.version(
            self.number, key, self._digest(other),
            {
                "key": key, "rung": rung, "kept": "this one" if better else "the other", "doubt": reason or None,
                "differs_in": [
                    name for name, one, two in zip(self.table.names, kept, other, strict=True)
                    if digest_of([one]) != digest_of([two])
                ],
            },
        )
        if not better:
            if not reason and was is None and not self.judge(there).proven:
                # Both are where SQLite finds rows, and nothing says which of them it is.
                self._notes.uncertain(self.number, key, TWICE, position)
            return "version"
        self.remove(key, there)
        return "replaced" if self._add(key, cells, rung, reason, position, verdict) == "added" else "apart"

    def current(self, key: Key, cells: Sequence[Cell] | None = None) -> list[Cell] | None:
        """The cells of the row that is in the file under this key."""
        row = self._db.row(self._select, self._key_values(key, cells))
        return None if row is None else self._cells.cells(row)

    def stores(self, key: Key, cells: list[Cell], kept: Sequence[Cell]) -> bool:
        """Whether the table, given `cells` for the row that is in it as `kept`, would hold just that.

        So it is when a damaged cell has a type that its column turns into another one.
        """
        self._db.execute("SAVEPOINT stores")
        try:
            self._db.execute(f"DELETE FROM {quoted(self.table.name)} WHERE {self._where}", self._key_values(key, kept))
            self._put(key, cells)
            again = self.current(key, cells)
        except StatementFailed:
            again = None
        finally:
            self._db.execute("ROLLBACK TO stores")
            self._db.execute("RELEASE stores")
        return again is not None and self._digest(again) == self._digest(kept)

    def remove(self, key: Key, cells: Sequence[Cell] | None = None) -> None:
        """Take a row out again."""
        self._db.execute(
            f"DELETE FROM {quoted(self.table.name)} WHERE {self._where}", self._key_values(key, cells)
        )
        self._notes.proven(self.number, key)

    def keep_apart(self, key: Key, cells: Sequence[Cell], reason: str, rung: str, **more: Any) -> None:
        """Keep what was found beside the result."""
        said = {"table": self.table.name, "key": key, "reason": reason, "rung": rung} | more
        self._notes.apart(self.number, key, reason, said | {"values": said_cells(self.table.names, cells)})
        self._filler.tick(sum(map(cell_bytes, cells)))

    def _add(
        self, key: Key, cells: list[Cell], rung: str, reason: str, position: int, verdict: Verdict
    ) -> str:
        try:
            self._put(key, cells)
        except StateError as error:
            if error.sqlite_code == CONSTRAINT:
                self.keep_apart(key, cells, REFUSED, rung, said=str(error.__cause__))
                return "apart"
            if not self._filler.has_search:
                raise
            self._filler.without_search(error)
            self._put(key, cells)
        if reason:
            self._notes.uncertain(self.number, key, reason, position)
        self.state["proven"] += verdict.proven
        self._count(rung, 1)
        self._filler.tick(sum(map(cell_bytes, cells)))
        return "added"

    def _put(self, key: Key, cells: list[Cell]) -> None:
        if not self._is_bad(cells):
            self._db.execute(self._insert, self._bound(key, cells))
            return
        bound: list[Any] = [key] if self._own_rowid else []
        for cell in self._with_key(key, cells):
            bound += cell_parts(cell)
        self._db.execute(self._insert_bad, bound)

    def _bound(self, key: Key, cells: list[Cell]) -> list[Any]:
        values = self._with_key(key, cells)
        return [key, *values] if self._own_rowid else values

    def _with_key(self, key: Key, cells: list[Cell]) -> list[Any]:
        if self._alias is not None and cells[self._alias] != key:
            cells = list(cells)
            cells[self._alias] = key
        return cells

    def _key_values(self, key: Key, cells: Sequence[Cell] | None) -> list[Any]:
        if self.table.rowid:
            return [key]
        values = [cells[place] for place in self.table.key] if cells is not None else key_cells(key)
        return [part for cell in values for part in cell_parts(cell)]

    def _digest(self, cells: Sequence[Cell]) -> bytes:
        return digest_of(cells)

    @staticmethod
    def _is_bad(cells: Sequence[Cell]) -> bool:
        return any(isinstance(cell, BadText) for cell in cells)

    def _count(self, rung: str, rows: int) -> None:
        if rows:
            rungs = self.state["rungs"]
            rungs[rung] = rungs.get(rung, 0) + rows


def key_cells(key: Key) -> list[Cell]:
    """The cells of a primary key that `key_of` wrote as JSON."""
    return [from_json(value) for value in json.loads(str(key))]


def cell_parts(cell: Cell) -> tuple[Any, ...]:
    """What is bound to the three marks of `CELL`: text that is not UTF-8 goes as its bytes."""
    return (1, cell.data, None) if isinstance(cell, BadText) else (0, None, cell)


def key_of(table: Table, rowid: int | None, cells: Sequence[Cell]) -> Key:
    """The key by which notes speak of a row: its rowid, or its primary key as JSON."""
    if table.rowid is not None and rowid is not None:
        return rowid
    from maintenance.interop.typed import to_json

    return json.dumps([to_json(cells[place]) for place in table.key], ensure_ascii=False)
