"""Where things are in a closed database file, read from its bytes: b-trees, their pages, their payloads, the WAL.

Invariant: only the file format is believed, so a tree is found whether SQLite would open the file or not; a page that
makes no sense ends its branch and raises nothing. Nothing here writes, apart from `DatabaseFile.put`.

Not for: recovering rows (see `maintenance.recovery`), and not for a file that anybody has open. Asking SQLite's
`dbstat` was rejected: it opens the file, copies a WAL back and cannot answer for a file that is damaged already.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hermes_state.errors import InvalidInput, NotFound

INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
HEADER_BYTES = 100
WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The pages of one b-tree, as far as they can be reached from its root."""

    root: int
    # interior pages in key order of what lies below, the root first when it is one
    interiors: tuple[int, ...]
    # leaf pages in key order
    leaves: tuple[int, ...]
    # overflow pages, chain after chain
    overflow: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a page: where its bytes are."""

    page: int
    # offset of the cell and of its payload within the page
    start: int
    payload_start: int
    # bytes of payload in all, and of those on this page
    payload_bytes: int
    local_bytes: int
    # key of a table cell, 0 for an index
    rowid: int
    # first overflow page, 0 for none
    overflow: int

    @property
    def end(self) -> int:
        """Offset behind the cell within its page."""
        return self.payload_start + self.local_bytes + (4 if self.overflow else 0)


@dataclass(frozen=True, kw_only=True)
class SchemaRow:
    """One row of sqlite_schema."""

    kind: str
    name: str
    table: str
    # root page, 0 for a view, trigger or virtual table
    root: int
    sql: str | None
    cell: Cell = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame of a WAL."""

    # from 0
    number: int
    page: int
    # size of the database in pages when the frame ends a commit, else 0
    commit_pages: int
    # offset of the frame's header in the WAL
    start: int
    # its salts are those of the WAL's header (checksums are not looked at)
    current: bool


