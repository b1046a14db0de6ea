"""Text, tables, documents, problems: nothing in a store breaks them."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.errors import Corrupt, LockTimeout, StoreHeld
from maintenance.output.documents import plain, print_json
from maintenance.output.problems import print_problem
from maintenance.output.tables import Column, print_facts, print_table
from maintenance.output.text import (
    cut,
    human_age,
    human_bytes,
    human_duration,
    human_time,
    pad,
    rfc3339,
    safe_text,
    text_width,
)

UNSAFE = [
    ("plain", "plain"),
    (None, "-"),
    (42, "42"),
    (b"\x00\x01", "<blob 2 bytes>"),
    ("two\nlines\tand\ra tab", "two lines and a tab"),
    ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
    ("\x1b]0;title\x07", "␛]0;title␇"),
    ("nul\x00mark", "nul␀mark"),
    ("\x7f\x9b31m", "␡\ufffd31m"),
    ("abc\u202edcba\u2066x\u200f", "abcdcbax"),
    ("zero\u200bwidth\ufeff", "zerowidth"),
    ("lone \ud800 half", "lone \ufffd half"),
    ("line\u2028sep\x85", "line sep "),
    ("e" + "\u0301" * 50, "e" + "\u0301" * 4),
]


@pytest.mark.parametrize(("value", "shown"), UNSAFE)
def test_cells_become_one_harmless_line(value: object, shown: str) -> None:
    assert safe_text(value) == shown


@given(st.text(), st.integers(0, 60))
def test_any_text_is_printable_and_no_wider_than_asked(text: str, width: int) -> None:
    shown = safe_text(text, width)
    assert text_width(shown) <= width
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in shown)
    shown.encode("utf-8")


def test_wide_characters_count_two_columns() -> None:
    assert text_width("日本語") == 6
    assert cut("日本語テキスト", 7) == "日本語…"
    assert cut("日本語テキスト", 6) == "日本…"
    assert pad("日本", 6) + "|" == "日本  |"
    assert text_width("e\u0301") == 1


def test_a_huge_cell_is_not_walked_to_the_end() -> None:
    assert safe_text("x" * 50_000_000, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"), (1_800_000_000.12, "2027-01-15T08:00:00.120Z"), (math.inf, None),
        (-math.inf, None), (math.nan, None), ("yesterday", None), (None, None), (1e300, None), (-1e12, None),
        (True, None), (b"1", None), (10**400, None), (-86400, "1969-12-31T00:00:00.000Z"),
    ],
)
def test_times_for_programs_are_rfc_3339_or_nothing(value: object, shown: str | None) -> None:
    assert rfc3339(value) == shown


def test_times_for_people(fake_clock) -> None:
    now = fake_clock.now()
    assert human_time(now - 60, fake_clock).startswith("today ")
    assert human_time(math.inf, fake_clock) == "?"
    assert human_time(None, fake_clock) == "-"
    assert human_age(now - 3 * 3600, fake_clock) == "3 h ago"
    assert human_age(now + 2 * 86400, fake_clock) == "in 2 d"
    assert human_age("x", fake_clock) == "?"
    assert [human_duration(value) for value in (0.25, 59, 60, 7200, 864000, 1e300)] == [
        "0.2 s", "59 s", "1 min", "2 h", "10 d", "36500 d"
    ]


def test_sizes_for_people() -> None:
    sizes = [human_bytes(value) for value in (0, 1023, 1536, 1024**2 - 1, 7 * 1024**3, 5 * 1024**4, None)]
    assert sizes == ["0 B", "1023 B", "1.5 KiB", "1.0 MiB", "7.0 GiB", "5.0 TiB", "-"]


def test_columns_line_up_under_wide_text() -> None:
    out = io.StringIO()
    columns = [Column("title"), Column("messages", right=True), "id"]
    print_table(columns, [["日本語", 5, "a"], ["x\ny", 12345, None]], out=out)
    assert out.getvalue() == "title   messages  id\n日本語         5  a\nx y        12345  -\n"


def test_free_text_has_a_widest_width_in_a_pipe_too() -> None:
    out = io.StringIO()
    rows = [["t" * 300_000, 1], ["\u65e5" * 300, 2], ["fits", 3]]
    print_table([Column("title", widest=10), Column("n", right=True)], rows, out=out)
    assert out.getvalue().splitlines() == [
        "title       n", "ttttttttt\u2026  1", "\u65e5\u65e5\u65e5\u65e5\u2026   2", "fits        3"
    ]


def test_a_terminal_gets_rows_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "30")
    out = Terminal()
    print_table(["id", Column("preview", shrinks=True)], [["0123456789", "a" * 60]], out=out)
    assert out.getvalue().splitlines()[1] == "0123456789  " + "a" * 17 + "…"


def test_facts_stand_under_each_other() -> None:
    out = io.StringIO()
    print_facts([("id", "x"), ("messages", 3), ("title", None)], out=out, indent="  ")
    assert out.getvalue() == "  id        x\n  messages  3\n  title     -\n"


def test_documents_hold_only_what_json_can_say(tmp_path: Path) -> None:
    out = io.StringIO()
    document = {"a": math.inf, "b": b"\x00", "c": {3, 1}, "d": tmp_path, "e": "\ud800", "f": (1, 2.5), 7: None}
    print_json(document, out=out)
    assert json.loads(out.getvalue()) == {
        "a": None, "b": {"blob_bytes": 1}, "c": [1, 3], "d": str(tmp_path), "e": "?", "f": [1, 2.5], "7": None
    }
    with pytest.raises(TypeError, match=r"^object has no place in a JSON document$"):
        plain(object())


def test_problem_has_error_why_and_try() -> None:
    out = io.StringIO()
    error = StoreHeld("2 processes hold it.\nPID 4242 (hermes gateway run)\nPID 7 (x\x1b[2J)", hint="Stop them.")
    assert print_problem(error, as_json=False, out=out) == 1
    assert out.getvalue() == (
        "Error: 2 processes hold it.\nWhy: PID 4242 (hermes gateway run)\n     PID 7 (x␛[2J)\nTry: Stop them.\n"
    )


def test_why_is_the_cause_or_the_meaning_of_the_class() -> None:
    out = io.StringIO()
    assert print_problem(LockTimeout("Busy.", hint="Wait."), as_json=False, out=out) == 75
    damaged = Corrupt("Damaged.", sqlite_code=11, sqlite_extended=267)
    damaged.__cause__ = ValueError("database disk image is malformed")
    assert print_problem(damaged, as_json=False, out=out) == 65
    assert out.getvalue() == (
        "Error: Busy.\nWhy: Another process kept a lock past the deadline.\nTry: Wait.\n"
        "Error: Damaged.\nWhy: SQLite said: database disk image is malformed (result code 267).\n"
    )


def test_problem_is_one_json_object(tmp_path: Path) -> None:
    out = io.StringIO()
    error = LockTimeout("Busy.", path=tmp_path, holders=(object(),), waited_seconds=1.5)
    assert print_problem(error, as_json=True, out=out) == 75
    (line,) = out.getvalue().splitlines()
    record = json.loads(line)["error"]
    assert (record["code"], record["retryable"], record["exit_code"]) == ("lock_timeout", True, 75)
    assert record["facts"]["path"] == str(tmp_path) and record["facts"]["waited_seconds"] == 1.5


def test_a_defect_keeps_its_traceback() -> None:
    out = io.StringIO()
    try:
        raise KeyError("x")
    except KeyError as error:
        assert print_problem(error, as_json=False, out=out) == 1
    assert out.getvalue().startswith("Traceback") and "Error: KeyError: 'x'\n" in out.getvalue()


def test_a_file_error_names_the_file() -> None:
    out = io.StringIO()
    assert print_problem(PermissionError(13, "Permission denied", "/x/y"), as_json=False, out=out) == 1
    assert out.getvalue() == "Error: /x/y: Permission denied.\nWhy: The operating system refused it.\n"
