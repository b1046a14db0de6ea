"""Entries of indexes: a second source of the keys that a table had, and of the columns that an index holds.

Invariant: an entry comes with the index whose root reaches its page, or on a lost page with the one index whose entries
look like it; entries that two indexes could have are left out, because what their columns are called would be a guess.

Not for: rows of WITHOUT ROWID tables, which lie in trees of the same kind (`rows`). Reading indexes through SQL was
rejected as the only way: it stops at the first damaged page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from maintenance.recovery.carve.fit import Fit, index_score
from maintenance.recovery.carve.pagemap import FREE, LINKED, MAP, TRUNK, PageMap
from maintenance.recovery.carve.schema import layout_of, schema_of
from maintenance.recovery.carve.shapes import IndexShape, roots
from maintenance.recovery.format.btree import Cell, index_cells
from maintenance.recovery.format.image import Image
from maintenance.recovery.format.record import Value

_STEP_PAGES = 2048
_ROWS_LOOKED_AT = 8
_LEAD = 1.0
# Leaf and interior pages of indexes: both have entries.
_INDEX_PAGES = re.compile(b"[\x02\x0a]")


class CarvedKey(NamedTuple):
    """One entry of an index."""

    name: str
    # the table it belongs to
    table: str
    # rowid of its row; None in an index of a WITHOUT ROWID table
    rowid: int | None
    # (column, value) of what it holds, the key columns of a WITHOUT ROWID table included; expressions are left out
    columns: tuple[tuple[str, Value], ...]
    # the page that the entry is on
    page: int
    place: Literal["linked", "unlinked", "freelist"]
    # every value is there and the record adds up
    whole: bool
    # see CarvedRow.commit
    commit: int


def carve_keys(
    image: Image, indexes: Sequence[IndexShape] | None = None, *, cancel: Callable[[], bool] | None = None
) -> Iterator[CarvedKey]:
    """Entries of `indexes` (default: those that the image's schema names), newest version of each page only."""
    own = schema_of(image)
    wanted = list(own.indexes if indexes is None else indexes)
    by_root = {shape.root: shape for shape in wanted if shape.root}
    keyed = [Fit(shape) for shape in own.tables if shape.without_rowid]
    pages = PageMap(image, {1, *roots(own.tables, own.indexes), *by_root, *(root for _, root in own.unreadable)})
    layout = layout_of(image)
    for done, match in enumerate(_INDEX_PAGES.finditer(pages.kinds)):
        if done % _STEP_PAGES == 0 and cancel is not None and cancel():
            return
        number = match.start()
        state, root = pages.states[number], pages.root_of(number)
        if state == MAP or (state == LINKED and root not in by_root):
            continue
        image.give_back()
        page = image.page(number)
        base = 100 if number == 1 else 0
        cells, _ = index_cells(
            page, base, image.real_bytes(number), layout, lambda wanted: (image.page(wanted), True)
        )
        shape = by_root.get(root) or _index_of(cells, wanted, keyed)
        if shape is None:
            continue
        place: Literal["linked", "unlinked", "freelist"] = (
            "linked" if state == LINKED else "freelist" if state in (FREE, TRUNK) else "unlinked"
        )
        commit = image.commit_of(number)
        for _, values, whole, _, _ in cells:
            if index_score(shape, values) < 0:
                continue
            rowid = None if shape.key_columns or not isinstance(values[-1], int) else values[-1]
            names = (*shape.columns, *shape.key_columns)
            held = tuple((name, value) for name, value in zip(names, values, strict=False) if name is not None)
            yield CarvedKey(shape.name, shape.table, rowid, held, number, place, whole, commit)


def _index_of(cells: list[Cell], indexes: Sequence[IndexShape], keyed: Sequence[Fit]) -> IndexShape | None:
    """The one index that entries of a lost page fit."""
    sample = [cell[1] for cell in cells[:: max(1, len(cells) // _ROWS_LOOKED_AT)]]
    ranked: list[tuple[int, IndexShape | None]] = []
    for shape in indexes:
        scores = [index_score(shape, values) for values in sample]
        if scores and min(scores) >= 0:
            ranked.append((sum(scores), shape))
    for fit in keyed:
        scores = [fit.score(values) for values in sample]
        if scores and min(scores) >= 0:
            ranked.append((sum(scores), None))
    ranked.sort(key=lambda found: found[0], reverse=True)
    if not ranked or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < _LEAD * len(sample)):
        return None
    return ranked[0][1]