class DatabaseFile:
    """A closed database file, read page by page. Use it in a `with` block. Raises `NotFound`, `InvalidInput`."""

    def __init__(self, path: Path | str, *, page_size: int | None = None) -> None:
        """`page_size` in bytes is for a file whose header is gone; None reads it from the header."""
        self.path = Path(path)
        if not self.path.is_file():
            raise NotFound(f"There is no file {self.path}.", hint="Name a database file.", path=self.path)
        self._file = self.path.open("r+b")
        try:
            header = self._file.read(HEADER_BYTES)
            self.page_size = page_size or _page_size_in(header, self.path)
        except BaseException:
            self._file.close()
            raise
        self.usable = self.page_size - (header[20] if len(header) > 20 else 0)
        self.page_count = self.path.stat().st_size // self.page_size
        self.encoding = {2: "utf-16-le", 3: "utf-16-be"}.get(int.from_bytes(header[56:60], "big"), "utf-8")
        self.auto_vacuum = int.from_bytes(header[52:56], "big") != 0

    def __enter__(self) -> DatabaseFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def page(self, number: int) -> bytes:
        """The bytes of a page, from 1. Raises `NotFound` for a page that the file does not have."""
        if not 1 <= number <= self.page_count:
            raise NotFound(
                f"{self.path} has no page {number}.", hint=f"It has {self.page_count}.", path=self.path, page=number
            )
        self._file.seek((number - 1) * self.page_size)
        return self._file.read(self.page_size)

    def put(self, number: int, data: bytes, *, at: int = 0) -> None:
        """Write `data` at offset `at` of a page. One page behind the end is allowed."""
        self._file.seek((number - 1) * self.page_size + at)
        self._file.write(data)
        self._file.flush()
        self.page_count = max(self.page_count, number)

    def cells(self, number: int) -> list[Cell]:
        """The cells of a b-tree page in key order; cells that make no sense are left out."""
        return list(self._cells(number, self.page(number)))

    def children(self, number: int) -> list[int]:
        """The child pages of an interior page in key order."""
        data, start = self.page(number), _content_start(number)
        if data[start] not in (INDEX_INTERIOR, TABLE_INTERIOR):
            return []
        found = [_u32(data, offset) for offset in _pointers(data, start, self.page_size) if offset + 4 <= len(data)]
        return [*found, _u32(data, start + 8)]

    def chain(self, first: int) -> list[int]:
        """The overflow pages that follow from `first`."""
        found: list[int] = []
        while 1 < first <= self.page_count and first not in found:
            found.append(first)
            first = _u32(self.page(first), 0)
        return found

    def tree(self, root: int) -> Tree:
        """Every page that can be reached from `root`."""
        interiors: list[int] = []
        leaves: list[int] = []
        overflow: list[int] = []
        seen: set[int] = set()
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if number in seen or not 1 <= number <= self.page_count:
                continue
            seen.add(number)
            kind = self.page(number)[_content_start(number)]
            if kind in (INDEX_INTERIOR, TABLE_INTERIOR):
                interiors.append(number)
                waiting.extend(reversed(self.children(number)))
            elif kind in (INDEX_LEAF, TABLE_LEAF):
                leaves.append(number)
            for cell in self.cells(number):
                overflow.extend(self.chain(cell.overflow))
        return Tree(root=root, interiors=tuple(interiors), leaves=tuple(leaves), overflow=tuple(overflow))

    def spans(self, cell: Cell) -> list[tuple[int, int, int]]:
        """Where the payload of a cell lies: (page, offset within the page, bytes), in order."""
        found = [(cell.page, cell.payload_start, cell.local_bytes)]
        left = cell.payload_bytes - cell.local_bytes
        for page in self.chain(cell.overflow):
            found.append((page, 4, min(left, self.usable - 4)))
            left -= found[-1][2]
        return found

    def payload(self, cell: Cell) -> bytes:
        """The whole payload of a cell, overflow pages included."""
        return b"".join(self.page(page)[at : at + size] for page, at, size in self.spans(cell))

    def schema(self) -> list[SchemaRow]:
        """The rows of sqlite_schema in this file; none when page 1 is not a b-tree page."""
        rows = []
        for leaf in self.tree(1).leaves:
            for cell in self.cells(leaf):
                values = record(self.payload(cell), self.encoding)
                if len(values) == 5:
                    kind, name, table, root, sql = values
                    rows.append(SchemaRow(
                        kind=str(kind), name=str(name), table=str(table), root=root if isinstance(root, int) else 0,
                        sql=sql if isinstance(sql, str) else None, cell=cell,
                    ))
        return rows

    def object(self, name: str) -> SchemaRow:
        """The schema row of a table or index with a b-tree. Raises `NotFound`."""
        for row in self.schema():
            if row.name == name and row.root:
                return row
        raise NotFound(
            f"{self.path} has no table or index {name!r}.", hint="A row that is only in the WAL is not seen here.",
            path=self.path, name=name,
        )

    def freelist(self) -> tuple[list[int], list[int]]:
        """(trunk pages, leaf pages) of the list of free pages."""
        trunks: list[int] = []
        leaves: list[int] = []
        number = _u32(self.page(1), 32)
        while 1 < number <= self.page_count and number not in trunks:
            trunks.append(number)
            data = self.page(number)
            count = min(_u32(data, 4), self.usable // 4 - 2)
            leaves.extend(_u32(data, 8 + 4 * place) for place in range(count))
            number = _u32(data, 0)
        return trunks, leaves

    def _cells(self, number: int, data: bytes) -> Iterator[Cell]:
        start = _content_start(number)
        kind = data[start]
        if kind not in (INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF):
            return
        for offset in _pointers(data, start, self.page_size):
            try:
                place = offset + (4 if kind == INDEX_INTERIOR else 0)
                size, place = varint(data, place)
                rowid = 0
                if kind == TABLE_LEAF:
                    rowid, place = varint(data, place)
            except IndexError:
                continue
            local = _local_bytes(size, self.usable, table=kind == TABLE_LEAF)
            if place + local + (4 if local < size else 0) <= len(data):
                yield Cell(
                    page=number, start=offset, payload_start=place, payload_bytes=size, local_bytes=local, rowid=rowid,
                    overflow=_u32(data, place + local) if local < size else 0,
                )


def varint(data: bytes, place: int) -> tuple[int, int]:
    """(value, offset behind it) of a variable-length integer. Raises `IndexError` at the end of the data."""
    value = 0
    for _ in range(8):
        byte = data[place]
        place += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place
    value = value << 8 | data[place]
    return value - (1 << 64) if value >> 63 else value, place + 1


def record(payload: bytes, encoding: str = "utf-8") -> list[int | float | str | bytes | None]:
    """The values of a record; none when the bytes are no record."""
    try:
        end, place = varint(payload, 0)
        kinds = []
        while place < end:
            kind, place = varint(payload, place)
            kinds.append(kind)
        values: list[int | float | str | bytes | None] = []
        for kind in kinds:
            if kind >= 12:
                size = (kind - 12) // 2
                raw = payload[place : place + size]
                values.append(raw if kind % 2 == 0 else raw.decode(encoding, errors="replace"))
            else:
                size = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[kind]
                raw = payload[place : place + size]
                if kind == 7:
                    values.append(float(struct.unpack(">d", raw)[0]))
                elif kind in (0, 8, 9):
                    values.append((None, 0, 1)[(0, 8, 9).index(kind)])
                else:
                    values.append(int.from_bytes(raw, "big", signed=True))
            place += size
        return values
    except (IndexError, struct.error):
        return []


def wal_of(path: Path | str) -> Path:
    """Where the WAL of a database is."""
    path = Path(path)
    return path.with_name(path.name + "-wal")


def frames(path: Path | str) -> list[Frame]:
    """The whole frames of the WAL beside the database `path`, in order; none when there is no WAL or no header."""
    wal = wal_of(path)
    data = wal.read_bytes() if wal.is_file() else b""
    if len(data) < WAL_HEADER_BYTES or _u32(data, 0) not in (0x377F0682, 0x377F0683):
        return []
    step = FRAME_HEADER_BYTES + _u32(data, 8)
    return [
        Frame(
            number=number, page=_u32(data, start), commit_pages=_u32(data, start + 4), start=start,
            current=data[start + 8 : start + 16] == data[16:24],
        )
        for number, start in enumerate(range(WAL_HEADER_BYTES, len(data) - step + 1, step))
    ]


def pages_in_wal(path: Path | str) -> set[int]:
    """Pages whose newest content is in the WAL, so that damage in the main file would not be seen."""
    return {frame.page for frame in frames(path) if frame.current}


def _page_size_in(header: bytes, path: Path) -> int:
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    if size < 512 or size & (size - 1):
        raise InvalidInput(
            f"The header of {path} does not tell a page size.", hint="Give page_size, such as 4096.", path=path
        )
    return size


def _content_start(number: int) -> int:
    return HEADER_BYTES if number == 1 else 0


def _pointers(data: bytes, start: int, page_size: int) -> list[int]:
    first = start + (12 if data[start] in (INDEX_INTERIOR, TABLE_INTERIOR) else 8)
    count = min(int.from_bytes(data[start + 3 : start + 5], "big"), (page_size - first) // 2)
    found = (int.from_bytes(data[first + 2 * n : first + 2 * n + 2], "big") for n in range(count))
    return [offset for offset in found if first <= offset < page_size]


def _local_bytes(size: int, usable: int, *, table: bool) -> int:
    most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
    if size <= most:
        return size
    least = (usable - 12) * 32 // 255 - 23
    kept = least + (size - least) % (usable - 4)
    return kept if kept <= most else least


def _u32(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 4], "big")
