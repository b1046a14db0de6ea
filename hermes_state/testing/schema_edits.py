"""Changes of sqlite_schema that SQLite would refuse, made in the bytes of a closed file.

Invariant: page 1 and the leaves of sqlite_schema stay well-formed b-tree pages: only what the rows say is wrong, so
that a test meets the error it asked for and no other.

Not for: stores in use. `PRAGMA writable_schema` was rejected: it opens the file, touches the change counter and
cannot be used where the schema cannot be parsed any more.
"""

from __future__ import annotations

from hermes_state.errors import InvalidInput
from hermes_state.testing.pages import HEADER_BYTES, TABLE_INTERIOR, TABLE_LEAF, DatabaseFile, SchemaRow

_SIZE_IN_PAGES = 28


def add_copy(file: DatabaseFile, row: SchemaRow) -> list[int]:
    """Append a second copy of a schema row, pages for it included; the pages that changed."""
    rows = file.schema()
    last = rows[-1].cell
    new = _cell_bytes(file, row, max(each.cell.rowid for each in rows) + 1)
    cells = [_raw(file, each) for each in rows if each.cell.page == last.page]
    if _fits(file, last.page, [*cells, new]):
        _write_leaf(file, last.page, [*cells, new])
        return [last.page]
    if last.page == 1:
        left, right = _new_page(file), _new_page(file)
        _write_leaf(file, left, cells)
        _write_leaf(file, right, [new])
        separator = left.to_bytes(4, "big") + _varint(last.rowid)
        _write_page(file, 1, TABLE_INTERIOR, [separator], right)
        return [1, left, right]
    parent = next(
        page for page in file.tree(1).interiors if last.page in file.children(page)
    )
    right = _new_page(file)
    _write_leaf(file, right, [new])
    separators = _separators(file, parent)
    separators.append(last.page.to_bytes(4, "big") + _varint(last.rowid))
    if not _fits(file, parent, separators, interior=True):
        raise InvalidInput(
            f"The schema of {file.path} has no room for one more row.", hint="Use a file with fewer tables.",
            path=file.path,
        )
    _write_page(file, parent, TABLE_INTERIOR, separators, right)
    return [parent, right]


def remove(file: DatabaseFile, row: SchemaRow) -> list[int]:
    """Take a schema row out; what it named stays in the file. The pages that changed."""
    page = row.cell.page
    cells = [_raw(file, each) for each in file.schema() if each.cell.page == page and each.cell != row.cell]
    _write_leaf(file, page, cells)
    return [page]


def _raw(file: DatabaseFile, row: SchemaRow) -> bytes:
    return file.page(row.cell.page)[row.cell.start : row.cell.end]


def _cell_bytes(file: DatabaseFile, row: SchemaRow, rowid: int) -> bytes:
    """A cell with the payload of `row`; a payload that overflows shares the pages of the first one."""
    cell = row.cell
    return _varint(cell.payload_bytes) + _varint(rowid) + file.page(cell.page)[cell.payload_start : cell.end]


def _separators(file: DatabaseFile, parent: int) -> list[bytes]:
    data = file.page(parent)
    start = HEADER_BYTES if parent == 1 else 0
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    found = []
    for number in range(count):
        offset = int.from_bytes(data[start + 12 + 2 * number : start + 14 + 2 * number], "big")
        end = offset + 4
        while data[end] & 0x80:
            end += 1
        found.append(data[offset : end + 1])
    return found


def _fits(file: DatabaseFile, page: int, cells: list[bytes], *, interior: bool = False) -> bool:
    head = (HEADER_BYTES if page == 1 else 0) + (12 if interior else 8)
    return head + sum(max(len(cell), 4) + 2 for cell in cells) <= file.usable


def _write_leaf(file: DatabaseFile, page: int, cells: list[bytes]) -> None:
    _write_page(file, page, TABLE_LEAF, cells, None)


def _write_page(file: DatabaseFile, page: int, kind: int, cells: list[bytes], rightmost: int | None) -> None:
    start = HEADER_BYTES if page == 1 else 0
    data = bytearray(file.page_size)
    if page == 1:
        data[:HEADER_BYTES] = file.page(1)[:HEADER_BYTES]
    place, pointers = file.usable, []
    for cell in cells:
        place -= max(len(cell), 4)
        data[place : place + len(cell)] = cell
        pointers.append(place)
    data[start] = kind
    data[start + 3 : start + 5] = len(cells).to_bytes(2, "big")
    data[start + 5 : start + 7] = (place & 0xFFFF).to_bytes(2, "big")
    first = start + 8
    if rightmost is not None:
        data[start + 8 : start + 12] = rightmost.to_bytes(4, "big")
        first = start + 12
    for number, pointer in enumerate(pointers):
        data[first + 2 * number : first + 2 * number + 2] = pointer.to_bytes(2, "big")
    file.put(page, bytes(data))


def _new_page(file: DatabaseFile) -> int:
    """A zero page behind the end, known to the header and to the pointer map of an auto-vacuum file."""
    number = file.page_count + 1
    per_map = file.usable // 5
    if file.auto_vacuum and (number - 2) % (per_map + 1) == 0:
        file.put(number, bytes(file.page_size))  # a page of the pointer map itself
        number += 1
    file.put(number, bytes(file.page_size))
    if file.auto_vacuum:
        map_page = (number - 2) // (per_map + 1) * (per_map + 1) + 2
        file.put(map_page, b"\x05" + (1).to_bytes(4, "big"), at=5 * (number - map_page - 1))  # child of page 1
    file.put(1, file.page_count.to_bytes(4, "big"), at=_SIZE_IN_PAGES)
    return number


def _varint(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F | 0x80)
    return bytes(reversed(groups))
