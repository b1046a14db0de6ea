"""The rows that SQLite reads are the linked rows of the carver, for every kind of file."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.maintenance.recovery.carving import assert_carved_equals_selected, build, build_many, carved, linked
from tests.support.children import PROJECT

FIXTURES = sorted((PROJECT / "tests" / "fixtures").glob("*/*.db.gz"))
PAGE_SIZES = (512, 1024, 4096, 65536)


@pytest.mark.parametrize("packed", FIXTURES, ids=lambda path: path.name.removesuffix(".db.gz"))
def test_every_row_of_every_table_of_a_real_store_equals_what_sqlite_reads(packed: Path, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with gzip.open(packed, "rb") as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)

    assert_carved_equals_selected(path)


value = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-300, 300),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=40),
    st.binary(max_size=60),
    st.builds(lambda letter, size: letter * size, st.sampled_from(["x", "ж", "語", "😀"]), st.integers(300, 3000)),
    st.builds(lambda byte, size: bytes([byte]) * size, st.integers(1, 255), st.integers(300, 9000)),
)
TABLES = {
    "plain": ("a, b, c", "a, b, c"),
    "alias": ("id INTEGER PRIMARY KEY, b REAL, c TEXT, d NUMERIC, e INT, f BLOB", "b, c, d"),
    "keyed": ("a TEXT, b, c REAL, d, PRIMARY KEY (d, a)) WITHOUT ROWID --", "a, c, b, d"),
}


@pytest.mark.slow
@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(value, value, value, value), max_size=40),
    doomed=st.sets(st.integers(0, 39)),
    table=st.sampled_from(sorted(TABLES)),
    page_size=st.sampled_from(PAGE_SIZES),
    encoding=st.sampled_from(["UTF-8", "UTF-16le", "UTF-16be"]),
    auto_vacuum=st.sampled_from(["NONE", "FULL", "INCREMENTAL"]),
    wal=st.booleans(),
)
def test_linked_rows_are_what_sqlite_selects(
    rows: list[tuple[Any, ...]], doomed: set[int], table: str, page_size: int, encoding: str, auto_vacuum: str,
    wal: bool,
) -> None:
    columns, names = TABLES[table]
    width = names.count(",") + 1
    with tempfile.TemporaryDirectory() as folder:
        path = build(
            Path(folder) / "x.db",
            f"CREATE TABLE t ({columns}\n{')' if table != 'keyed' else ''}",
            pragmas=[f"page_size={page_size}", f"encoding='{encoding}'", f"auto_vacuum={auto_vacuum}"],
        )
        if wal:
            build(path, wal=True)
        insert = f"INSERT INTO t ({names}) VALUES ({', '.join('?' * width)})"
        which = "d" if table == "keyed" else "rowid"
        for first in (0, 100):
            build_many(
                path, insert,
                [
                    # A key has no NULL, and its first column tells the rows apart.
                    row[:width] if table != "keyed" else (str(row[0]), row[1], row[2], first + number)
                    for number, row in enumerate(rows)
                ],
                wal=wal,
            )  # fmt: skip
            build_many(path, f"DELETE FROM t WHERE {which} = ?", [(number,) for number in sorted(doomed)], wal=wal)

        assert_carved_equals_selected(path)


def test_rows_written_before_a_column_was_added_have_its_default(tmp_path: Path) -> None:
    path = build(
        tmp_path / "x.db",
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b)", "INSERT INTO t VALUES (1, 'old')",
        "ALTER TABLE t ADD COLUMN c TEXT DEFAULT 5", "ALTER TABLE t ADD COLUMN d REAL DEFAULT -2",
        "ALTER TABLE t ADD COLUMN e INTEGER NOT NULL DEFAULT '7'", "ALTER TABLE t ADD COLUMN f DEFAULT x'00ff'",
        "ALTER TABLE t ADD COLUMN g DEFAULT 'it''s'", "ALTER TABLE t ADD COLUMN h NUMERIC DEFAULT 1.0",
        "ALTER TABLE t ADD COLUMN i INT DEFAULT TRUE", "ALTER TABLE t ADD COLUMN j DEFAULT (-0x10)",
        "INSERT INTO t (b) VALUES ('new')",
    )  # fmt: skip

    assert_carved_equals_selected(path)


def test_generated_columns_are_given_when_they_are_stored(tmp_path: Path) -> None:
    path = build(
        tmp_path / "x.db",
        "CREATE TABLE t (a INT, v AS (a + 1), s INT GENERATED ALWAYS AS (a * 2) STORED, b TEXT)",
        "INSERT INTO t (a, b) VALUES (3, 'x')",
    )

    assert linked(carved(path), "t") == [(3, 6, "x")]


@pytest.mark.parametrize(
    "columns",
    [
        "id INTEGER PRIMARY KEY DESC, b", "id INT PRIMARY KEY, b", "id INTEGER, b, PRIMARY KEY (id DESC)",
        '"odd ""name" INTEGER PRIMARY KEY AUTOINCREMENT, [b c] VARCHAR(10, 2) DEFAULT (1 + (2)) -- a, b\n',
        "id INTEGER CONSTRAINT p PRIMARY KEY CHECK (id > 0 AND id < 900), b TEXT /* , c */ REFERENCES u (x)",
    ],
)  # fmt: skip
def test_a_primary_key_is_the_rowid_exactly_when_sqlite_says_so(columns: str, tmp_path: Path) -> None:
    path = build(tmp_path / "x.db", f"CREATE TABLE t ({columns})", "INSERT INTO t VALUES (7, 'x'), (3, 'y')")

    assert_carved_equals_selected(path)


def test_reserved_bytes_at_the_end_of_pages_are_no_content(tmp_path: Path) -> None:
    import apsw

    path = tmp_path / "x.db"
    connection = apsw.Connection(str(path))
    connection.reserve_bytes(reserve=32)
    connection.execute("PRAGMA page_size=1024").fetchall()
    connection.execute("CREATE TABLE t (a, b)").fetchall()
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, "long " * (n * 7)) for n in range(90)])
    connection.close()

    assert_carved_equals_selected(path)
    with path.open("r+b") as file:
        file.write(bytes(100))
    rows = carved(path)
    assert sorted(row.values[0] for row in rows if row.whole and row.table == "t") == list(range(90))
