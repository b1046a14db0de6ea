"""Byte ranges to SQLite's lock names: every row of the measured table."""

from __future__ import annotations

import pytest

from lockowners.lock_table import LockLine, LockTable, parse
from lockowners.sqlite_bytes import name_locks, name_range

MAIN, SHM = (254, 0, 1), (254, 0, 2)
SHARED = "READ m 1073741826 1073742335"


def rows(*short: str) -> LockTable:
    """`WRITE s 120 120`: a row on the WAL index; `m` is the main file."""
    text = ""
    for row in short:
        mode, place, start, end = row.split()
        text += f"1: POSIX ADVISORY {mode} 5 fe:00:{1 if place == 'm' else 2} {start} {end}\n"
    return parse(text)


def names(*short: str) -> list[str]:
    table = rows(*short)
    found = name_locks(table.on([MAIN]), table.on([SHM]))
    return [f"{named.lock}{'' if named.slot is None else named.slot}/{named.mode}" for named in found]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([], []),
        (["READ s 128 128", SHARED], ["open/read"]),
        (["READ s 123 123", "READ s 128 128", SHARED], ["reader0/read"]),
        (["READ s 124 124", "READ s 126 126", "READ s 128 128", SHARED], ["reader1/read", "reader3/read"]),
        (["WRITE s 120 120", "READ s 124 124", "READ s 128 128", SHARED], ["wal-writer/write", "reader1/read"]),
        (["WRITE s 121 121", "WRITE s 123 123", "READ s 128 128", SHARED], ["checkpointer/write"]),
        (["WRITE s 120 121", "WRITE s 123 123", "READ s 128 128", SHARED], ["wal-writer/write", "checkpointer/write"]),
        (["WRITE s 120 122", "READ s 128 128", SHARED], ["wal-writer/write", "recovery/write", "checkpointer/write"]),
        (["WRITE s 120 127", "READ s 128 128", SHARED], ["wal-writer/write", "recovery/write", "checkpointer/write"]),
        (["WRITE s 124 124", "READ s 128 128", SHARED], ["reader1/write"]),
        (["WRITE m 1073741826 1073742335"], ["exclusive/write"]),
        (["READ s 128 128", "WRITE m 1073741826 1073742335"], ["exclusive/write"]),
        ([SHARED], ["shared/read"]),
        (["WRITE m 1073741825 1073741825", SHARED], ["reserved/write"]),
        (["WRITE m 1073741824 1073741825", SHARED], ["pending/write"]),
        (["WRITE m 1073741824 1073742335"], ["exclusive/write"]),
        (["WRITE m 0 EOF"], ["exclusive/write"]),
    ],
)
def test_rows_of_one_process_are_named(held: list[str], expected: list[str]) -> None:
    assert names(*held) == expected


@pytest.mark.parametrize(
    ("kind", "row", "expected"),
    [
        ("shm", "WRITE s 120 120", "wal-writer"),
        ("shm", "READ s 125 125", "reader"),
        ("shm", "WRITE s 128 128", "open"),
        ("shm", "WRITE s 7 7", None),
        ("main", "READ m 1073741826 1073742335", "shared"),
        ("main", "WRITE m 1073741826 1073742335", "exclusive"),
        ("main", "WRITE m 1073741824 1073741824", "pending"),
        ("main", "WRITE m 1073741825 1073741825", "reserved"),
        ("main", "WRITE m 0 9", None),
        ("wal", "WRITE m 120 120", None),
    ],
)
def test_single_request_is_named_by_what_it_asks_for(kind: str, row: str, expected: str | None) -> None:
    line: LockLine = rows(row).lines[0]
    named = name_range(kind, line)
    assert (named.lock if named else None) == expected
