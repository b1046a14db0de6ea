"""Rows from the pages themselves, for tables that SQL does not give whole: the adapter between carver and filling.

Invariant: a carved row is certain only on a page that its root reaches, from bytes that SQLite itself would read; on
any other page it is uncertain at best. When a whole index says which rows there are, a page that no tree leads to
gives only those. Remains of deleted rows (free pages, the bytes between cells, older versions in the WAL) are taken
only for keys that are known to be lost; all others are counted and left out.

Not for: the file format (`format`, `carve`). Taking every row that can be found was rejected: it brings back what was
deleted, and versions that were replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from maintenance.interop.typed import BadText, Cell
from maintenance.quoting import quoted
from maintenance.recovery.carve.ddl import parse_index, parse_table
from maintenance.recovery.carve.rows import PLACES, CarvedRow, Place, Tally, carve
from maintenance.recovery.carve.schema import SCHEMA_SHAPE
from maintenance.recovery.carve.shapes import IndexShape, TableShape
from maintenance.recovery.copying import forget_cached
from maintenance.recovery.filling import Filler, TableFiller, key_of
from maintenance.recovery.format.btree import TREE_PAGES
from maintenance.recovery.format.header import HEADER_BYTES, plausible_tree_page
from maintenance.recovery.format.image import Image
from maintenance.recovery.format.record import BrokenText, BrokenValue
from maintenance.recovery.format.wal import WalRule
from maintenance.recovery.known import KnownShape, known_shapes
from maintenance.recovery.loose import is_known_by, is_narrow
from maintenance.recovery.notes import Key, said_cells
from maintenance.recovery.schema import Entry, Schema, build_schema

if TYPE_CHECKING:
    from maintenance.recovery.records import Cancel

NOT_LINKED = "on a page that no tree leads to"
NOT_READ = "in a part of the WAL that SQLite does not read"
REMAINS = "remains of a row that was deleted or replaced"
OVERFLOW = "its overflow pages may be another row's"
CUT_OFF = "cut off"
OUT_OF_ORDER = "its key is not where the order of its page has it"
NO_TABLE = "fits no known table"
BY_TYPES = "nothing but its types fits a table, and that has few columns"
RUNG = "carving"
# Positions order unproven versions: what a root reaches above what none reaches, and later commits above earlier ones.
_LINKED, _UNLINKED, _REMAINS = 3 << 40, 2 << 40, 1 << 40
_LINKED_ONLY: tuple[Place, ...] = ("linked",)
# A file of which less than this share can be pages of trees is hardly a database any more. Chosen, not measured: a
# store of very long texts may have fewer, so it is asked only where page 1 is gone and nothing says what the rest was.
LEAST_TREES = 0.1
# Rows that are looked at to tell the releases apart.
_SAMPLE_ROWS = 3_000


@dataclass(kw_only=True)
class Wanted:
    """What the carver is asked about one table."""

    filler: TableFiller
    # nothing of its tree can be reached, and no index says what should be in it
    lost_tree: bool
    # an index that was read to its end says which rows there are
    listed: bool
    # it was read whole through SQL: only what SQLite cannot see in the WAL is of interest
    whole: bool
    # so it was, although a check of its pages failed: SQLite gives entries without asking whether they are in order
    keyed: bool = False


def open_image(copy: Path, wal: Path, *, rule: WalRule = "lenient") -> Image:
    """The private copy as pages. The caller closes it before SQLite opens the copy again."""
    for path in (copy, wal):
        forget_cached(path)
    return Image.read(
        copy if copy.exists() else None, wal if wal.exists() else None,
        wal_rule=rule,
    )


def unread_commits(image: Image) -> frozenset[int]:
    """Commits that are laid over the main file although SQLite would not read them."""
    return frozenset(commit.number for commit in image.commits if commit.number > 0 and not commit.visible)


def missing_pages(image: Image) -> int:
    """Pages that the header or the last commit counts and that are not in the files, or not all of them."""
    if not image.header_whole or not image.page_count:
        return 0
    last = image.page_count
    return max(0, image.size_in_pages - last) + (image.real_bytes(last) < image.page_size)


def tree_pages(image: Image) -> tuple[int, int]:
    """How many pages can be pages of a tree, and how many have any bytes at all."""
    trees = filled = 0
    for number in range(1, image.page_count + 1):
        page, base = image.page(number), HEADER_BYTES if number == 1 else 0
        if not any(page):
            continue
        filled += 1
        whole = len(page) == image.page_size and page[base] in TREE_PAGES
        trees += whole and plausible_tree_page(page, base, image.usable)
        image.give_back()
    return trees, filled


# --- schema ------------------------------------------------------------------------------------------------------


def carved_schema(image: Image) -> Schema:
    """The schema from whatever pages still have rows of it."""
    entries: dict[tuple[str, str], Entry] = {}
    for row in carve(image, [SCHEMA_SHAPE], places=("linked", "unlinked")):
        if row.table != SCHEMA_SHAPE.name or not row.whole or len(row.values) != 5:
            continue
        kind, name, table, root, sql = row.values
        if isinstance(kind, str) and isinstance(name, str) and isinstance(table, str):
            entry = Entry(
                kind=kind, name=name, table=table, root=root if isinstance(root, int) and root > 0 else 0,
                sql=sql if isinstance(sql, str) else None,
            )
            entries.setdefault((kind, name), entry)
    return build_schema(list(entries.values()), "carved")


def release_schema(image: Image) -> Schema | None:
    """The schema of the release whose tables most rows fit; None when no row fits any."""
    best: tuple[int, int, KnownShape] | None = None
    for known in known_shapes():
        shapes = [shape for name, sql in known.tables.items() if (shape := _shape(name, sql, None)) is not None]
        rows = islice(carve(image, shapes, places=("linked", "unlinked")), _SAMPLE_ROWS)
        fitting = sum(row.table is not None and row.whole for row in rows)
        width = sum(len(shape.columns) for shape in shapes)
        # Rows that were written before a column was added fit later releases too: of equals the narrowest is meant.
        if fitting and (best is None or (fitting, -width) > best[:2]):
            best = (fitting, -width, known)
    if best is None:
        return None
    known = best[2]
    entries = [Entry(kind="table", name=name, table=name, root=0, sql=sql) for name, sql in known.tables.items()]
    entries += [
        Entry(kind="index", name=name, table=_table_of(known, name), root=0, sql=sql)
        for name, sql in known.indexes.items()
    ]
    schema = build_schema(entries, known.release)
    schema.tables = {name: replace(table, own=False) for name, table in schema.tables.items()}
    return schema


def columns_of_rows(image: Image, root: int) -> int:
    """How many columns the rows of a tree have at most; 0 when no row can be read."""
    shape = TableShape(name="", columns=(), root=root)
    rows = islice(carve(image, [shape], places=_LINKED_ONLY), _SAMPLE_ROWS)
    return max((len(row.values) for row in rows if row.table == ""), default=0)


def plain_statement(image: Image, name: str, root: int) -> str | None:
    """A CREATE TABLE statement for a tree of which nothing but its rows is known; None when it has none."""
    shape = TableShape(name="", columns=(), root=root)
    rows = list(islice(carve(image, [shape], places=_LINKED_ONLY), _SAMPLE_ROWS // 10))
    width = max((len(row.values) for row in rows if row.table == ""), default=0)
    if not width:
        return None
    # The place of an INTEGER PRIMARY KEY holds NULL in every row.
    first = "c1 INTEGER PRIMARY KEY" if all(row.values[:1] == (None,) for row in rows) else "c1"
    columns = ", ".join([first, *(f"c{number}" for number in range(2, width + 1))])
    return f"CREATE TABLE {quoted(name)} ({columns})"


def _table_of(known: KnownShape, index: str) -> str:
    words = known.indexes[index].replace("(", " ").split()
    return words[[word.upper() for word in words].index("ON") + 1].strip('"')


def _shape(name: str, sql: str, root: int | None) -> TableShape | None:
    parsed = parse_table(sql, name=name, root=root)
    return None if parsed is None else parsed.shape


def shapes_for(schema: Schema) -> tuple[list[TableShape], list[IndexShape]]:
    """Shapes of every table and index that the schema has a statement for, those behind search indexes included."""
    tables: dict[str, TableShape] = {}
    for entry in schema.entries:
        if entry.kind != "table":
            continue
        known = schema.tables.get(entry.name)
        sql = known.sql if known is not None else entry.sql
        shape = _shape(entry.name, sql, entry.root or None) if sql else None
        if shape is not None:
            tables.setdefault(entry.name, shape)
    indexes = []
    for entry in schema.entries:
        if entry.kind == "index" and entry.sql and entry.table in tables:
            index = parse_index(entry.sql, tables[entry.table], name=entry.name, root=entry.root or None)
            if index is not None:
                indexes.append(index)
    return list(tables.values()), indexes


# --- rows --------------------------------------------------------------------------------------------------------


class Carver:
    """One pass over the pages for all tables that need it."""

    def __init__(self, filler: Filler, schema: Schema, wanted: dict[str, Wanted]) -> None:
        self._filler, self._schema, self._wanted = filler, schema, wanted
        # table -> how wide a record with generated values is, and where the table's own columns are in it
        self._places: dict[str, tuple[int, list[int]]] = {}
        self._roots: dict[str, int | None] = {}
        self._tally = Tally()

    @property
    def unread(self) -> dict[str, int]:
        """After `run`: pages of trees that could not be read whole, by table; `sqlite_schema` is one."""
        return self._tally.unread_of

    def run(
        self, image: Image, *, progress: Callable[[int, int], None] | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        """Offer every row. Stops early, with whole batches committed, when `cancel` says so."""
        tables, indexes = shapes_for(self._schema)
        self._places = {shape.name: found for shape in tables if (found := self._places_in(shape)) is not None}
        self._roots = {shape.name: shape.root for shape in tables}
        unread = unread_commits(image)
        only_whole = all(wanted.whole for wanted in self._wanted.values())
        places = _LINKED_ONLY if only_whole else PLACES
        rows = carve(
            image, tables, places=places, indexes=indexes, progress=progress, cancel=cancel,
            tally=self._tally,
        )
        with self._filler.batches():
            for row in rows:
                self._one(row, unread)

    def _one(self, row: CarvedRow, unread: frozenset[int]) -> None:
        if row.table is None:
            if row.whole and row.place in ("linked", "unlinked") and len(row.values) > 1:
                self._nobodys(row)
            return
        wanted = self._wanted.get(row.table)
        if wanted is None:
            return
        only_order = wanted.whole and row.commit not in unread
        if only_order and (row.in_order or not wanted.keyed or row.place != "linked"):
            return
        filler = wanted.filler
        table = filler.table
        width, places = self._places.get(row.table, (0, []))
        if len(row.values) == width:
            row = row._replace(values=tuple(row.values[place] for place in places))
        if len(row.values) != len(table.names) or (row.rowid is None and table.rowid is not None):
            return
        cells = [_cell(value) for value in row.values]
        if row.rowid is not None and table.alias is not None:
            cells[table.alias] = row.rowid
        key = key_of(table, row.rowid, cells)
        cut = any(isinstance(value, BrokenValue) and _is_cut(value) for value in row.values)
        doubt, position = self._doubt(wanted, row, key, unread)
        if doubt is None:
            if not cut:
                self._filler.notes.remains(filler.number, key)
                self._filler.tick(0)
            return
        if doubt == NOT_LINKED and self._by_types_only(wanted, row, key, cells):
            self._nobodys(row, BY_TYPES)
            return
        if cut:
            self._cut(filler, row, key)
            return
        doubt = doubt or ("" if row.whole else OVERFLOW) or ("" if row.in_order else OUT_OF_ORDER)
        if not only_order:
            filler.offer(key, cells, RUNG, doubt=doubt, position=position)
        notes = self._filler.notes
        if not row.in_order and not filler.judge(cells).proven and notes.doubt(filler.number, key) is None and (
            filler.current(key) is not None
        ):
            # SQL gave it too: it reads entries without holding them against their neighbours.
            notes.uncertain(filler.number, key, OUT_OF_ORDER, position)

    def _by_types_only(self, wanted: Wanted, row: CarvedRow, key: Key, cells: list[Cell]) -> bool:
        """Whether nothing but the types of its values gives a row of a lost page to this table."""
        filler = wanted.filler
        if not is_narrow(filler.table) or filler.judge.proves or not wanted.lost_tree:
            return False
        if row.root is not None and row.root == self._roots.get(filler.table.name):
            return False
        return not self._is_lost(wanted, key) and not is_known_by(filler.table, key, cells)

    def _places_in(self, shape: TableShape) -> tuple[int, list[int]] | None:
        wanted = self._wanted.get(shape.name)
        if wanted is None or len(shape.columns) == len(wanted.filler.table.names):
            return None
        at = {column.name.lower(): place for place, column in enumerate(shape.columns)}
        places = [at.get(name.lower()) for name in wanted.filler.table.names]
        found = [place for place in places if place is not None]
        return (len(shape.columns), found) if len(found) == len(places) else None

    def _doubt(
        self, wanted: Wanted, row: CarvedRow, key: Key, unread: frozenset[int]
    ) -> tuple[str | None, int]:
        """Why a row is not certain ("": it is), or None when it is not to be taken; and its position."""
        commit = row.commit or 0
        if row.place == "linked":
            return (NOT_READ if commit in unread else ""), _LINKED + commit
        if row.place == "unlinked":
            # A page that is in no tree although the tree reaches every key around it was given up: its rows are gone.
            if not wanted.lost_tree and isinstance(key, int) and not self._is_lost(wanted, key):
                return None, 0
            return NOT_LINKED, _UNLINKED + commit
        if not wanted.lost_tree and self._is_lost(wanted, key):
            return REMAINS, _REMAINS + commit
        return None, 0

    def _is_lost(self, wanted: Wanted, key: Key) -> bool:
        notes, number = self._filler.notes, wanted.filler.number
        if notes.is_listed(number, key):
            return True
        return not wanted.listed and isinstance(key, int) and notes.is_unread(number, key)

    def _cut(self, filler: TableFiller, row: CarvedRow, key: Key) -> None:
        """What is left of a row whose end is gone."""
        if filler.current(key) is not None:
            return
        values: list[Cell] = []
        missing = {}
        for name, value in zip(filler.table.names, row.values, strict=True):
            values.append(BadText(value.raw) if isinstance(value, BrokenValue) else value)
            if isinstance(value, BrokenValue) and value.missing:
                missing[name] = value.missing
        filler.keep_apart(key, values, CUT_OFF, RUNG, page=row.page, missing_bytes=missing)

    def _nobodys(self, row: CarvedRow, reason: str = NO_TABLE) -> None:
        names = [f"c{number}" for number in range(len(row.values))]
        cells = [_cell(value) for value in row.values]
        self._filler.notes.apart(-1, row.rowid if row.rowid is not None else f"page {row.page}", reason, {
            "table": None, "key": row.rowid, "reason": reason, "rung": RUNG, "page": row.page,
            "values": said_cells(names, cells),
        })
        self._filler.tick(64)


def _cell(value: object) -> Cell:
    if isinstance(value, BrokenText):
        return BadText(value.raw)
    if isinstance(value, BrokenValue):
        return value.raw
    return value  # type: ignore[return-value]


def _is_cut(value: BrokenValue) -> bool:
    return value.missing > 0 or not isinstance(value, BrokenText)

