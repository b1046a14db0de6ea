"""Values of a record, from its bytes.

Invariant: nothing raises, whatever the bytes are; a value that is not whole is a `BrokenValue` that keeps what is there
and says how much is missing, never a shorter text or a NULL. A record whose header does not add up to its length is
said to be so.

Not for: what a value means in its table (affinity, rowid, defaults): see `carve`. Decoding values when they are asked
for was rejected: every row that is found is written out whole, and a proxy for each value cost more than the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

_DOUBLE = Struct(">d").unpack_from
# Bytes of the value of each serial type below 12; 10 and 11 are never written.
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)


@dataclass(frozen=True, kw_only=True)
class BrokenValue:
    """A value of which not everything can be read."""

    # the bytes that are there
    raw: bytes
    # bytes that are not
    missing: int = 0


@dataclass(frozen=True, kw_only=True)
class BrokenText(BrokenValue):
    """A text that is cut, or whose bytes are no text in the file's encoding."""


@dataclass(frozen=True, kw_only=True)
class BrokenBlob(BrokenValue):
    """A blob that is cut."""


@dataclass(frozen=True, kw_only=True)
class BrokenNumber(BrokenValue):
    """A number whose bytes are missing."""


Value = None | int | float | str | bytes | BrokenText | BrokenBlob | BrokenNumber
Buffer = bytes | bytearray | memoryview


def varint(data: Buffer, at: int) -> tuple[int, int]:
    """The variable-length integer at `at` and the offset behind it. IndexError beyond the end."""
    value = 0
    for number in range(8):
        byte = data[at + number]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + number + 1
    return value << 8 | data[at + 8], at + 9


def signed(value: int) -> int:
    """A 64-bit varint as the signed integer it stands for."""
    return value - (1 << 64) if value >> 63 else value


def serial_types(data: Buffer, at: int, end: int) -> tuple[list[int], int] | None:
    """Serial types of the record at `at` and the offset of its body; None when the header is not one."""
    try:
        length, place = varint(data, at)
        body = at + length
        if body > end or length < 1:
            return None
        found = []
        while place < body:
            serial = data[place]
            if serial < 0x80:
                place += 1
            else:
                serial, place = varint(data, place)
            if serial == 10 or serial == 11 or serial >> 32:
                return None
            found.append(serial)
    except IndexError:
        return None
    return (found, body) if place == body else None


def sizes(serials: list[int]) -> int:
    """Bytes of the body of a record with these serial types."""
    return sum((serial - 12) >> 1 if serial >= 12 else _SIZES[serial] for serial in serials)


def values(data: bytes, at: int, end: int, encoding: str) -> list[Value] | None:
    """All values of the record that is exactly data[at:end]; None when it is not one, or a text is broken.

    The fast path: `broken_values` says what is wrong with the others.
    """
    try:
        length = data[at]
        place = at + 1
        if length >= 0x80:
            length, place = varint(data, at)
        body = position = at + length
        found: list[Value] = []
        add = found.append
        while place < body:
            serial = data[place]
            place += 1
            if serial >= 0x80:
                serial, place = varint(data, place - 1)
            if serial >= 12:
                begin = position
                position += (serial - 12) >> 1
                if serial & 1:
                    add(str(data[begin:position], encoding))
                else:
                    add(data[begin:position])
            elif serial == 0:
                add(None)
            elif serial == 1:
                byte = data[position]
                add(byte if byte < 0x80 else byte - 0x100)
                position += 1
            elif serial == 8:
                add(0)
            elif serial == 9:
                add(1)
            elif serial == 7:
                add(_DOUBLE(data, position)[0])
                position += 8
            elif serial < 7:
                begin = position
                position += _SIZES[serial]
                add(int.from_bytes(data[begin:position], "big", signed=True))
            else:
                return None
    except (IndexError, UnicodeDecodeError, ValueError, OverflowError):
        return None
    except Exception as error:
        # struct.error has no public base but Exception.
        if type(error).__module__ != "struct":
            raise
        return None
    return found if place == body and position == end and length else None


def broken_values(data: bytes, at: int, end: int, total: int, encoding: str) -> tuple[list[Value], bool] | None:
    """Values of a record of which data[at:end] is there and `total` bytes should be, and whether each is whole.

    None when not even its header can be read, or when the header asks for more bytes than the record has.
    """
    header = serial_types(data, at, end)
    if header is None:
        return None
    serials, position = header
    if position - at + sizes(serials) > total:
        return None
    # A record may be longer than its header says only when one of the two is wrong.
    whole = position - at + sizes(serials) == total and end - at >= total
    found: list[Value] = []
    for serial in serials:
        size = (serial - 12) >> 1 if serial >= 12 else _SIZES[serial]
        raw = bytes(data[position : min(position + size, end)])
        position += size
        value = _one(serial, raw, size, encoding)
        if isinstance(value, BrokenValue):
            whole = False
        found.append(value)
    return found, whole


def _one(serial: int, raw: bytes, size: int, encoding: str) -> Value:
    missing = size - len(raw)
    if serial >= 12 and serial & 1:
        if missing:
            return BrokenText(raw=raw, missing=missing)
        try:
            return str(raw, encoding)
        except UnicodeDecodeError:
            return BrokenText(raw=raw)
    if serial >= 12:
        return BrokenBlob(raw=raw, missing=missing) if missing else raw
    if missing:
        return BrokenNumber(raw=raw, missing=missing)
    if serial == 7:
        return float(_DOUBLE(raw)[0])
    return None if serial == 0 else serial - 8 if serial >= 8 else int.from_bytes(raw, "big", signed=True)
