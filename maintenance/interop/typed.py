"""One cell of a foreign table with its exact SQLite type, in Python and in JSON.

Invariant: a cell that is read here, written as JSON and read back is the same cell, bit for bit: text is a `str`, text
that is not UTF-8 is `BadText`, a BLOB is `bytes`, numbers keep their type, infinities included. In JSON the four plain
kinds are themselves, and the rest are objects with one key that begins with `$`.

Not for: showing cells to people (`dialects.cells`). `typeof()` beside every cell was rejected: it doubles the values of
a row; one bit a column says the only thing that is not plain, which bytes are a BLOB.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from maintenance.quoting import quoted

_BITS = 60  # columns that one integer of flags can speak for
TEXT, BYTES, REAL = "$text", "$bytes", "$real"


@dataclass(frozen=True, slots=True)
class BadText:
    """A text cell whose bytes are not UTF-8."""

    data: bytes

    def __str__(self) -> str:
        return self.data.decode("utf-8", errors="replace")


Cell = str | BadText | bytes | int | float | None


class CellReader:
    """SQL for the cells of some columns, and what turns a row of it back into cells."""

    def __init__(self, columns: Sequence[str], alias: str = "") -> None:
        self.columns = tuple(columns)
        names = [f"{alias}{quoted(column)}" for column in columns]
        values = [f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name})" for name in names]
        flags = []
        for start in range(0, len(names), _BITS):
            part = names[start : start + _BITS]
            flags.append(" | ".join(f"((typeof({name}) = 'blob') << {bit})" for bit, name in enumerate(part)))
        # The flags first: their place does not depend on the number of columns.
        self.flag_count = len(flags)
        self.sql = ", ".join([*flags, *values])
        self.width = self.flag_count + len(names)

    def cells(self, row: Sequence[Any]) -> list[Cell]:
        """The cells of one row; `row` may have more values behind ours."""
        found = list(row[self.flag_count : self.width])
        for number, value in enumerate(found):
            if type(value) is bytes and not self.is_blob(row, number):
                try:
                    found[number] = value.decode("utf-8")
                except UnicodeDecodeError:
                    found[number] = BadText(value)
        return found

    def is_blob(self, row: Sequence[Any], number: int) -> bool:
        """Whether the bytes in this column of the row are a BLOB, and no text."""
        return bool(row[number // _BITS] >> number % _BITS & 1)

    def named(self, row: Sequence[Any]) -> dict[str, Cell]:
        """The cells of one row by column."""
        return dict(zip(self.columns, self.cells(row), strict=True))


def to_json(cell: Cell) -> Any:
    """A cell as a JSON value."""
    if isinstance(cell, BadText):
        return {TEXT: base64.b64encode(cell.data).decode("ascii")}
    if isinstance(cell, bytes):
        return {BYTES: base64.b64encode(cell).decode("ascii")}
    if isinstance(cell, float) and cell - cell != 0:
        return {REAL: "Infinity" if cell > 0 else "-Infinity"}
    return cell


def from_json(value: Any) -> Cell:
    """The cell that `to_json` wrote. A value that it never writes (a list, another object) is its JSON text."""
    if isinstance(value, dict) and len(value) == 1:
        (kind, said), = value.items()
        if kind == TEXT and isinstance(said, str):
            return BadText(base64.b64decode(said))
        if kind == BYTES and isinstance(said, str):
            return base64.b64decode(said)
        if kind == REAL and isinstance(said, str):
            return float(said)
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    if isinstance(value, bool):
        return int(value)
    cell: Cell = value
    return cell


def same(one: Cell, other: Cell) -> bool:
    """Whether two cells are the same value of the same type."""
    return type(one) is type(other) and one == other


def key_of(cell: Cell) -> Cell | tuple[str, bytes]:
    """A cell as a dictionary key: text and bytes of equal content, or 1 and 1.0, stay apart."""
    if isinstance(cell, bytes):
        return ("bytes", cell)
    if isinstance(cell, float):
        return ("real", repr(cell).encode("ascii"))
    return cell


def canonical(cells: Mapping[str, Cell], columns: Iterable[str]) -> bytes:
    """Bytes that are equal only for equal rows: each cell as its type, its length and its content."""
    return b"".join(_canonical_parts(cells[column] for column in columns))


def digest_of(cells: Iterable[Cell]) -> bytes:
    """A hash of what `canonical` gives, 16 bytes, without that in memory as one piece."""
    found = blake2b(digest_size=16)
    for part in _canonical_parts(cells):
        found.update(part)
    return found.digest()


def _canonical_parts(cells: Iterable[Cell]) -> Iterator[bytes]:
    for cell in cells:
        if cell is None:
            yield b"n"
        elif isinstance(cell, str):
            text = cell.encode("utf-8")
            yield b"t%d:" % len(text)
            yield text
        elif isinstance(cell, BadText):
            yield b"t%d:" % len(cell.data)
            yield cell.data
        elif isinstance(cell, bytes):
            yield b"b%d:" % len(cell)
            yield cell
        else:
            yield f"{type(cell).__name__}{cell!r};".encode("ascii")


def default_of(literal: str | None) -> tuple[bool, Cell]:
    """A column's DEFAULT clause: whether it is a plain literal, and its value. No clause is NULL."""
    if literal is None or literal.upper() == "NULL":
        return True, None
    text = literal.strip()
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    if len(text) >= 2 and text[0] == text[-1] == "'":
        inner = text[1:-1]
        return ("'" not in inner.replace("''", "")), inner.replace("''", "'")
    if text.lstrip("+-").isascii() and text.lstrip("+-").isdigit():
        return True, int(text)
    return False, None
