"""Tables that no release knows: columns of any name, generated ones, texts behind a search index, damaged keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state.testing.page_damage import zero_header, zero_leaves
from hermes_state.testing.pages import DatabaseFile
from maintenance.recovery import Report, recover
from tests.maintenance.recovery.recovering import foreign_store, little_space

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("little_space")]
__all__ = ["little_space"]


def store_with(folder: Path, *statements: str) -> Path:
    db = foreign_store(folder, "0.19.0")
    connection = apsw.Connection(str(db))
    try:
        for statement in statements:
            connection.execute(statement).fetchall()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()
    return db


def rows(db: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(db))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def recovered(db: Path) -> Report:
    return recover(db, db.with_name("out.db"), allow_partial=True)


def replace_bytes(db: Path, old: bytes, new: bytes, *, count: int = 1) -> None:
    data = db.read_bytes()
    assert old in data and len(old) == len(new)
    db.write_bytes(data.replace(old, new, count))


LONE = "CREATE TABLE lone (what TEXT)"
NUMBERS = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 300) "


def test_an_uncertain_row_is_counted_where_a_column_is_called_key(tmp_path: Path) -> None:
    # state_meta(key, value): the notes about uncertain rows have a column of that name too.
    db = store_with(
        tmp_path, LONE, f"{NUMBERS} INSERT INTO lone SELECT 'line ' || i FROM n", "DELETE FROM state_meta",
        "INSERT INTO state_meta VALUES ('last_vacuum', CAST(x'FF31' AS TEXT))",
    )
    zero_header(db)
    replace_bytes(db, b"tablelonelone", b"\0" * 13, count=-1)
    report = recovered(db)
    meta = report.table("state_meta")
    assert (meta.rows, meta.certain, meta.uncertain) == (1, 0, 1)


def test_a_schema_statement_that_was_zeroed_in_part_stops_nothing(tmp_path: Path) -> None:
    db = store_with(tmp_path, LONE, f"{NUMBERS} INSERT INTO lone SELECT 'line ' || i FROM n")
    zero_header(db)
    replace_bytes(db, b"CREATE TABLE lone (what TEXT)", b"CREATE TABLE lone (\0\0\0\0 TEXT)")
    report = recovered(db)
    assert rows(report.output, "SELECT count(*), min(c1) FROM lone") == [(300, "line 1")]
    assert {"what": "statement_replaced", "table": "lone", "by_release": "its rows"} in report.decisions


def test_the_texts_of_a_search_index_that_no_trigger_fills_come_back(tmp_path: Path) -> None:
    db = store_with(
        tmp_path, "CREATE VIRTUAL TABLE notes USING fts5(title, body)",
        f"{NUMBERS} INSERT INTO notes(rowid, title, body) SELECT i, 'title ' || i, 'about lamps ' || i FROM n",
    )
    report = recovered(db)
    assert (report.table("notes_content").certain, report.lost) == (300, False)
    sql = "SELECT rowid, title, body FROM notes WHERE notes MATCH 'lamps' ORDER BY rowid"
    assert rows(report.output, sql) == rows(db, sql)
    assert rows(report.output, "PRAGMA integrity_check") == [("ok",)]


def test_another_virtual_table_is_said_to_be_left_out(tmp_path: Path) -> None:
    statement = "CREATE VIRTUAL TABLE boxes USING rtree(id, low, high)"
    db = store_with(tmp_path, statement, "INSERT INTO boxes VALUES (1, 2, 3)")
    report = recovered(db)
    assert report.decisions == [{
        "what": "virtual_table_left_out", "table": "boxes",
        "statement": statement,
        "sentence": "The virtual table boxes was left out; what it stores is in the tables behind it.",
    }]
    assert report.table("boxes_node").rows == 1


def test_rows_with_stored_generated_columns_are_carved(tmp_path: Path) -> None:
    db = store_with(
        tmp_path,
        "CREATE TABLE made (id INTEGER PRIMARY KEY, a INT, twice INT AS (a * 2) STORED, b TEXT, c AS (b) VIRTUAL)",
        f"{NUMBERS} INSERT INTO made(a, b) SELECT i, 'text ' || i FROM n",
    )
    sql = "SELECT id, a, twice, b, c FROM made ORDER BY id"
    before = rows(db, sql)
    zero_header(db)
    report = recovered(db)
    assert rows(report.output, sql) == before
    assert report.table("made").certain == 300


def test_a_key_of_broken_text_is_kept_in_a_table_without_rowid(tmp_path: Path) -> None:
    db = store_with(
        tmp_path, "CREATE TABLE keyed (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID",
        f"{NUMBERS} INSERT INTO keyed SELECT printf('key %05d', i), 'value ' || i FROM n",
    )
    replace_bytes(db, b"key 00002", b"key 00\xff\xfe2", count=-1)
    zero_leaves(db, "messages", 1, seed=1)
    report = recovered(db)
    keyed = report.table("keyed")
    assert (keyed.rows, keyed.certain, keyed.reasons) == (300, 299, {"text is not UTF-8": 1})
    broken = rows(report.output, "SELECT CAST(k AS BLOB), typeof(k) FROM keyed WHERE v = 'value 2'")
    assert broken == [(b"key 00\xff\xfe2", "text")]


def test_a_table_without_rowid_that_cannot_be_read_whole_makes_the_result_partial(tmp_path: Path) -> None:
    db = store_with(
        tmp_path, "CREATE TABLE keyed (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID",
        f"{NUMBERS} INSERT INTO keyed SELECT printf('key %05d', i), printf('%.40c', 'v') FROM n",
    )
    zero_leaves(db, "keyed", 1, seed=1)
    report = recover(db, tmp_path / "out.db")
    keyed = report.table("keyed")
    assert (keyed.unreadable, keyed.complete, report.lost, report.partial) == (True, False, True, True)
    assert keyed.rows < 300


def test_a_file_that_was_cut_makes_the_result_partial(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=4)
    pages = db.stat().st_size // 4096
    with db.open("r+b") as file:
        file.truncate((pages // 2) * 4096 - 1000)
    missing = pages - pages // 2 + 1
    report = recover(db, tmp_path / "out.db")
    assert report.partial and report.output == tmp_path / "out.db.partial"
    assert [said for said in report.decisions if said["what"] == "file_cut"] == [{
        "what": "file_cut", "pages": missing,
        "sentence": f"The file was cut: its header counts {missing} pages that are not there.",
    }]


def test_a_row_is_held_against_its_indexes_when_every_page_is_sound(tmp_path: Path) -> None:
    db = store_with(
        tmp_path, "CREATE TABLE pairs (a TEXT, b TEXT)", "INSERT INTO pairs VALUES ('early bird', 'x')",
        "CREATE INDEX by_a ON pairs (a)",
    )
    replace_bytes(db, b"early bird", b"early b\x3frd")
    assert rows(db, "PRAGMA quick_check") == [("ok",)]
    report = recovered(db)
    pairs = report.table("pairs")
    assert (pairs.certain, pairs.reasons) == (0, {"an index says something else": 1})


def test_two_rows_of_one_key_are_both_uncertain_and_stop_nothing(tmp_path: Path) -> None:
    db = store_with(
        tmp_path, "CREATE TABLE plain (a INT, b TEXT)", f"{NUMBERS} INSERT INTO plain SELECT i, 'text ' || i FROM n",
    )
    with DatabaseFile(db) as file:
        leaf = file.tree(file.object("plain").root).leaves[0]
        first, second = file.cells(leaf)[:2]
        assert (first.rowid, second.rowid) == (1, 2)
        page, at, _size = file.spans(second)[0]
    data = bytearray(db.read_bytes())
    where = (page - 1) * 4096 + at
    assert data[where - 1] == 2  # the rowid, before the payload
    data[where - 1] = 1
    db.write_bytes(data)
    report = recovered(db)
    plain = report.table("plain")
    assert plain.rows == 299 and plain.reasons == {"another row has the same key": 1}
    assert plain.uncertain_keys == [{"first": 1, "last": 1, "reason": "another row has the same key"}]


def test_a_cell_of_a_type_that_its_column_turns_is_uncertain_and_stops_nothing(tmp_path: Path) -> None:
    other = "UPDATE sqlite_schema SET sql = 'CREATE TABLE turned (a TEXT, b INT )' WHERE name = 'turned'"
    db = store_with(
        tmp_path, "CREATE TABLE turned (a TEXT, b BLOB)", "INSERT INTO turned VALUES ('x', 5.0)",
        "PRAGMA writable_schema = ON", other,
    )
    report = recovered(db)
    turned = report.table("turned")
    assert (turned.rows, turned.certain) == (1, 0)
    assert turned.reasons == {"the source has a value of a type that its column does not hold": 1}
