"""The delete ledger: every line whole, none ever lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.errors import LedgerDamaged
from maintenance.ledger import append, ledger_path, new_entry, read
from tests.support.children import Children


def entry(run: str = "r", sessions: tuple[str, ...] = ("a", "b")) -> object:
    return new_entry(
        verb="sessions prune",
        reason="older than 90 days",
        filters={"sources": ["cron"]},
        sessions=sessions,
        messages=7,
        run=run,
        now=1_800_000_000.5,
    )


def test_a_line_says_when_who_why_and_what(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    path = append(db, entry())  # type: ignore[arg-type]
    [record] = read(db)
    assert path == ledger_path(db) == tmp_path / "state.db.hermes-state.ledger.jsonl"
    assert (record["pid"], record["uid"]) == (os.getpid(), os.getuid())
    assert isinstance(record["command"], list) and isinstance(record["user"], str)
    known = {key: record[key] for key in record if key not in ("pid", "uid", "user", "command")}
    assert known == {
        "at": "2027-01-15T08:00:00.500Z",
        "verb": "sessions prune",
        "reason": "older than 90 days",
        "filters": {"sources": ["cron"]},
        "run": "r",
        "session_count": 2,
        "message_count": 7,
        "sessions": ["a", "b"],
    }
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_line_that_a_crash_cut_short_is_closed_by_the_next_and_skipped(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    append(db, entry("one"))  # type: ignore[arg-type]
    with ledger_path(db).open("ab") as ledger:
        ledger.write(b'{"at": "2027-')
    assert [record["run"] for record in read(db)] == ["one"]
    append(db, entry("two"))  # type: ignore[arg-type]
    assert [record["run"] for record in read(db)] == ["one", "two"]
    assert ledger_path(db).read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (os.mkfifo, "is a pipe, not a file."),
        (Path.mkdir, "is a folder, not a file."),
        (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file."),
        (lambda path: path.symlink_to("nowhere"), "is a link to something that is not there."),
    ],
)
def test_a_ledger_that_is_no_file_is_refused_before_it_is_opened(
    tmp_path: Path, make: Callable[[Path], None], problem: str
) -> None:
    db = tmp_path / "state.db"
    make(ledger_path(db))
    for attempt in (lambda: append(db, entry()), lambda: list(read(db))):  # type: ignore[arg-type]
        with pytest.raises(LedgerDamaged) as caught:
            attempt()
        assert caught.value.message == f"The delete ledger {ledger_path(db)} {problem}"
        assert caught.value.hint == "Move it away; nothing is deleted without a record of it."


def test_a_ledger_behind_a_link_is_not_followed(tmp_path: Path) -> None:
    db = tmp_path / "state.db"
    (tmp_path / "elsewhere").touch()
    ledger_path(db).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerDamaged) as caught:
        append(db, entry())  # type: ignore[arg-type]
    assert caught.value.message == (
        f"The delete ledger {ledger_path(db)} cannot be written: Too many levels of symbolic links."
    )
    assert (tmp_path / "elsewhere").read_bytes() == b""


WRITER = """
import sys
from pathlib import Path
from maintenance.ledger import append, new_entry
for number in range(10):
    append(Path(sys.argv[1]), new_entry(verb="v", reason="r", filters={}, sessions=["s" * 500] * 40, messages=0,
           run=f"{sys.argv[2]}{number}", now=0.0))
"""


@pytest.mark.slow
def test_two_writers_never_mix_their_lines(tmp_path: Path, child: Children) -> None:
    writers = [child(WRITER, tmp_path / "state.db", name) for name in ("x", "y")]
    for writer in writers:
        assert writer.wait() == 0
    assert len({record["run"] for record in read(tmp_path / "state.db")}) == 20
