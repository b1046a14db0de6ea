"""Sizes: free pages and objects as SQLite counts them, index segments from the structure record."""

from __future__ import annotations

import apsw
import pytest

from hermes_state.engine import open_read, open_write
from maintenance.space.segments import fulltext_tables, index_state, parse_structure
from maintenance.space.sizes import by_object, is_fulltext, sizes
from tests.support.space import change, grow, thin
from tests.support.stores import StoreCopy


def test_free_pages_are_those_that_a_rewrite_returns(store_copy: StoreCopy) -> None:
    db = store_copy()
    grow(db, sessions=6)
    thin(db, keep=2)
    with open_read(db) as store:
        found = sizes(store)
    change(db, "VACUUM")
    assert found.file_bytes == found.page_count * 4096
    assert found.free_pages > 0
    assert db.stat().st_size == pytest.approx(found.used_bytes, rel=0.03)
    assert found.free_share == pytest.approx(found.free_bytes / found.file_bytes)


def test_pages_are_counted_with_the_wal_that_is_not_copied_yet(store_copy: StoreCopy) -> None:
    db = store_copy()
    with open_write(db, foreign=True) as writer:
        with writer.transaction() as tx:
            tx.execute("CREATE TABLE later(x)")
            tx.execute("INSERT INTO later VALUES (zeroblob(200000))")
        with open_read(db) as store:
            found = sizes(store)
    assert found.wal_bytes > 200_000
    assert found.page_count * 4096 > found.file_bytes + 190_000


def test_the_tables_behind_a_search_index_count_as_the_index(store_copy: StoreCopy) -> None:
    with open_read(store_copy()) as store:
        found = by_object(store)
        pages = sizes(store)
    by_name = {item.name: item for item in found}
    assert by_name["messages_fts_trigram"].kind == "search index"
    assert by_name["messages_fts_trigram"].bytes == 241_664
    assert by_name["idx_messages_session"].kind == "index"
    assert not any(name.startswith("messages_fts_trigram_") for name in by_name)
    assert sum(item.bytes for item in found) == pages.used_bytes
    assert [item.bytes for item in found] == sorted((item.bytes for item in found), reverse=True)


def test_leftover_shadow_tables_of_a_conversion_are_named_as_such(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "CREATE TABLE fts_v22_trash_messages_fts_data(id INTEGER PRIMARY KEY, block BLOB)")
    with open_read(db) as store:
        found = {item.name: item.kind for item in by_object(store)}
    assert found["fts_v22_trash_messages_fts_data"] == "leftover"


def test_segments_and_bytes_of_an_index_come_from_one_small_row(store_copy: StoreCopy) -> None:
    with open_read(store_copy()) as store:
        assert fulltext_tables(store) == ("messages_fts", "messages_fts_trigram")
        state = index_state(store, "messages_fts_trigram")
    assert (state.segments, state.bytes, state.problem) == (13, 184_320, "")
    assert not state.merged


def test_the_newer_structure_record_of_deletable_contentless_indexes_is_understood() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE f USING fts5(a, content='', contentless_delete=1)").fetchall()
    for _ in range(5):
        connection.execute("INSERT INTO f(a) VALUES ('x y z')").fetchall()
    connection.execute("DELETE FROM f WHERE rowid = 2").fetchall()
    record = connection.execute("SELECT block FROM f_data WHERE id = 10").fetchall()[0][0]
    assert parse_structure(record) == (5, 5)


@pytest.mark.parametrize("record", [b"", b"\0\0\0\1", b"\0\0\0\1\x05\x05\x05", b"\xff" * 40])
def test_a_structure_record_that_does_not_add_up_is_unknown_not_guessed(record: bytes) -> None:
    assert parse_structure(record) is None


def test_an_index_without_its_record_says_so(store_copy: StoreCopy) -> None:
    db = store_copy()
    change(db, "DELETE FROM messages_fts_data WHERE id = 10")
    with open_read(db) as store:
        state = index_state(store, "messages_fts")
    assert (state.segments, state.problem) == (None, "it has no structure record")


def test_only_fts5_declarations_count_as_search_indexes() -> None:
    assert is_fulltext("CREATE VIRTUAL TABLE messages_fts USING fts5(\n    content\n)")
    assert is_fulltext("create virtual table f using   FTS5(a)")
    assert not is_fulltext("CREATE VIRTUAL TABLE g USING rtree(id, a, b)")
    assert not is_fulltext("CREATE TABLE using_fts5(a)")
    assert not is_fulltext(None)
