"""The marks file: whole or not there, and never a reason to lose a pin."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.errors import MarksDamaged
from maintenance.marks import forget_sessions, marks_path, read_marks, set_mark
from tests.support.children import Children


def test_a_store_without_a_marks_file_has_no_marks(tmp_path: Path) -> None:
    marks = read_marks(tmp_path / "state.db")
    assert (marks.pinned, marks.archived, marks.path) == (
        frozenset(),
        frozenset(),
        tmp_path / "state.db.hermes-state.json",
    )
    assert set_mark(tmp_path / "state.db", ["a"], "pinned", False) == 0
    assert list(tmp_path.iterdir()) == []


def test_marks_are_set_once_cleared_and_private(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    assert set_mark(db, ["a", "b"], "pinned", True) == 2
    assert set_mark(db, ["a", "c"], "pinned", True) == 1
    assert set_mark(db, ["a"], "archived", True) == 1
    marks = read_marks(db)
    assert (marks.pinned, marks.archived) == ({"a", "b", "c"}, {"a"})
    assert os.stat(marks.path).st_mode & 0o777 == 0o600
    assert forget_sessions(db, ["a", "x"]) == 1
    assert json.loads(marks.path.read_text())["sessions"] == {"b": {"pinned": True}, "c": {"pinned": True}}


def test_what_we_do_not_know_is_kept(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    marks_path(db).write_text('{"format": 1, "note": [1], "sessions": {"a": {"color": "red", "pinned": true}}}')
    set_mark(db, ["a"], "pinned", False)
    assert json.loads(marks_path(db).read_text()) == {"format": 1, "note": [1], "sessions": {"a": {"color": "red"}}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not valid JSON."),
        (b'{"sessions": {"a"', "is not valid JSON."),
        (b"[]", "does not have the shape of one."),
        (b'{"sessions": {"a": true}}', "does not have the shape of one."),
        (b"\xff\xfe", "cannot be read."),
        (b'{"format": 2, "sessions": {}}', "has format 2; this program knows 1."),
    ],
)
def test_a_damaged_file_stops_reading_and_writing(tmp_path: Path, content: bytes, message: str) -> None:
    db = tmp_path / "state.db"
    marks_path(db).write_bytes(content)
    for attempt in (lambda: read_marks(db), lambda: set_mark(db, ["a"], "pinned", True)):
        with pytest.raises(MarksDamaged) as caught:
            attempt()
        assert caught.value.message == f"The marks file {marks_path(db)} {message}"
    assert marks_path(db).read_bytes() == content


@pytest.mark.parametrize("value", ['"yes"', "1", '"true"', "null", "[]"])
@pytest.mark.parametrize("mark", ["pinned", "archived"])
def test_a_mark_that_is_neither_true_nor_false_stops_reading_and_writing(
    tmp_path: Path, mark: str, value: str
) -> None:
    db = tmp_path / "state.db"
    marks_path(db).write_text(f'{{"format": 1, "sessions": {{"a": {{"{mark}": {value}}}}}}}')
    for attempt in (lambda: read_marks(db), lambda: set_mark(db, ["b"], "pinned", True)):
        with pytest.raises(MarksDamaged) as caught:
            attempt()
        assert caught.value.message == (
            f"The marks file {marks_path(db)} says {value} for '{mark}' of session 'a'; that is neither true nor false."
        )
        assert (caught.value.facts["session_id"], caught.value.facts["mark"]) == ("a", mark)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (_pipe, "is a pipe, not a file."),
        (_link_to_pipe, "is a pipe, not a file."),
        (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file."),
        (Path.mkdir, "is a folder, not a file."),
        (lambda path: path.symlink_to("nowhere"), "is a link to something that is not there."),
        (lambda path: path.symlink_to(path.name), "cannot be reached: Too many levels of symbolic links."),
    ],
)
def test_what_is_no_file_is_refused_before_it_is_opened(
    tmp_path: Path, make: Callable[[Path], None], problem: str
) -> None:
    db = tmp_path / "state.db"
    make(marks_path(db))
    attempts = (
        lambda: read_marks(db),
        lambda: set_mark(db, ["a"], "pinned", True),
        lambda: set_mark(db, ["a"], "pinned", False),
    )
    for attempt in attempts:
        with pytest.raises(MarksDamaged) as caught:
            attempt()
        assert caught.value.message == f"The marks file {marks_path(db)} {problem}"


def test_a_link_to_a_marks_file_is_followed(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    (tmp_path / "kept elsewhere.json").write_text('{"format": 1, "sessions": {"a": {"pinned": true}}}')
    marks_path(db).symlink_to("kept elsewhere.json")
    assert read_marks(db).pinned == {"a"}


def test_a_link_to_the_store_has_the_same_marks(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link.db"
    link.symlink_to(tmp_path / "state.db")
    set_mark(link, ["a"], "pinned", True)
    assert read_marks(tmp_path / "state.db").pinned == {"a"}


WRITER = """
import sys
from pathlib import Path
from maintenance.marks import set_mark
for number in range(20):
    set_mark(Path(sys.argv[1]), [f"{sys.argv[2]}-{number}"], "pinned", True)
"""


@pytest.mark.slow
def test_two_writers_lose_no_mark(tmp_path: Path, child: Children) -> None:
    writers = [child(WRITER, tmp_path / "state.db", name) for name in ("x", "y")]
    for writer in writers:
        assert writer.wait() == 0
    assert len(read_marks(tmp_path / "state.db").pinned) == 40
