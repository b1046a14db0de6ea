"""Where a row was found is said rightly: slack, free pages, lost trees, older versions in the WAL."""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state.testing.pages import DatabaseFile
from maintenance.recovery.carve.rows import CarvedRow, carve, schema_of, shapes_of
from maintenance.recovery.carve.shapes import ColumnShape, TableShape
from maintenance.recovery.format.image import Image
from tests.maintenance.recovery.carving import beside, build, build_many, carved, linked

PEOPLE = "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, born INTEGER, note TEXT)"
INSERT = "INSERT INTO people VALUES (?, ?, ?, ?)"


def person(number: int, note: str = "") -> tuple[Any, ...]:
    return number, f"name of {number}", 1900 + number, note or f"about number {number}"


def people(rows: list[CarvedRow], *places: str) -> dict[Any, CarvedRow]:
    return {row.rowid: row for row in rows if row.table == "people" and row.place in places}


def test_deleted_cells_come_from_slack_with_their_rowid_when_it_is_left(tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", PEOPLE)
    build_many(path, INSERT, [person(number) for number in range(1, 30)])
    build_many(path, "DELETE FROM people WHERE id = ?", [(7,), (8,), (20,)])

    rows = carved(path)

    assert len(people(rows, "linked")) == 26
    slack = [row for row in rows if row.place == "slack"]
    assert {row.values[1:] for row in slack} == {person(7)[1:], person(8)[1:], person(20)[1:]}
    for row in slack:
        assert row.whole == (row.rowid is not None)
        assert row.rowid is None or row.values[0] == row.rowid
        assert row.rowid is not None or row.values[0].missing == 8


def test_rows_of_freed_pages_come_from_the_free_list(tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", PEOPLE, pragmas=["page_size=512"])
    build_many(path, INSERT, [person(number) for number in range(1, 200)])
    build(path, "DELETE FROM people WHERE id > 50")

    rows = carved(path)

    assert set(people(rows, "linked")) == set(range(1, 51))
    given_up = people(rows, "freelist", "slack")
    assert all(given_up[number].values == person(number) for number in given_up if number)
    assert len(set(given_up) & set(range(51, 200))) > 130


@pytest.mark.slow
def test_a_secure_delete_leaves_nothing(tmp_path: Path) -> None:
    path = build(
        tmp_path / "x.db", PEOPLE, *[(INSERT, person(number)) for number in range(1, 200)],
        "DELETE FROM people WHERE id > 50", pragmas=["secure_delete=ON"],
    )  # fmt: skip

    assert {row.place for row in carved(path)} == {"linked"}


def test_a_leaf_whose_header_is_gone_gives_its_rows_as_slack(tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", PEOPLE)
    build_many(path, INSERT, [person(number) for number in range(1, 400)])
    before = people(carved(path), "linked")
    with DatabaseFile(path) as file:
        leaf = file.tree(file.object("people").root).leaves[1]
    with path.open("r+b") as out:
        out.seek((leaf - 1) * 4096)
        out.write(bytes(8))

    rows = people(carved(path), "slack")

    assert {number for number, row in before.items() if row.page == leaf} == set(rows)
    assert all(row.values == before[number].values and row.whole for number, row in rows.items())


def test_leaves_of_a_lost_interior_page_keep_their_table_by_columns(tmp_path: Path) -> None:
    path = build(
        tmp_path / "x.db", PEOPLE, "CREATE TABLE other (a TEXT, b TEXT)",
        *[(f"INSERT INTO other VALUES ('{n}', 'text {n}')", ()) for n in range(60)], pragmas=["page_size=512"],
    )  # fmt: skip
    build_many(path, INSERT, [person(number) for number in range(1, 400)])
    with DatabaseFile(path) as file:
        root = file.object("people").root
    with path.open("r+b") as out:
        out.seek((root - 1) * 512)
        out.write(bytes(512))

    rows = carved(path)

    assert {number: row.values for number, row in people(rows, "unlinked").items()} == {
        number: person(number) for number in range(1, 400)
    }
    assert len(linked(rows, "other")) == 60


def test_a_lost_page_that_two_tables_could_have_gets_none(tmp_path: Path) -> None:
    twin = "CREATE TABLE {} (a TEXT, b TEXT)"
    path = build(tmp_path / "x.db", twin.format("one"), twin.format("two"), pragmas=["page_size=512"])
    build_many(path, "INSERT INTO one VALUES (?, ?)", [(f"a{n}", f"b{n}") for n in range(100)])
    build_many(path, "INSERT INTO two VALUES (?, ?)", [(f"c{n}", f"d{n}") for n in range(100)])
    with DatabaseFile(path) as file:
        roots = {file.object("one").root, file.object("two").root}
    data = bytearray(path.read_bytes())
    for root in roots:
        data[(root - 1) * 512 : root * 512] = bytes(512)
    path.write_bytes(data)

    rows = carved(path)

    assert {(row.table, row.place) for row in rows} == {(None, "unlinked")}
    assert {row.values for row in rows} == {(f"a{n}", f"b{n}") for n in range(100)} | {
        (f"c{n}", f"d{n}") for n in range(100)
    }


def test_the_pointer_map_names_the_table_of_a_page_that_nothing_else_names(tmp_path: Path) -> None:
    twin = "CREATE TABLE {} (a TEXT, b TEXT)"
    path = build(
        tmp_path / "x.db", twin.format("one"), twin.format("two"), pragmas=["page_size=512", "auto_vacuum=FULL"]
    )
    for table in ("one", "two"):
        build_many(path, f"INSERT INTO {table} VALUES (?, ?)", [(f"{table} {n}", f"b{n}") for n in range(100)])
    with DatabaseFile(path) as file:
        root = file.object("two").root
    with path.open("r+b") as out:
        out.seek((root - 1) * 512)
        out.write(bytes(512))

    rows = carved(path)

    assert sum(row.table == "two" and row.place == "unlinked" for row in rows) == 100
    assert all(row.values[0].startswith(row.table or "?") for row in rows)


def test_patterns_tell_tables_of_the_same_columns_apart(tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", "CREATE TABLE one (a TEXT, b TEXT)")
    build_many(path, "INSERT INTO one VALUES (?, ?)", [(f"2026-{n}", "x") for n in range(9)])
    with path.open("r+b") as out:
        out.write(bytes(4096))
    shapes = [
        TableShape(name=name, columns=(ColumnShape(name="a", affinity="TEXT", pattern=pattern), ColumnShape(name="b")))
        for name, pattern in (("dated", r"\d{4}-\d+"), ("other", r"[a-z]+"))
    ]

    assert {row.table for row in carved(path, shapes=shapes)} == {"dated"}


def logged(path: Path) -> Path:
    """A store with three commits in its WAL: rows 1-5 in the main file, 6 added, 2 changed, 3 deleted."""
    build(path, PEOPLE)
    build_many(path, INSERT, [person(number) for number in range(1, 6)])
    build(path, wal=True)
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(INSERT, person(6)).fetchall()
    connection.execute("UPDATE people SET note = 'changed' WHERE id = 2").fetchall()
    connection.execute("DELETE FROM people WHERE id = 3").fetchall()
    connection.close()
    return path


def test_versions_in_the_wal_come_with_the_order_of_their_commits(tmp_path: Path) -> None:
    path = logged(tmp_path / "x.db")

    rows = [row for row in carved(path) if row.place in ("linked", "wal")]

    assert {(row.rowid, row.values[3], row.place, row.commit) for row in rows} == {
        *((n, f"about number {n}", "linked", 3) for n in (1, 4, 5, 6)),
        (2, "changed", "linked", 3),
        (3, "about number 3", "wal", 2),
        (2, "about number 2", "wal", 1),
    }


def test_frames_before_a_checkpoint_restart_count_backwards(tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", PEOPLE, wal=True)
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.wal_autocheckpoint(0)
    for number in range(1, 9):
        connection.execute(INSERT, person(number)).fetchall()
    connection.execute("UPDATE people SET note = 'last of the first generation' WHERE id = 4").fetchall()
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    connection.execute("UPDATE people SET note = 'second generation' WHERE id = 4").fetchall()
    connection.close()

    with Image.read(path, beside(path)) as image:
        newest, older = image.generations
        rows = list(carve(image, shapes_of(image)))

    assert [commit.number for commit in newest.commits] == [1]
    assert [commit.number for commit in older.commits][-1] == -1 and older.frames > 5
    fourth = {(row.values[3], row.commit) for row in rows if row.rowid == 4 and row.place in ("linked", "wal")}
    assert ("second generation", 1) in fourth
    # The main file has what the last commit of the first generation wrote, so it comes once, from there.
    assert {commit for note, commit in fourth if note == "about number 4"} <= set(range(-9, 0))
    assert {commit for note, commit in fourth if note.startswith("last")} == {0}


def test_frames_after_the_last_commit_belong_to_none(tmp_path: Path) -> None:
    path = logged(tmp_path / "x.db")
    size = beside(path).stat().st_size
    build_many(path, INSERT, [person(number) for number in range(50, 250)], wal=True)
    with beside(path).open("r+b") as out:
        # The last frame carries the size that ends the commit.
        out.truncate(beside(path).stat().st_size - 4096 - 24)
    assert beside(path).stat().st_size > size

    rows = carved(path)

    assert set(people(rows, "linked")) == {1, 2, 4, 5, 6}
    assert {row.commit for row in rows if row.rowid and row.rowid >= 50} == {None}


@pytest.mark.parametrize("damage", ["header", "checksum of one frame", "a byte of one page"])
def test_lenient_reading_takes_what_proves_itself(damage: str, tmp_path: Path) -> None:
    path = logged(tmp_path / "x.db")
    with beside(path).open("r+b") as out:
        if damage == "header":
            out.write(bytes(32))
        elif damage == "checksum of one frame":
            out.seek(32 + 16)
            out.write(b"wrong")
        else:
            out.seek(32 + 24 + 4000)
            out.write(b"\xff")

    strict, lenient = carved(path), carved(path, wal_rule="lenient")

    assert set(people(strict, "linked")) == {1, 2, 3, 4, 5}
    assert set(people(lenient, "linked")) == {1, 2, 4, 5, 6}
    assert people(lenient, "linked")[2].values[3] == "changed"


def test_rows_of_a_frame_that_its_checksum_contradicts_are_not_whole(tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", PEOPLE, wal=True)
    build(path, "PRAGMA wal_checkpoint(TRUNCATE)", (INSERT, person(1)), wal=True)
    data = bytearray(beside(path).read_bytes())
    data[data.index(b"about number 1")] ^= 1
    beside(path).write_bytes(data)

    (row,) = carved(path, wal_rule="lenient")

    assert (row.values, row.whole, row.place) == ((1, "name of 1", 1901, "`bout number 1"), False, "linked")
    assert [row.place for row in carved(path)] == ["wal"]


def test_a_wal_without_its_database_gives_its_rows(tmp_path: Path) -> None:
    path = logged(tmp_path / "x.db")
    with Image.read(path, beside(path)) as image:
        shapes = [replace(shape, root=None) for shape in shapes_of(image)]

    with Image.read(None, beside(path)) as image:
        rows = list(carve(image, shapes))

    assert {row.rowid for row in rows if row.table == "people"} >= {1, 2, 4, 5, 6}


def test_indexes_are_known_by_their_columns_and_by_the_key_that_follows_them(tmp_path: Path) -> None:
    path = build(
        tmp_path / "x.db", PEOPLE, "CREATE INDEX by_name ON people (name, born)",
        "CREATE TABLE keyed (a TEXT, b INT, c UNIQUE, PRIMARY KEY (b, a)) WITHOUT ROWID",
        "CREATE TABLE first (a PRIMARY KEY, b UNIQUE) WITHOUT ROWID", "INSERT INTO first VALUES (1, 2)",
        "INSERT INTO keyed VALUES ('x', 1, 'u')", pragmas=["page_size=512"],
    )  # fmt: skip
    build_many(path, INSERT, [person(number) for number in range(1, 300)])

    with Image.read(path) as image:
        assert {shape.name: (shape.table, shape.columns, shape.key_columns) for shape in schema_of(image).indexes} == {
            "by_name": ("people", ("name", "born"), ()),
            "sqlite_autoindex_keyed_1": ("keyed", ("c",), ("b", "a")),
            "sqlite_autoindex_first_2": ("first", ("b",), ("a",)),
        }


@pytest.mark.slow
def test_the_page_of_the_lock_byte_is_no_page(tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", PEOPLE, pragmas=["page_size=65536"])
    build_many(path, INSERT, [person(number) for number in range(1, 50)])
    leaf = path.read_bytes()[65536:]
    lock_page = 0x40000000 // 65536 + 1
    with path.open("r+b") as out:
        for number in (lock_page, lock_page + 1):
            out.seek((number - 1) * 65536)
            out.write(leaf)

    rows = carved(path)

    assert {row.page for row in rows} == {2, lock_page + 1}
    os.truncate(path, 0)


def test_cycles_in_trees_and_chains_end(tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", PEOPLE, pragmas=["page_size=512"])
    build_many(path, INSERT, [person(number, "long " * (300 if number == 5 else 1)) for number in range(1, 300)])
    with DatabaseFile(path) as file:
        tree = file.tree(file.object("people").root)
    data = bytearray(path.read_bytes())
    first = tree.overflow[0]
    struct.pack_into(">I", data, (first - 1) * 512, first)
    # Every interior page points to the root.
    for page in tree.interiors:
        struct.pack_into(">I", data, (page - 1) * 512 + 8, tree.root)
    path.write_bytes(data)

    found = people(carved(path), "linked", "unlinked")

    assert set(found) == set(range(1, 300))
    assert not found[5].whole
    shutil.rmtree(tmp_path)
