"""Pages of b-trees: where their cells are, what interior pages point to, and payloads that go on elsewhere.

Invariant: every offset is checked before it is used and every chain of pages ends (a page that comes twice ends it), so
that hostile bytes give less, never an error or a loop. Not for: what the values mean (`carve`).

Trusting a page's own free-block list to tell cells from slack was rejected: it is the first thing that damage breaks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from maintenance.recovery.format.record import Value, broken_values, signed, values, varint

INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
TREE_PAGES = frozenset((INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF))
# A page by number, and whether that is certainly the version that belongs to the row.
PageReader = Callable[[int], tuple[bytes, bool]]
# (rowid, values, whole, start, end): rowid is None in an index; start and end are offsets in the page.
Cell = tuple[int | None, list[Value], bool, int, int]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is the same for all pages of a file."""

    usable: int
    encoding: str
    # pages in the file: larger numbers are not pages
    pages: int

    @property
    def least_local(self) -> int:
        """Bytes of a long payload that stay on the page at least."""
        return (self.usable - 12) * 32 // 255 - 23

    def local(self, payload: int, *, index: bool) -> int:
        """Bytes of a payload that are on the page itself."""
        most = (self.usable - 12) * 64 // 255 - 23 if index else self.usable - 35
        if payload <= most:
            return payload
        kept = self.least_local + (payload - self.least_local) % (self.usable - 4)
        return kept if kept <= most else self.least_local


