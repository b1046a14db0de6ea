"""Returning pages: the decision with its figures, and a copy that must prove itself before it is used."""

from __future__ import annotations

import stat
from pathlib import Path

import apsw
import pytest

from hermes_state.clock import SYSTEM
from hermes_state.engine import open_exclusive, open_read
from hermes_state.errors import Corrupt
from maintenance.space.reclaim import (
    content_hash,
    decide,
    decide_online,
    leftover_copies,
    private_copy,
    verify_copy,
    via_copy,
)
from maintenance.space.sizes import Sizes, sizes
from tests.support.space import change, content, grow, thin
from tests.support.stores import StoreCopy


def found(free_pages: int) -> Sizes:
    return Sizes(file_bytes=4_096_000, wal_bytes=0, page_size=4096, page_count=1000, free_pages=free_pages)


@pytest.mark.parametrize(
    ("free_pages", "policy", "runs", "reason"),
    [
        (480, "auto", True, "48.0 % of the file is free (1.9 MiB), above the threshold of 10 %"),
        (
            10,
            "auto",
            False,
            "1.0 % of the file is free (40.0 KiB), not above the threshold of 10 %: a rewrite does not pay",
        ),
        (
            100,
            "auto",
            False,
            "10.0 % of the file is free (400.0 KiB), not above the threshold of 10 %: a rewrite does not pay",
        ),
        (10, "always", True, "1.0 % of the file is free (40.0 KiB); returned, as asked with --reclaim always"),
        (480, "never", False, "48.0 % of the file is free (1.9 MiB); not returned, as asked with --reclaim never"),
    ],
)
def test_pages_are_returned_only_above_the_threshold_or_when_asked(
    free_pages: int, policy: str, runs: bool, reason: str
) -> None:
    decision = decide(found(free_pages), policy, 10.0)  # type: ignore[arg-type]
    assert (decision.runs, decision.reason) == (runs, reason)


def test_pruning_one_small_session_does_not_make_a_rewrite_pay(store_copy: StoreCopy) -> None:
    db = store_copy()
    grow(db, sessions=6)
    change(db, "DELETE FROM messages WHERE id = (SELECT max(id) FROM messages)")
    with open_read(db) as store:
        assert decide(sizes(store), "auto", 10.0).runs is False


def test_a_rewrite_via_copy_keeps_every_row_and_the_inode_and_leaves_no_file(store_copy: StoreCopy) -> None:
    db = store_copy()
    grow(db, sessions=6)
    thin(db, keep=1)
    before, inode, size = content(db), db.stat().st_ino, db.stat().st_size
    with open_exclusive(db, foreign=True) as store:
        report = via_copy(store, SYSTEM)
        store.checkpoint("truncate")
    assert content(db) == before
    assert db.stat().st_ino == inode
    assert db.stat().st_size < 0.7 * size
    assert report.rows > 100
    assert sorted(path.name for path in db.parent.iterdir() if "compact" in path.name) == []


def test_a_copy_is_private_from_its_first_moment(store_copy: StoreCopy) -> None:
    db = store_copy()
    with private_copy(db, SYSTEM) as copy:
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert leftover_copies(db) == (copy,)
    assert leftover_copies(db) == ()


def spoiled(db: Path, copy: Path, statement: str) -> str:
    with open_exclusive(db, foreign=True) as store:
        store.vacuum_into(copy)
        connection = apsw.Connection(str(copy))
        connection.execute(statement).fetchall()
        connection.close()
        with pytest.raises(Corrupt) as raised:
            verify_copy(store, copy)
    return str(raised.value)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE sessions SET source = source || '.' WHERE rowid = 3", "the content of sessions differs"),
        ("UPDATE sessions SET source = CAST(source AS BLOB) WHERE rowid = 3", "the content of sessions differs"),
        ("DELETE FROM state_meta", "it has another number of rows"),
        ("CREATE TABLE more(x)", "its tables differ"),
        ("UPDATE sessions SET parent_session_id = 'nobody' WHERE rowid = 1", "its foreign keys differ"),
    ],
)
def test_a_copy_that_differs_in_any_way_is_not_used(store_copy: StoreCopy, statement: str, what: str) -> None:
    db = store_copy()
    change(db, "INSERT OR REPLACE INTO state_meta VALUES ('a', 'b')")
    assert spoiled(db, db.with_name("copy.db"), statement) == (
        f"The compact copy of {db} is not the same as the store: {what}. The store was not changed."
    )


def test_cells_are_hashed_as_they_are_stored(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "CREATE TABLE odd(k PRIMARY KEY, v) WITHOUT ROWID")
    seen = set()
    values = ("'a' || char(0) || 'b'", "'a'", "x'61'", "CAST(x'ff61' AS TEXT)", "9e999", "-9e999", "1", "1.0", "NULL")
    for value in values:
        change(db, f"INSERT OR REPLACE INTO odd VALUES (1, {value})")
        with open_read(db) as store:
            seen.add(content_hash(store, "odd"))
    assert len(seen) == 9


@pytest.mark.parametrize(
    ("free_pages", "line"),
    [
        (
            0,
            "Free pages: none; 0.0 % of the file is free (0 B), not above the threshold of 10 %: a rewrite does not "
            "pay.",
        ),
        (480, "Free pages returned: 48.0 % of the file is free (1.9 MiB), above the threshold of 10 %."),
    ],
)
def test_a_report_says_returned_only_of_pages_that_there_were(free_pages: int, line: str) -> None:
    assert decide(found(free_pages), "auto", 10).line() == line


def test_beside_others_nothing_is_said_to_be_returned_when_no_page_is_free() -> None:
    assert decide_online(found(0), "auto", 2).line() == "Free pages: none; nothing to return."
    assert decide_online(found(3), "auto", 2).line() == (
        "Free pages returned: in small steps, beside other processes."
    )
