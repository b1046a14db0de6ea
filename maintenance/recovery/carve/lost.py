"""Which table a page belongs to that no root reaches.

Invariant: a page is given a table only when its rows fit that table and no other as well; otherwise it stays without
one, and its rows are grouped by the topmost page of their tree. Not for: pages that a root reaches and whose rows fit.

Deciding row by row was rejected: all rows of a page are of one table, and together they say more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from maintenance.recovery.carve.fit import Fit, index_score
from maintenance.recovery.carve.pagemap import LINKED, PageMap
from maintenance.recovery.carve.schema import layout_of
from maintenance.recovery.carve.shapes import IndexShape
from maintenance.recovery.format.btree import (
    INDEX_INTERIOR,
    INDEX_LEAF,
    TABLE_INTERIOR,
    TABLE_LEAF,
    children,
    index_cells,
    table_cells,
)
from maintenance.recovery.format.header import HEADER_BYTES
from maintenance.recovery.format.image import Image
from maintenance.recovery.format.record import Value

_PAGES_LOOKED_AT = 12
_ROWS_LOOKED_AT = 8
# Of the rows that were looked at, how many have to fit: a damaged page has some that fit nothing.
_SHARE = 0.75
# Points by which a table has to lead, for each row.
_LEAD = 1.0
# Decisions that are kept: a lost tree has one.
_MOST_KEPT = 10_000


class Lost:
    """Decisions about the pages of one image."""

    def __init__(self, image: Image, pages: PageMap, tables: Sequence[Fit], indexes: Sequence[IndexShape]) -> None:
        self._image, self._pages, self._layout = image, pages, layout_of(image)
        self._tables = [fit for fit in tables if not fit.shape.without_rowid and fit.count]
        self._keyed = [fit for fit in tables if fit.shape.without_rowid and fit.count]
        self._indexes = indexes
        self._known: dict[int, Fit | None] = {}

    def table_of(self, number: int, kind: int) -> Fit | None:
        """The table of a page, by all pages of its tree that can be looked at."""
        top = self._pages.root_of(number)
        if top == number and kind in (TABLE_LEAF, INDEX_LEAF):
            return self.table_of_rows(self._rows([number]), index=kind == INDEX_LEAF)
        if top not in self._known:
            if len(self._known) > _MOST_KEPT:
                self._known.clear()
            rows = self._rows(self._leaves(top, linked=False))
            self._known[top] = self.table_of_rows(rows, index=kind in (INDEX_LEAF, INDEX_INTERIOR))
        return self._known[top]

    def sample(self, root: int) -> list[list[Value]]:
        """Some records of the tree of a root."""
        return self._rows(self._leaves(root, linked=True))

    def table_of_rows(
        self, rows: Iterable[list[Value]], *, index: bool, among: Sequence[Fit] | None = None
    ) -> Fit | None:
        """The one table that these records fit; None when there is none or more than one. among: all, or these."""
        sample = [row for row in rows if row]
        if not sample:
            return None
        candidates = among if among is not None else self._keyed if index else self._tables
        # name -> (rows that fit, points, the shape); of several shapes of one name the tightest.
        best: dict[str, tuple[int, int, Fit | None]] = {}
        for fit in candidates:
            scores = [score for score in map(fit.score, sample) if score >= 0]
            found = (len(scores), sum(scores), fit)
            if scores and (fit.name not in best or found[:2] > best[fit.name][:2]):
                best[fit.name] = found
        if index:
            for shape in self._indexes:
                scores = [score for score in (index_score(shape, row) for row in sample) if score >= 0]
                if scores:
                    best[f"index {shape.name}"] = (len(scores), sum(scores), None)
        ranked = sorted(best.values(), key=lambda found: found[:2], reverse=True)
        if not ranked or ranked[0][0] < _SHARE * len(sample):
            return None
        most, points, winner = ranked[0]
        rivals = [found for found in ranked[1:] if found[0] >= most]
        if rivals and points - rivals[0][1] < _LEAD * most:
            return None
        return winner

    def _rows(self, numbers: Iterable[int]) -> list[list[Value]]:
        """Some records of each page, overflow not followed."""
        found: list[list[Value]] = []
        for number in numbers:
            page, base = self._image.page(number), HEADER_BYTES if number == 1 else 0
            if len(page) < self._image.usable:
                continue
            read = table_cells if page[base] == TABLE_LEAF else index_cells
            limit = self._image.real_bytes(number)
            cells, _ = read(page, base, limit, self._layout, lambda wanted: (b"", False))
            step = max(1, len(cells) // _ROWS_LOOKED_AT)
            found.extend(cell[1] for cell in cells[::step])
        return found

    def _leaves(self, top: int, *, linked: bool) -> list[int]:
        """Some leaves of a tree, and of an index its interior pages too, which have entries."""
        found: list[int] = []
        kinds, seen, waiting = self._pages.kinds, {top}, [top]
        while waiting and len(found) < _PAGES_LOOKED_AT:
            number = waiting.pop()
            kind = kinds[number]
            if kind in (INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF):
                found.append(number)
            if kind in (INDEX_INTERIOR, TABLE_INTERIOR):
                below = children(
                    self._image.page(number), HEADER_BYTES if number == 1 else 0, self._image.usable,
                    self._image.page_count,
                )  # fmt: skip
                for child in below:
                    if child not in seen and (self._pages.states[child] == LINKED) == linked:
                        seen.add(child)
                        waiting.append(child)
        return found