def cell_pointers(page: bytes, base: int, usable: int) -> tuple[int, ...]:
    """Offsets of the cells of a page that lie in it; those that cannot be are left out."""
    kind = page[base]
    first = base + (8 if kind >= INDEX_LEAF else 12)
    count = page[base + 3] << 8 | page[base + 4]
    # Each cell has a pointer of two bytes and at least two bytes of its own.
    count = min(count, (usable - first) // 4)
    found: tuple[int, ...] = struct.unpack_from(f">{count}H", page, first) if count > 0 else ()
    if found and (min(found) < first + 2 * count or max(found) > usable - 3):
        found = tuple(dict.fromkeys(at for at in found if first + 2 * count <= at <= usable - 3))
    return found


def children(page: bytes, base: int, usable: int, pages: int) -> list[int]:
    """Pages that an interior page points to, in order; numbers that are no page are left out."""
    found = [int.from_bytes(page[at : at + 4], "big") for at in cell_pointers(page, base, usable)]
    found.append(int.from_bytes(page[base + 8 : base + 12], "big"))
    return [number for number in found if 2 <= number <= pages]


def chain(read: PageReader, first: int, wanted: int, layout: Layout) -> tuple[bytes, bool]:
    """`wanted` bytes of an overflow chain, fewer when it breaks, and whether it is whole.

    Whole: every page is there, none comes twice, it ends exactly where the payload does, and no page of it is empty:
    a page of zeros is what a lost write leaves.
    """
    parts: list[bytes] = []
    seen: set[int] = set()
    number, left, certain = first, wanted, True
    room = layout.usable - 4
    while left > 0:
        if not 2 <= number <= layout.pages or number in seen:
            return b"".join(parts), False
        seen.add(number)
        page, sure = read(number)
        if len(page) < layout.usable:
            return b"".join(parts), False
        part = page[4 : 4 + min(left, room)]
        certain = certain and sure and (any(part[:64]) or any(page[: layout.usable]))
        parts.append(part)
        left -= len(part)
        number = int.from_bytes(page[:4], "big")
    return b"".join(parts), certain and number == 0


def table_cells(page: bytes, base: int, limit: int, layout: Layout, read: PageReader) -> tuple[list[Cell], int]:
    """The rows of a table leaf, and how many cells could not be read. `limit`: where the page's bytes end."""
    return _cells(page, cell_pointers(page, base, layout.usable), limit, layout, read)


def _cells(
    page: bytes, pointers: tuple[int, ...], limit: int, layout: Layout, read: PageReader
) -> tuple[list[Cell], int]:
    found: list[Cell] = []
    unreadable = 0
    most = layout.usable - 35
    encoding = layout.encoding
    for start in pointers:
        try:
            # Varints of up to three bytes, which nearly all are, are read here: a call costs as much as a short value.
            payload = page[start]
            at = start + 1
            if payload >= 0x80:
                second = page[at]
                if second < 0x80:
                    payload = (payload & 0x7F) << 7 | second
                    at += 1
                else:
                    payload, at = varint(page, start)
            rowid = page[at]
            at += 1
            if rowid >= 0x80:
                second, third = page[at], page[at + 1]
                if second < 0x80:
                    rowid = (rowid & 0x7F) << 7 | second
                    at += 1
                elif third < 0x80:
                    rowid = (rowid & 0x7F) << 14 | (second & 0x7F) << 7 | third
                    at += 2
                else:
                    rowid, at = varint(page, at - 1)
                    if rowid >> 63:
                        rowid -= 1 << 64
        except IndexError:
            unreadable += 1
            continue
        end = at + payload
        if payload <= most and end <= limit:
            row = values(page, at, end, encoding)
            if row is not None:
                found.append((rowid, row, True, start, end))
                continue
        cell = slow_cell(page, start, at, payload, rowid, limit, layout, read, index=False)
        if cell is None:
            unreadable += 1
        else:
            found.append(cell)
    return found, unreadable


def index_cells(page: bytes, base: int, limit: int, layout: Layout, read: PageReader) -> tuple[list[Cell], int]:
    """The entries of an index page, leaf or interior: also the rows of a WITHOUT ROWID table."""
    found: list[Cell] = []
    unreadable = 0
    skip = 4 if page[base] == INDEX_INTERIOR else 0
    for start in cell_pointers(page, base, layout.usable):
        try:
            payload, at = varint(page, start + skip)
        except IndexError:
            unreadable += 1
            continue
        cell = slow_cell(page, start, at, payload, None, limit, layout, read, index=True)
        if cell is None:
            unreadable += 1
        else:
            found.append(cell)
    return found, unreadable


def slow_cell(
    page: bytes, start: int, at: int, payload: int, rowid: int | None, limit: int, layout: Layout, read: PageReader,
    *, index: bool,
) -> Cell | None:
    """A cell with overflow pages, or one of which something is broken; None when it is no cell."""
    # A record has at least the byte with its header's length, and SQLite writes none beyond 2 GiB.
    if not 0 < payload < 1 << 31:
        return None
    local = layout.local(payload, index=index)
    end = at + local + (4 if local < payload else 0)
    if end > layout.usable:
        return None
    if end > limit:
        # The file ends within the cell: what is there is given, and said not to be whole.
        found = broken_values(page, at, max(at, min(at + local, limit)), payload, layout.encoding)
        return None if found is None else (rowid, found[0], False, start, limit)
    if local == payload:
        row = values(page, at, at + payload, layout.encoding)
        if row is not None:
            return rowid, row, True, start, end
        found = broken_values(page, at, at + payload, payload, layout.encoding)
        return None if found is None else (rowid, *found, start, end)
    # The header tells garbage from a record before a long chain is read for it.
    if page[at] < min(0x80, local) and broken_values(page, at, at + local, payload, layout.encoding) is None:
        return None
    rest, whole = chain(read, int.from_bytes(page[end - 4 : end], "big"), payload - local, layout)
    record = page[at : at + local] + rest
    if whole:
        row = values(record, 0, payload, layout.encoding)
        if row is not None:
            return rowid, row, True, start, end
    found = broken_values(record, 0, len(record), payload, layout.encoding)
    return None if found is None else (rowid, found[0], whole and found[1], start, end)


def cell_head(page: bytes, start: int, limit: int) -> tuple[int, int, int] | None:
    """(payload, rowid, offset of the record) of a table cell at `start`; None when its bytes cannot be one."""
    try:
        payload, at = varint(page, start)
        rowid, at = varint(page, at)
    except IndexError:
        return None
    return (payload, signed(rowid), at) if at < limit else None
