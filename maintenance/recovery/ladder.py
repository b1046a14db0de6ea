"""The rungs by which the rows of each table are had: whole through SQL, around damage, by indexes, from pages.

Invariant: a rung is only taken for what the rungs before did not give; each is repeatable, so a killed run takes the
one it was in again; one that killed its process twice is left out. What a rung could not read is noted, never passed
over.

Not for: what follows when all rows are in (`run.py`). Taking all rungs for all tables was rejected: pages that no tree
leads to hold what was deleted, and a whole table needs none of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hermes_state.engine.salvage import Salvage
from hermes_state.errors import StateError
from maintenance.interop.typed import Cell
from maintenance.quoting import literal
from maintenance.recovery.carving import Wanted
from maintenance.recovery.filling import Filler, TableFiller
from maintenance.recovery.notes import Key, said_cells
from maintenance.recovery.reading import LARGEST, SMALLEST, TableReader
from maintenance.recovery.records import Cancel, Progress, Step
from maintenance.recovery.schema import Table
from maintenance.recovery.work import Work, stopped

PLAIN, AROUND, BY_INDEX = "plain copy", "bisection", "index"
INDEX_ONLY = "only known from an index"
EMPTY = "nothing but its key, beside damage"


@dataclass(kw_only=True)
class Fate:
    """What became of one table through SQL. Kept in the work folder, so its fields are JSON."""

    # its tree was walked from end to end in order
    whole: bool = False
    # an index was read to its end, so it is known which rows there should be
    listed: bool = False
    # nothing of its tree can be reached
    lost_tree: bool = False
    # the time for single keys was used up
    cut_short: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def needs_carving(self) -> bool:
        """Whether rows may be on pages that SQL did not give."""
        return not self.whole

    def document(self) -> dict[str, Any]:
        """For the work folder."""
        return asdict(self)


class Ladder:
    """The rungs through SQL, over all tables."""

    def __init__(
        self, work: Work, filler: Filler, salvage: Salvage | None, *, progress: Progress | None, cancel: Cancel | None,
        given: object,
    ) -> None:
        self._work, self._filler, self._salvage = work, filler, salvage
        self._progress, self._cancel, self._given = progress, cancel, given
        self._sound: bool | None = None

    def read(self, one: TableFiller) -> Fate:
        """Take every row of one table that SQL gives."""
        name = one.table.name
        known = self._work.result(f"read {name}")
        if known is not None:
            return Fate(**known)
        fate = Fate(lost_tree=True)
        if self._salvage is not None and self._known_to_sqlite(name) and self._work.begin(f"read {name}"):
            try:
                fate = self._read(self._salvage, one)
            except StateError:
                self._work.let_go(f"read {name}")
                raise
        self._work.done(f"read {name}", fate.document())
        return fate

    def _read(self, salvage: Salvage, one: TableFiller) -> Fate:
        reader = TableReader(salvage, one.table)
        if self.sound or said_ok(salvage, f"PRAGMA quick_check({literal(one.table.name)})"):
            started = time.monotonic()
            try:
                self._pour(reader, one)
            except StateError as error:
                if error.retryable or not _is_reading(error, salvage):
                    raise
            else:
                return Fate(whole=True, seconds={PLAIN: time.monotonic() - started})
        return self._around(reader, one)

    def _pour(self, reader: TableReader, one: TableFiller) -> None:
        last = one.state.get("last")
        done = 0
        with self._filler.batches():
            for count in one.pour(reader.plain(last if isinstance(last, int) else None), PLAIN):
                done += count
                self._tell(f"reading {one.table.name}", done)

    def _around(self, reader: TableReader, one: TableFiller) -> Fate:
        started = time.monotonic()
        done = 0

        def take(key: Key, cells: list[Cell]) -> None:
            nonlocal done
            # What lies behind the end of a file that was cut reads as rows of nothing.
            one.offer(key, cells, AROUND, doubt=EMPTY if _is_empty(one.table, cells) else "")
            done += 1
            if done % 500 == 0:
                self._tell(f"reading {one.table.name} around its damage", done)

        with self._filler.batches():
            found = reader.around(take)
            for first, last in found.unread:
                self._filler.notes.unread(one.number, first, last)
        fate = Fate(
            whole=found.orderly, cut_short=found.cut_short, seconds={AROUND: time.monotonic() - started},
            lost_tree=found.rows == 0 and found.unread == [(SMALLEST, LARGEST)],
        )
        if not fate.whole:
            self._by_indexes(reader, one, fate)
        return fate

    def _by_indexes(self, reader: TableReader, one: TableFiller, fate: Fate) -> None:
        """Which rows there should be, from every index that has an entry for each; whole rows where it has them."""
        started = time.monotonic()
        names = set(one.table.names)
        alias = one.table.info.rowid_column
        with self._filler.batches():
            for index, columns in reader.whole_indexes():
                covers = names <= {*columns, *([alias] if alias else [])}
                done = 0
                try:
                    for rowid, cells in reader.of_index(index, columns):
                        if one.current(rowid) is None:
                            said = {"listed_by": index, **said_cells(list(cells), list(cells.values()))}
                            self._filler.notes.listed(one.number, rowid, said)
                            if covers:
                                row = [rowid if name == alias else cells[name] for name in one.table.names]
                                one.offer(rowid, row, BY_INDEX, doubt=INDEX_ONLY)
                        done += 1
                        self._filler.tick(0)
                        if done % 2000 == 0:
                            self._tell(f"reading {index}", done)
                except StateError as error:
                    if error.retryable:
                        raise
                    continue  # this index is damaged too: what it gave is noted
                fate.listed = True
        fate.seconds[BY_INDEX] = time.monotonic() - started

    def wanted(self, fates: dict[str, Fate], fillers: dict[str, TableFiller]) -> dict[str, Wanted]:
        """What the carver is asked for."""
        return {
            name: Wanted(
                filler=fillers[name], lost_tree=fate.lost_tree, listed=fate.listed, whole=fate.whole
            )
            for name, fate in fates.items()
        }

    def _known_to_sqlite(self, name: str) -> bool:
        assert self._salvage is not None
        try:
            return bool(self._salvage.rows(f"PRAGMA table_info({literal(name)})"))
        except StateError as error:
            if error.retryable:
                raise
            return False

    @property
    def sound(self) -> bool:
        """Whether SQLite's page check finds nothing against the whole file."""
        if self._sound is None:
            self._tell("checking pages", 0)
            self._sound = self._salvage is not None and said_ok(self._salvage, "PRAGMA quick_check(1)")
        return self._sound

    def _tell(self, doing: str, done: int, total: int | None = None) -> None:
        tell(self._progress, self._cancel, self._work, self._given, Step(
            doing=doing, done=done, total=total, unit="rows"
        ))


def tell(progress: Progress | None, cancel: Cancel | None, work: Work, given: object, step: Step) -> None:
    """Report a step, and stop when the caller wants that. Raises `RecoveryStopped`."""
    if cancel is not None and cancel():
        from pathlib import Path

        raise stopped(Path(str(given)), work.folder)
    if progress is not None:
        progress(step)


def _is_empty(table: Table, cells: Sequence[Cell]) -> bool:
    return all(cell is None for place, cell in enumerate(cells) if place != table.alias)


def said_ok(salvage: Salvage, sql: str) -> bool:
    """Whether a check answers ok. A check that raises does not."""
    try:
        return salvage.rows(sql) == [("ok",)]
    except StateError as error:
        if error.retryable:
            raise
        return False


def _is_reading(error: StateError, salvage: Salvage) -> bool:
    """Whether it is the damaged copy that an error is about, not the file being filled."""
    return str(getattr(error, "path", "")) == str(salvage.path)

