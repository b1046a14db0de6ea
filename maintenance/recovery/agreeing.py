"""A second source for the columns of any table: the indexes on them.

Invariant: a row whose indexed cells differ from an index entry of the same key is uncertain, unless a check of its own
proves it; which of the two is right cannot be told. Only whole indexes of the damaged copy are asked, as far as they
can be read. Not for: rows that are missing (`ladder.py` lists those before).

Asking each row's indexes by key was rejected: an index is ordered by its columns, so a walk through it is ten times as
fast.
"""

from __future__ import annotations

from collections.abc import Callable

from hermes_state.engine.salvage import Salvage
from hermes_state.errors import StateError
from maintenance.interop.typed import canonical
from maintenance.recovery.filling import Filler, TableFiller
from maintenance.recovery.reading import TableReader

DIFFERS = "an index says something else"
EVERY = 1000


def compare_with_indexes(
    salvage: Salvage, filler: Filler, one: TableFiller, advance: Callable[[int], None] = lambda _rows: None
) -> None:
    """Note every row of a table that an index of the source contradicts."""
    reader = TableReader(salvage, one.table)
    names = one.table.names
    with filler.batches():
        for index, columns in reader.whole_indexes():
            if not set(columns) <= set(names):
                continue
            places = [(name, names.index(name)) for name in columns]
            done = 0
            try:
                for rowid, entry in reader.of_index(index, columns):
                    done += 1
                    if done % EVERY == 0:
                        advance(EVERY)
                    row = one.current(rowid)
                    if row is None:
                        continue
                    held = {name: row[place] for name, place in places}
                    if canonical(held, columns) != canonical(entry, columns) and not one.judge(row).proven:
                        doubt = filler.notes.doubt(one.number, rowid)
                        filler.notes.uncertain(one.number, rowid, DIFFERS, doubt[1] if doubt else 0)
                        filler.tick(0)
            except StateError as error:
                if error.retryable:
                    raise  # else the rest of this index cannot be read, and says nothing
