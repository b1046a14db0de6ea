"""The parser of /proc/locks: canned lines of several kernels, any table, and a live lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lockowners.errors import LockTableUnreadable
from lockowners.lock_table import LockLine, parse, parse_line, read_table, unite
from tests.lockowners.holding import holding, needs_linux

CANNED = """\
1: POSIX  ADVISORY  WRITE 10198 fe:00:2245922 120 120
2: POSIX  ADVISORY  READ 10198 fe:00:2245917 1073741826 1073742335
3: FLOCK  ADVISORY  WRITE 77 00:1a3:12 0 EOF
4: OFDLCK ADVISORY  READ -1 fe:00:2245917 1073741826 1073742335
5: POSIX  ADVISORY  WRITE 10 fe:00:5 0 EOF
5: -> POSIX  ADVISORY  WRITE 11 fe:00:5 0 EOF
5:  -> POSIX  ADVISORY  READ 12 fe:00:5 7 9
6: LEASE  ACTIVE    WRITE 13 fe:00:5 0 EOF
7: LEASE  BREAKING  UNLCK 14 fe:00:5 0 EOF
8: POSIX  MANDATORY READ  15 fe:00:5 1 1
9: POSIX  *NOINODE* WRITE 16 <none>:0 0 EOF
"""


def line(**changes: object) -> LockLine:
    fields: dict[str, object] = {
        "kind": "POSIX", "mode": "write", "pid": 1, "key": (254, 0, 5), "start": 0, "end": 0, "waiting": False
    }  # fmt: skip
    return LockLine(**{**fields, **changes})  # type: ignore[arg-type]


def test_every_kind_of_line_is_read() -> None:
    table = parse(CANNED)
    assert table.unknown == ()
    assert [(row.kind, row.mode, row.pid, row.start, row.end, row.waiting) for row in table.lines] == [
        ("POSIX", "write", 10198, 120, 120, False),
        ("POSIX", "read", 10198, 1073741826, 1073742335, False),
        ("FLOCK", "write", 77, 0, None, False),
        ("OFDLCK", "read", -1, 1073741826, 1073742335, False),
        ("POSIX", "write", 10, 0, None, False),
        ("POSIX", "write", 11, 0, None, True),
        ("POSIX", "read", 12, 7, 9, True),
        ("LEASE", "write", 13, 0, None, False),
        ("LEASE", "read", 14, 0, None, False),
        ("POSIX", "read", 15, 1, 1, False),
    ]


def test_device_numbers_are_hexadecimal_and_may_have_three_digits() -> None:
    assert parse(CANNED).lines[0].key == (0xFE, 0, 2245922)
    assert parse(CANNED).lines[2].key == (0, 0x1A3, 12)


@pytest.mark.parametrize(
    "text",
    [
        "gibberish",
        "1: POSIX ADVISORY WRITE x fe:00:1 0 0",
        "1: POSIX ADVISORY WRITE 5 fe:00 0 0",
        "1: POSIX ADVISORY APPEND 5 fe:00:1 0 0",
        "1: POSIX ADVISORY WRITE 5 fe:00:1 0 END",
        "1 POSIX ADVISORY WRITE 5 fe:00:1 0 0",
    ],
)
def test_line_that_is_not_understood_is_kept_and_not_dropped(text: str) -> None:
    assert parse(text).unknown == (text,)


def test_readings_are_united_without_doubles() -> None:
    first, second = parse(CANNED), parse("1: POSIX  ADVISORY  WRITE 9 fe:00:1 0 0\nodd\n" + CANNED)
    both = unite([first, second])
    assert set(both.lines) == set(first.lines) | set(second.lines)
    assert len(both.lines) == len(first.lines) + 1
    assert both.unknown == ("odd",)


def test_merged_range_covers_each_of_its_bytes() -> None:
    merged = line(start=120, end=122)
    assert [merged.overlaps(byte, byte) for byte in (119, 120, 121, 122, 123)] == [False, True, True, True, False]
    assert line(start=5, end=None).overlaps(1 << 40, 1 << 40)
    assert merged.overlaps(0, 1000)


def test_table_that_is_not_there_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(LockTableUnreadable) as caught:
        read_table(tmp_path)
    assert str(caught.value) == f"{tmp_path}/locks cannot be read: No such file or directory"


@needs_linux
def test_live_writer_is_in_the_table_under_the_inode_of_the_wal_index(store: Path) -> None:
    with holding("writing", store) as child:
        inode = os.stat(f"{store}-shm").st_ino
        rows = [row for row in read_table().lines if row.pid == child.pid and row.key[2] == inode]
    assert any(row.mode == "write" and row.overlaps(120, 120) for row in rows)


ROWS = st.builds(
    LockLine,
    kind=st.sampled_from(["POSIX", "OFDLCK", "FLOCK", "LEASE", "DELEG", "ACCESS"]),
    mode=st.sampled_from(["read", "write"]),
    pid=st.integers(-1, 1 << 22),
    key=st.tuples(st.integers(0, 0xFFF), st.integers(0, 0xFFFFF), st.integers(0, 1 << 63)),
    start=st.integers(0, 1 << 62),
    end=st.none() | st.integers(0, 1 << 62),
    waiting=st.booleans(),
)


def printed(number: int, row: LockLine) -> str:
    """The kernel's form of a row."""
    arrow = "-> " if row.waiting else ""
    end = "EOF" if row.end is None else row.end
    major, minor, inode = row.key
    return (
        f"{number}: {arrow}{row.kind:<6} ADVISORY  {row.mode.upper()} {row.pid} "
        f"{major:02x}:{minor:02x}:{inode} {row.start} {end}"
    )


@settings(max_examples=50)
@given(st.lists(ROWS, max_size=12))
def test_any_table_is_read_back_as_it_was_printed(rows: list[LockLine]) -> None:
    table = parse("".join(printed(number, row) + "\n" for number, row in enumerate(rows, 1)))
    assert table.lines == tuple(dict.fromkeys(rows))
    assert table.unknown == ()


@given(st.text(max_size=200))
def test_any_text_is_either_a_row_or_kept_as_unknown(text: str) -> None:
    table = parse(text)
    meant = [raw for raw in text.splitlines() if raw.strip() and "<none>" not in raw]
    assert all((parse_line(raw) in table.lines) or (raw in table.unknown) for raw in meant)


@given(ROWS, st.integers(0, 1 << 62), st.integers(0, 1 << 20))
def test_overlap_is_what_comparing_every_byte_would_say(row: LockLine, first: int, size: int) -> None:
    last = first + size
    end = row.end if row.end is not None else 1 << 63
    assume(row.start <= end)
    assert row.overlaps(first, last) == (max(row.start, first) <= min(end, last))
