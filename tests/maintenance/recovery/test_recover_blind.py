"""What a recovery says where neither SQLite nor an index tells which rows there were."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from hermes_state.testing.page_damage import zero_header
from hermes_state.testing.pages import DatabaseFile
from maintenance.recovery import recover
from maintenance.recovery.carve.order import out_of_order
from tests.maintenance.recovery.recovering import foreign_store, little_space
from tests.maintenance.recovery.test_recover_unknown_tables import NUMBERS, rows, store_with

pytestmark = pytest.mark.usefixtures("little_space")
__all__ = ["little_space"]


def schema_leaf(db: Path, name: str) -> int:
    """The page with the schema's entry of a table."""
    with DatabaseFile(db) as file:
        return next(
            leaf for leaf in file.tree(1).leaves if any(f"TABLE {name}".encode() in file.payload(cell)
                                                        for cell in file.cells(leaf))
        )


def garbage(db: Path, number: int) -> None:
    chance = random.Random(number)
    with DatabaseFile(db) as file:
        file.put(number, bytes([chance.choice((0, 0xFF)), *chance.randbytes(len(file.page(number)) - 1)]))


@pytest.mark.slow
def test_a_leaf_that_is_garbage_makes_the_run_partial_where_sql_cannot_read_the_schema(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=12)
    with DatabaseFile(db) as file:
        leaf = file.tree(file.object("messages").root).leaves[1]
        schema = file.tree(1).leaves[-1]
    garbage(db, leaf)
    garbage(db, schema)
    report = recover(db, tmp_path / "out.db")
    said = next(said for said in report.decisions if said["what"] == "pages_unreadable")
    assert report.partial and report.schema == "carved"
    assert said == {
        "what": "pages_unreadable", "pages": 2, "tables": {"messages": 1, "sqlite_schema": 1},
        "sentence": "Pages of trees could not be read whole; rows that were on them are lost: messages (1), "
        "sqlite_schema (1).",
    }


@pytest.mark.slow
def test_rows_that_only_types_give_to_a_narrow_table_are_kept_apart(tmp_path: Path) -> None:
    db = store_with(
        tmp_path, "CREATE TABLE lone (what TEXT)", f"{NUMBERS} INSERT INTO lone SELECT 'line ' || i FROM n",
        "INSERT OR REPLACE INTO state_meta VALUES ('last_vacuum', '17')",
    )
    meta = rows(db, "SELECT key, value FROM state_meta ORDER BY key")
    garbage(db, schema_leaf(db, "lone"))
    report = recover(db, tmp_path / "out.db")
    assert report.partial and report.table("state_meta").uncertain == 0
    assert rows(report.output, "SELECT key, value FROM state_meta ORDER BY key") == meta
    assert report.apart_path is not None
    apart = [json.loads(line) for line in report.apart_path.read_text().splitlines()]
    lines = [line for line in apart if str(line["values"]["c0"]).startswith("line ")]
    assert len(lines) == 300
    assert {line["reason"] for line in lines} == {"nothing but its types fits a table, and that has few columns"}


@pytest.mark.slow
def test_an_entry_whose_key_is_out_of_order_is_uncertain(tmp_path: Path) -> None:
    db = store_with(
        tmp_path, "CREATE TABLE down (k INT, v TEXT, PRIMARY KEY (k DESC)) WITHOUT ROWID",
        f"{NUMBERS} INSERT INTO down SELECT i, 'row ' || i FROM n",
    )
    whole = db.read_bytes()
    assert b"\x00\xc8row 200" in whole
    db.write_bytes(whole.replace(b"\x00\xc8row 200", struct.pack(">h", -72) + b"row 200"))
    report = recover(db, tmp_path / "out.db")
    table = report.table("down")
    assert (table.certain, table.uncertain) == (299, 1)
    assert table.reasons == {"its key is not where the order of its page has it": 1}


@pytest.mark.slow
def test_a_file_of_which_next_to_nothing_is_a_page_gives_a_partial_result(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0", grown=40)
    with DatabaseFile(db) as file:
        leaf = file.page(file.tree(file.object("messages").root).leaves[0])
    whole = db.read_bytes()
    shifted = bytearray(b"\xff" * 3 + whole)
    del shifted[len(shifted) // 4096 * 4096 :]
    shifted[40 * 4096 : 41 * 4096] = leaf
    db.write_bytes(shifted)
    report = recover(db, tmp_path / "out.db")
    said = next(said for said in report.decisions if said["what"] == "hardly_pages")
    assert report.partial and said["tree_pages"] == 1
    assert said["sentence"] == (
        f"Of {said['pages']} pages that are not empty only 1 can be read as pages of a database: what was found may be "
        "a small part of what there was."
    )


def test_strays_are_found_in_either_order_and_not_where_there_is_none() -> None:
    assert out_of_order([[9], [8], [-72], [7], [6], [5], [5]]) == {2}
    assert out_of_order([["a"], ["b"], ["B"], ["c"], [None], ["d"], ["e"], ["f"], ["g"]]) == {2, 4}
    assert out_of_order([["b"], ["A"], ["c"], ["B"], ["a"], ["C"]]) == frozenset()
    assert out_of_order([[1], [5], [2]]) == frozenset()


@pytest.mark.slow
def test_a_header_that_is_gone_alone_costs_no_row_and_is_not_partial(tmp_path: Path) -> None:
    db = foreign_store(tmp_path, "0.19.0")
    zero_header(db)
    report = recover(db, tmp_path / "out.db")
    assert not report.partial and not any(said["what"] == "pages_unreadable" for said in report.decisions)
