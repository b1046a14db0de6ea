"""Records and varints, against what SQLite writes and against bytes that nobody wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintenance.recovery.format.record import (
    BrokenBlob,
    BrokenNumber,
    BrokenText,
    broken_values,
    serial_types,
    signed,
    sizes,
    values,
    varint,
)
from tests.maintenance.recovery.carving import build, carved, linked


@pytest.mark.parametrize(
    ("data", "value", "end"),
    [
        (b"\x00", 0, 1), (b"\x7f", 127, 1), (b"\x81\x00", 128, 2), (b"\xff\x7f", 16383, 2),
        (b"\x80\x80\x80\x80\x80\x80\x80\x80\x07", 7, 9), (b"\xff" * 9, (1 << 64) - 1, 9),
    ],
)  # fmt: skip
def test_varints_have_seven_bits_a_byte_and_eight_in_the_ninth(data: bytes, value: int, end: int) -> None:
    assert varint(data, 0) == (value, end)


def test_the_largest_varint_is_minus_one() -> None:
    assert signed(varint(b"\xff" * 9, 0)[0]) == -1


def test_every_width_of_number_is_what_sqlite_reads(tmp_path: Path) -> None:
    edges = [
        edge + step for bits in (7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 62) for edge in (1 << bits, -(1 << bits))
        for step in (-1, 0, 1)
    ]  # fmt: skip
    edges += [(1 << 63) - 1, -(1 << 63), 0, 1]
    path = build(tmp_path / "x.db", "CREATE TABLE t (a)", *[("INSERT INTO t VALUES (?)", (edge,)) for edge in edges])

    assert linked(carved(path), "t") == [(edge,) for edge in edges]


RECORD = bytes([6, 1, 0, 7, 17, 18, 42]) + bytes(8) + b"ab" + b"\x01\x02\x03"


def test_a_record_is_exactly_as_long_as_its_header_says() -> None:
    assert values(RECORD, 0, len(RECORD), "utf-8") == [42, None, 0.0, "ab", b"\x01\x02\x03"]
    assert values(RECORD + b"x", 0, len(RECORD) + 1, "utf-8") is None
    assert broken_values(RECORD + b"x", 0, len(RECORD) + 1, len(RECORD) + 1, "utf-8") == (
        [42, None, 0.0, "ab", b"\x01\x02\x03"], False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("length", "wanted"),
    [
        (len(RECORD), [42, None, 0.0, "ab", b"\x01\x02\x03"]),
        (len(RECORD) - 1, [42, None, 0.0, "ab", BrokenBlob(raw=b"\x01\x02", missing=1)]),
        (len(RECORD) - 4, [42, None, 0.0, BrokenText(raw=b"a", missing=1), BrokenBlob(raw=b"", missing=3)]),
        (
            len(RECORD) - 7,
            [42, None, BrokenNumber(raw=bytes(6), missing=2), BrokenText(raw=b"", missing=2),
             BrokenBlob(raw=b"", missing=3)],
        ),
    ],
)  # fmt: skip
def test_a_cut_record_says_of_each_value_what_is_missing(length: int, wanted: list[Any]) -> None:
    assert broken_values(RECORD, 0, length, len(RECORD), "utf-8") == (wanted, length == len(RECORD))


def test_text_that_is_none_keeps_its_bytes() -> None:
    record = bytes([2, 17, 0xFF, 0xFE])

    assert values(record, 0, 4, "utf-8") is None
    assert broken_values(record, 0, 4, 4, "utf-8") == ([BrokenText(raw=b"\xff\xfe")], False)
    assert values(record, 0, 4, "utf-16-le") == ["\ufeff"]


@given(st.binary(max_size=80), st.sampled_from(["utf-8", "utf-16-le", "utf-16-be"]))
def test_no_bytes_raise(data: bytes, encoding: str) -> None:
    found = values(data, 0, len(data), encoding)
    header = serial_types(data, 0, len(data))
    broken = broken_values(data, 0, len(data), len(data), encoding)

    if found is not None:
        assert header is not None and header[1] + sizes(header[0]) == len(data)
        assert broken is not None and broken[1] and repr(broken[0]) == repr(found)
    for total in (len(data) // 2, len(data) * 2):
        broken_values(data, 0, len(data), total, encoding)
