"""Rows in bytes that no cell pointer reaches: freed cells, what rebuilding a page left behind, pages without a header.

Invariant: bytes are a row only when a whole record header says so, its length agrees, every value has the type that its
column stores, and every text is one; a number that was overwritten is said to be missing. Such rows were deleted or
replaced once, or lost their page's header: the place `slack` says so.

Not for: tables whose columns are not known: any bytes would do. Trying a record at every byte in Python was rejected:
a regular expression for the header of a table's rows is twenty times as fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from maintenance.recovery.carve.fit import Fit
from maintenance.recovery.carve.shapes import ColumnShape
from maintenance.recovery.format.btree import Cell, Layout, PageReader, cell_head, slow_cell
from maintenance.recovery.format.record import BrokenText, Value, broken_values, serial_types, sizes

_LONG = rb"[\x80-\xff]{1,4}[\x00-\x7f]"
# Serial types that a column of each affinity holds when its declared type is kept.
_TYPES = {
    "TEXT": rb"(?:[\x0d-\x7f]|" + _LONG + rb"%s)",
    "INTEGER": rb"(?:[\x01-\x06\x08\x09]%s)",
    "REAL": rb"(?:[\x01-\x09]%s)",
    "NUMERIC": rb"(?:[\x01-\x09\x0d-\x7f]|" + _LONG + rb"%s)",
    "BLOB": rb"(?:[\x01-\x09\x0c-\x7f]|" + _LONG + rb"%s)",
}
# A pattern longer than this finds no more, and costs more.
_MOST_COLUMNS = 24
# The least that a row must hold to be told from chance: bytes of values, columns.
_LEAST_BODY, _LEAST_COLUMNS = 4, 2


class SlackReader:
    """Finds rows of one table in bytes."""

    def __init__(self, fit: Fit, layout: Layout) -> None:
        self._fit, self._layout = fit, layout
        columns = [_serial(column, number == fit.alias) for number, column in enumerate(fit.stored)]
        head = b"".join(columns[: min(max(fit.least, _LEAST_COLUMNS), _MOST_COLUMNS)])
        every = b"".join(columns[:_MOST_COLUMNS])
        self._usable = fit.count >= _LEAST_COLUMNS
        # Serial types of a record, the byte with the header's length not included.
        self._types = re.compile(head, re.DOTALL)
        self._header = re.compile(rb"[\x02-\x7f]" + head, re.DOTALL)
        self._serials = re.compile(every, re.DOTALL)
        self._after_alias = re.compile(b"".join(columns[1:_MOST_COLUMNS]), re.DOTALL) if fit.alias == 0 else None

    def rows(
        self, page: bytes, gaps: list[tuple[int, int]], freed: frozenset[int], read: PageReader
    ) -> Iterator[Cell]:
        """Rows in these ranges of a page; `freed`: where free blocks begin. A row that lost its start has no rowid."""
        if not self._usable:
            return
        for begin, end in gaps:
            if not page[begin:end].strip(b"\0"):
                continue
            at = begin
            # The first four bytes of a freed cell are overwritten with the place of the next one and its own size;
            # where free cells were joined, one such cell follows on another.
            while begin in freed and end - at >= 6:
                cell = next(self._overwritten(page, at, end), None)
                if cell is None:
                    break
                yield cell
                at = cell[4]
            place = at
            while match := self._types.search(page, place, end):
                place = match.start() + 1
                whole = self._before(page, at, match.start() - 1, end, read)
                if whole is not None:
                    yield whole
                    at = place = whole[4]

    def _before(self, page: bytes, begin: int, record: int, end: int, read: PageReader) -> Cell | None:
        """The whole cell whose record begins at `record`, if what stands before it says so."""
        if record < begin + 1:
            return None
        header = serial_types(page, record, end)
        if header is None:
            return None
        length = _as_varint(header[1] - record + sizes(header[0]))
        if self._fit.shape.without_rowid:
            start = record - len(length)
            return self._at(page, start, end, read) if page[max(start, begin) : record] == length else None
        for rowid_bytes in range(1, 10):
            start = record - rowid_bytes - len(length)
            if start < begin:
                break
            if page[start : start + len(length)] == length and _is_varint(page, record - rowid_bytes, record):
                cell = self._at(page, start, end, read)
                if cell is not None:
                    return cell
        return None

    def _at(self, page: bytes, start: int, end: int, read: PageReader) -> Cell | None:
        """The whole cell at `start`, if the bytes are one."""
        index = self._fit.shape.without_rowid
        head = cell_head(page, start, end)
        if head is None:
            return None
        payload, rowid, at = head
        if index:
            at = start + 1 if page[start] < 0x80 else next(n for n in range(start, start + 9) if page[n] < 0x80) + 1
        local = self._layout.local(payload, index=index)
        if payload < 1 or at + local + (4 if local < payload else 0) > end:
            return None
        header = serial_types(page, at, at + local)
        if header is None or header[1] - at + sizes(header[0]) != payload:
            return None
        cell = slow_cell(
            page, start, at, payload, None if index else rowid, end, self._layout, read, index=index
        )
        return cell if cell is not None and self._believable(cell[1], sizes(header[0])) else None

    def _overwritten(self, page: bytes, begin: int, end: int) -> Iterator[Cell]:
        """The row of a freed cell that begins at `begin`, without its rowid."""
        if self._fit.shape.without_rowid:
            return
        for at in range(begin + 4, min(begin + 12, end)):
            if self._header.match(page, at, end):
                header = serial_types(page, at, end)
                if header is not None and header[1] + sizes(header[0]) <= end:
                    yield from self._record(page, begin, at, header[1] + sizes(header[0]))
        # The length of the header is overwritten too; after a very short row also its first type.
        for pattern, lost in ((self._serials, b""), (self._after_alias, b"\0")):
            match = pattern.match(page, begin + 4, end) if pattern is not None else None
            if match is None or self._fit.count > _MOST_COLUMNS:
                continue
            head = lost + match.group()
            record = bytes([len(head) + 1]) + head + page[match.end() : end]
            header = serial_types(record, 0, len(record)) if len(head) < 0x7F else None
            if header is None or header[1] + sizes(header[0]) > len(record):
                continue
            length = header[1] + sizes(header[0])
            found = broken_values(record, 0, length, length, self._layout.encoding)
            if found is not None and self._believable(found[0], sizes(header[0])):
                yield None, found[0], False, begin, match.end() + length - len(head) - 1

    def _record(self, page: bytes, begin: int, at: int, end: int) -> Iterator[Cell]:
        found = broken_values(page, at, end, end - at, self._layout.encoding)
        if found is not None and self._believable(found[0], end - at):
            yield None, found[0], False, begin, end

    def _believable(self, values: list[Value], body_bytes: int) -> bool:
        if body_bytes < _LEAST_BODY or len(values) < _LEAST_COLUMNS:
            return False
        if any(isinstance(value, BrokenText) and not value.missing for value in values):
            return False
        if any(isinstance(value, str) and "\0" in value[1:] for value in values):
            return False
        return self._fit.score(values) > 0


def free_blocks(page: bytes, base: int, usable: int) -> frozenset[int]:
    """Where the free blocks of a page begin, as far as their list can be followed."""
    found: set[int] = set()
    at = page[base + 1] << 8 | page[base + 2]
    while 0 < at <= usable - 4 and at not in found:
        found.add(at)
        at = page[at] << 8 | page[at + 1]
    return frozenset(found)


def _is_varint(page: bytes, start: int, end: int) -> bool:
    """Whether page[start:end] is one varint."""
    return page[end - 1] < 0x80 and (end - start == 1 or min(page[start : end - 1]) >= 0x80)


def _as_varint(value: int) -> bytes:
    """A length as SQLite writes it."""
    found = [value & 0x7F]
    while value := value >> 7:
        found.append(value & 0x7F | 0x80)
    return bytes(reversed(found))


def gaps_of(page: bytes, base: int, cells: list[Cell], usable: int, pointers_end: int) -> list[tuple[int, int]]:
    """Ranges of a page that are neither its header, its pointers nor one of its whole cells, in order.

    A cell that is not whole may be what a wrong pointer makes of the bytes of another one.
    """
    used = sorted((cell[3], cell[4]) for cell in cells if cell[2])
    found, at = [], pointers_end
    for start, end in used:
        if start - at >= 6:
            found.append((at, start))
        at = max(at, end)
    if usable - at >= 6:
        found.append((at, usable))
    return found


def _serial(column: ColumnShape, alias: bool) -> bytes:
    """The serial types that a column of a stored row may have."""
    if alias:
        return rb"\x00"
    return _TYPES[column.affinity] % (b"" if column.not_null else rb"|\x00")
