"""Every row that an image holds, each with the place it was found at.

Invariant: nothing is invented and nothing is chosen. All versions of a row come, with the commit that wrote each; a
value that is not whole is a `BrokenValue`; a row whose record does not add up, or whose overflow chain is not certain,
has `whole=False`. Bytes never raise and never loop. Memory: some bytes for each page of the file, and one page of rows.

Not for: deciding between versions of a row, or writing it anywhere. Rows as frozen dataclasses were rejected: making
one took longer than decoding a short row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from maintenance.recovery.carve.fit import Fit
from maintenance.recovery.carve.lost import Lost
from maintenance.recovery.carve.order import out_of_order
from maintenance.recovery.carve.pagemap import FREE, LINKED, MAP, TRUNK, PageMap
from maintenance.recovery.carve.schema import SCHEMA_SHAPE, layout_of, schema_of, shapes_of
from maintenance.recovery.carve.shapes import IndexShape, TableShape, roots
from maintenance.recovery.carve.slack import SlackReader, free_blocks, gaps_of
from maintenance.recovery.carve.versions import Version, versions_of
from maintenance.recovery.format.btree import INDEX_INTERIOR, TABLE_LEAF, Cell, index_cells, table_cells
from maintenance.recovery.format.header import HEADER_BYTES
from maintenance.recovery.format.image import Image
from maintenance.recovery.format.record import (
    BrokenBlob,
    BrokenNumber,
    BrokenText,
    BrokenValue,
    Value,
)

Place = Literal["linked", "unlinked", "slack", "freelist", "wal"]
PLACES: tuple[Place, ...] = ("linked", "unlinked", "slack", "freelist", "wal")
# Pages between two calls of `progress` and `cancel`.
_STEP_PAGES = 2048


class CarvedRow(NamedTuple):
    """One version of one row."""

    # the table whose root reaches the page or whose columns the rows of the page fit; None when neither names one
    table: str | None
    # the root page of its tree; of a lost tree its topmost page that is known
    root: int | None
    # None: a WITHOUT ROWID table, or overwritten
    rowid: int | None
    # in the order of the table's columns; as stored when the table is not known
    values: tuple[Value, ...]
    # the page that the cell is on
    page: int
    # linked: SQLite would find it. unlinked: on a page that no root reaches. slack: in bytes that no cell pointer
    # reaches. freelist: on a page that the database has given up. wal: on a version of a page that is not the newest,
    # or that no commit has
    place: Place
    # every value is there, the record adds up, its overflow pages are certainly its own, and no checksum of a frame
    # contradicts the page
    whole: bool
    # order of the commit that wrote the page: 0 the main file, 1 to n the WAL's commits, negative those of generations
    # before the main file's last checkpoint; None: a frame that belongs to no commit
    commit: int | None
    # False: an entry whose key is not where the others of its page say that it belongs
    in_order: bool = True


@dataclass(kw_only=True)
class Tally:
    """What carving met beside rows; give one to `carve` to have it filled."""

    # pages that had rows
    pages: int = 0
    # cells of such pages that could not be read
    cells_unreadable: int = 0
    # pages that a root reaches and that are no pages of a tree any more
    pages_unreadable: int = 0
    # pages of each table's tree of which nothing or not every row could be read, by the table's name; sqlite_schema too
    unread_of: dict[str, int] = field(default_factory=dict)
    # free pages that the header counts and no list names: what lies on them looks like rows that are live
    free_pages_unlisted: int = 0


def carve(
    image: Image,
    tables: Sequence[TableShape],
    *,
    places: Collection[Place] = PLACES,
    indexes: Sequence[IndexShape] = (),
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
    tally: Tally | None = None,
) -> Iterator[CarvedRow]:
    """Rows of `tables`, and of lost trees that fit none of them (`table=None`), from the places that are asked for.

    tables: shapes with roots as `shapes_of` gives them, or without, as data; several of one name are taken for releases
    of one table. What the image's own schema says beyond them is used to tell rows apart; rows of such other tables are
    not given. indexes: more of that kind, so that an entry of an index is not taken for a row. progress: called with
    (pages done, pages in all). cancel: asked now and then; the rows end when it says True, and the caller knows that.
    """
    yield from _Carving(image, tables, indexes, frozenset(places), progress, cancel, tally or Tally()).rows()


class _Carving:
    def __init__(
        self, image: Image, tables: Sequence[TableShape], indexes: Sequence[IndexShape], places: frozenset[Place],
        progress: Callable[[int, int], None] | None, cancel: Callable[[], bool] | None, tally: Tally,
    ) -> None:
        self._image, self._places, self._tally = image, places, tally
        self._progress, self._cancel = progress, cancel
        self._layout = layout_of(image)
        # A frame that no commit has may be of a page behind the end.
        last = max([image.page_count, *image.pages_in_wal()[-1:]])
        self._layout_of_versions = replace(self._layout, pages=last)
        own = schema_of(image)
        names = {shape.name for shape in tables}
        others = [shape for shape in own.tables if shape.name not in names]
        fits = [Fit(shape) for shape in (*tables, *others)]
        self._wanted = {id(fit) for fit in fits[: len(tables)]}
        self._by_root = {fit.shape.root: fit for fit in reversed(fits) if fit.shape.root}
        for fit in fits[: len(tables)]:
            if fit.name == SCHEMA_SHAPE.name:
                self._by_root.setdefault(1, fit)
        known = {root for _, root in own.unreadable} | {1, *roots(own.tables, own.indexes)}
        all_indexes = [*indexes, *own.indexes]
        self._index_roots = {shape.root for shape in all_indexes if shape.root}
        self._pages = PageMap(image, known | set(roots([fit.shape for fit in fits], all_indexes)))
        tally.free_pages_unlisted = max(0, image.header.free_pages - self._pages.listed_free)
        self._fits = fits
        self._lost = Lost(image, self._pages, fits, all_indexes)
        for shape in own.tables:
            if shape.root and shape.root not in self._by_root:
                self._by_root[shape.root] = self._release_of(shape)
        self._slack_readers: dict[int, SlackReader] = {}
        for number in known | set(self._by_root):
            # A root that is no page of a tree, and pages that an interior page names and that are of another kind.
            linked = number < len(self._pages.states) and self._pages.states[number] == LINKED
            self._not_read(number, self._pages.strangers.get(number, 0) + (not linked))

    def _not_read(self, root: int, pages: int = 1) -> None:
        """Count pages of the tree of a table that could not be read, or not whole."""
        fit = self._by_root.get(root)
        name = SCHEMA_SHAPE.name if root == 1 else fit.name if fit is not None else ""
        if name and pages:
            self._tally.unread_of[name] = self._tally.unread_of.get(name, 0) + pages

    def _release_of(self, shape: TableShape) -> Fit:
        """A table that the caller knows and only the file has a root of: as the file has it, else by its rows."""
        known = [fit for fit in self._fits if fit.name == shape.name and fit.count]
        sample = self._lost.sample(shape.root or 0)
        fit = Fit(shape)
        if not shape.columns or sum(map(fit.fits, sample)) * 2 < len(sample):
            found = self._lost.table_of_rows(sample, index=False, among=known)
            if found is not None or (len(known) == 1 and not shape.columns):
                return found or known[0]
        self._fits.append(fit)
        self._wanted.add(id(fit))
        return fit

    def rows(self) -> Iterator[CarvedRow]:
        count = self._image.page_count
        wanted = self._places
        for done, match in enumerate(re.finditer(b"[\x02\x0a\x0d]", self._pages.kinds)):
            number = match.start()
            if done % _STEP_PAGES == 0 and not self._go_on(number, count):
                return
            self._image.give_back()
            if self._pages.states[number] != MAP and number:
                yield from self._page(number)
        if "slack" in wanted:
            for match in re.finditer(b"[^\x02\x05\x0a\x0d]", self._pages.kinds):
                number = match.start()
                if self._pages.states[number] in (LINKED, TRUNK):
                    if number % _STEP_PAGES == 0 and not self._go_on(count, count):
                        return
                    yield from self._headless(number)
        if "wal" in wanted:
            for number in self._image.pages_in_wal():
                if number % _STEP_PAGES == 0 and not self._go_on(count, count):
                    return
                for version in versions_of(self._image, number):
                    yield from self._version(version)
        if self._progress is not None:
            self._progress(count, count)

    def _go_on(self, done: int, total: int) -> bool:
        if self._progress is not None:
            self._progress(done, total)
        return self._cancel is None or not self._cancel()

    def _page(self, number: int) -> Iterator[CarvedRow]:
        """Rows of the newest version of a page, then of what lies between its cells."""
        kind, state = self._pages.kinds[number], self._pages.states[number]
        fit, root, place = self._owner(number, kind, state)
        if fit is not None and id(fit) not in self._wanted:
            return
        table_page = kind == TABLE_LEAF
        if fit is not None and fit.shape.without_rowid == table_page:
            return
        if fit is None and not table_page:
            return
        if place not in self._places and "slack" not in self._places:
            return
        image = self._image
        page, base = image.page(number), HEADER_BYTES if number == 1 else 0
        limit = image.real_bytes(number)
        read = table_cells if table_page else index_cells
        cells, unreadable = read(page, base, limit, self._layout, self._overflow)
        if fit is not None and cells and fit.count and not fit.fits(cells[0][1]):
            # The page may have been written to the wrong place, or the table's SQL be damaged: its rows have the last
            # word when they fit a table, and when they fit none, the tree has it if SQLite would believe it too.
            other = self._lost.table_of_rows([cell[1] for cell in cells[:8]], index=not table_page)
            if other is not None and other.name != fit.name and place == "linked":
                place = "unlinked"
                self._not_read(root)
            if other is not None or place != "linked":
                fit = other
            if (fit is None and not table_page) or (fit is not None and id(fit) not in self._wanted):
                return
        self._tally.pages += 1
        self._tally.cells_unreadable += unreadable
        if place == "linked" and (unreadable or not cells):
            self._not_read(root, int(unreadable > 0 or number != root))
        commit = image.commit_of(number)
        if place in self._places:
            # A checksum that does not agree says that something on the page is wrong, and not what.
            given = cells if image.proven(number) else _doubted(cells)
            yield from self._finished(given, fit, root, number, place, commit)
        if "slack" in self._places and fit is not None and fit.count and kind != INDEX_INTERIOR:
            pointers_end = base + 8 + 2 * min(page[base + 3] << 8 | page[base + 4], limit // 4)
            used = pointers_end + sum(cell[4] - cell[3] for cell in cells if cell[2])
            if self._layout.usable - used >= 6:
                gaps = gaps_of(page, base, cells, min(self._layout.usable, limit), pointers_end)
                starts = {cell[3] for cell in cells if not cell[2]}
                found = [cell for cell in self._slack(fit, page, base, gaps) if cell[3] not in starts]
                yield from self._finished(found, fit, root, number, "slack", commit)

    def _owner(self, number: int, kind: int, state: int) -> tuple[Fit | None, int, Place]:
        """The table of a page, the root of its tree, and what kind of place it is."""
        root = self._pages.root_of(number)
        if state == LINKED:
            if root in self._by_root:
                return self._by_root[root], root, "linked"
            # sqlite_schema itself, an index, or an object whose SQL is garbage.
            return _NOT_A_TABLE, root, "linked"
        place: Place = "freelist" if state in (FREE, TRUNK) else "unlinked"
        if root != number and root in self._by_root:
            return self._by_root[root], root, place
        if root != number and root in self._index_roots:
            return _NOT_A_TABLE, root, place
        return self._lost.table_of(number, kind), root, place

    def _overflow(self, number: int) -> tuple[bytes, bool]:
        sure = self._pages.states[number] not in (LINKED, MAP, TRUNK) and self._image.proven(number)
        return self._image.page(number), sure

    def _finished(
        self, cells: Sequence[Cell], fit: Fit | None, root: int, page: int, place: Place, commit: int | None
    ) -> Iterator[CarvedRow]:
        if fit is None:
            # Without a table only the records themselves vouch for each other.
            believable = 2 * sum(cell[2] for cell in cells) >= len(cells)
            for rowid, values, whole, _, _ in cells:
                if whole or believable:
                    yield CarvedRow(None, root, rowid, tuple(values), page, place, whole, commit)
            return
        name, make, certain = fit.name, fit.row, place == "linked"
        # Slack has entries of several times, which have no order.
        sorted_page = fit.shape.without_rowid and place != "slack"
        strays = out_of_order([cell[1] for cell in cells]) if sorted_page else frozenset()
        for number, (rowid, values, whole, _, _) in enumerate(cells):
            if not certain and fit.count and not fit.fits(values):
                continue
            yield CarvedRow(name, root, rowid, make(rowid, values), page, place, whole, commit, number not in strays)

    def _slack(self, fit: Fit, page: bytes, base: int | None, gaps: list[tuple[int, int]]) -> list[Cell]:
        reader = self._slack_readers.get(id(fit))
        if reader is None:
            reader = self._slack_readers[id(fit)] = SlackReader(fit, self._layout)
        freed = frozenset() if base is None else free_blocks(page, base, self._layout.usable)
        return list(reader.rows(page, gaps, freed, self._free_overflow))

    def _free_overflow(self, number: int) -> tuple[bytes, bool]:
        """An overflow page of a deleted row is certainly still its own only on the list of free pages."""
        return self._image.page(number), self._pages.states[number] == FREE

    def _headless(self, number: int) -> Iterator[CarvedRow]:
        """Rows on a page that has lost its header: a linked one, or one that became a trunk of the free list."""
        page = self._image.page(number)
        if len(page) < self._layout.usable:
            return
        linked = self._pages.states[number] == LINKED
        if linked:
            self._tally.pages_unreadable += 1
            self._not_read(self._pages.root_of(number))
            fit = self._by_root.get(self._pages.root_of(number))
            candidates = [fit] if fit is not None else []
        else:
            candidates = [fit for fit in self._fits if id(fit) in self._wanted]
        if not page.strip(b"\0"):
            return
        gaps = [(8, min(self._layout.usable, self._image.real_bytes(number)))]
        found: list[tuple[Fit, list[Cell]]] = []
        for fit in candidates:
            if id(fit) in self._wanted and fit.count:
                cells = self._slack(fit, page, None, gaps)
                if cells:
                    found.append((fit, cells))
        names = {fit.name for fit, _ in found}
        if len(names) != 1:
            # Rows that two tables could have belong to neither.
            return
        fit, cells = max(found, key=lambda pair: len(pair[1]))
        root = self._pages.root_of(number)
        yield from self._finished(cells, fit, root, number, "slack", self._image.commit_of(number))

    def _version(self, version: Version) -> Iterator[CarvedRow]:
        """Rows of an older version of a page that its newer versions do not have."""
        page, number = version.page, version.number
        base = HEADER_BYTES if number == 1 else 0
        if len(page) <= base or self._pages.is_map(number):
            return
        kind = page[base]
        table_page = kind == TABLE_LEAF
        if kind not in (INDEX_INTERIOR, 10, TABLE_LEAF):
            return
        read = table_cells if table_page else index_cells
        every, unreadable = read(page, base, version.limit, self._layout_of_versions, version.read)
        cells = [cell for cell in every if version.is_new(page[cell[3] : cell[4]])]
        if not cells:
            return
        if version.unproven:
            cells = _doubted(cells)
        root = self._pages.root_of(number)
        fit = self._by_root.get(root)
        sample = [cell[1] for cell in cells[:8]]
        if fit is None or not fit.count or fit.shape.without_rowid == table_page or fit.score(sample[0]) < 0:
            fit = self._lost.table_of_rows(sample, index=not table_page)
        if fit is None and not table_page:
            return
        if fit is not None and id(fit) not in self._wanted:
            return
        yield from self._finished(cells, fit, root, number, "wal", version.commit)
        if fit is not None and table_page and (unreadable or not all(cell[2] for cell in every)):
            # A wrong pointer hides a row that is there.
            pointers_end = base + 8 + 2 * min(page[base + 3] << 8 | page[base + 4], version.limit // 4)
            gaps = gaps_of(page, base, every, min(self._layout.usable, version.limit), pointers_end)
            hidden = [cell for cell in self._slack(fit, page, base, gaps) if cell[2]]
            yield from self._finished(hidden, fit, root, number, "wal", version.commit)


def _doubted(cells: list[Cell]) -> list[Cell]:
    return [(rowid, values, False, start, end) for rowid, values, _, start, end in cells]


_NOT_A_TABLE = Fit(TableShape(name="", columns=()))

__all__ = [
    "PLACES",
    "BrokenBlob",
    "BrokenNumber",
    "BrokenText",
    "BrokenValue",
    "CarvedRow",
    "IndexShape",
    "Place",
    "TableShape",
    "Tally",
    "Value",
    "carve",
    "schema_of",
    "shapes_of",
]
