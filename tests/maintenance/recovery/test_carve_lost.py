"""Without page one, rows of real stores are given their table by their columns, or none."""

from __future__ import annotations

import gzip
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maintenance.recovery.carve.ddl import parse_index, parse_table
from maintenance.recovery.carve.fit import Fit, index_score
from maintenance.recovery.carve.lost import Lost
from maintenance.recovery.carve.rows import carve, schema_of
from maintenance.recovery.carve.shapes import ColumnShape, IndexShape, TableShape
from maintenance.recovery.format.image import Image
from tests.maintenance.recovery.carving import bag, selected, tables_of
from tests.support.children import PROJECT

# A text and numbers: so is an entry of an index. A recovery keeps rows apart that such a table fits by nothing else, or
# that say what nobody writes there, such as a factor or a JSON text that a CHECK refuses.
NARROW = frozenset({"gateway_last_seen", "pairing_failures", "token_factors", "account_usage"})
FIXTURES = sorted((PROJECT / "tests" / "fixtures").glob("*/*.db.gz"))


@pytest.mark.parametrize("with_indexes", [True, False])
@pytest.mark.parametrize("packed", FIXTURES, ids=lambda path: path.name.removesuffix(".db.gz"))
def test_no_row_of_a_real_store_is_given_a_table_of_another(packed: Path, with_indexes: bool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with gzip.open(packed, "rb") as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
    with Image.read(path) as image:
        schema = schema_of(image)
        tables = [replace(shape, root=None) for shape in schema.tables]
        indexes = [replace(shape, root=None) for shape in schema.indexes] if with_indexes else []
    truth = {name: selected(path, name) for name in tables_of(path)}
    with path.open("r+b") as file:
        file.write(bytes(4096))

    with Image.read(path) as image:
        rows = list(carve(image, tables, indexes=indexes, places=("linked", "unlinked")))

    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        if row.table is not None:
            found.setdefault(row.table, []).append(row.values)
    for name, values in found.items():
        if name in NARROW:
            assert bag(truth[name]) <= bag(values), name
            continue
        assert bag(values) == bag(truth[name]), name
    # Twins of the search indexes cannot be told apart, nor two tables of the same two columns, and two numbers say
    # nothing: a recovery that does not find the horizon of the outbox raises it. Of gateways, what is lost so is asked
    # for at the next connect, and senders repeat deliveries for less long than the horizon of home reaches back.
    nameless = {name for name, values in truth.items() if values and name not in found}
    may_be = {"shared_texts", "bodies", "outbox_horizon", "gateway_links", "home_horizon", *NARROW}
    assert all("_fts" in name or name in may_be for name in nameless)
    # Their rows are there all the same, by the tree that they are in.
    trees = Counter(row.root for row in rows if row.table is None)
    counts = Counter(trees.values())
    assert all(counts[len(truth[name])] for name in nameless if not name.endswith(("_idx", "_config")))


THREE = TableShape(
    name="three",
    columns=(
        ColumnShape(name="id", affinity="INTEGER", not_null=True),
        ColumnShape(name="a", affinity="TEXT", not_null=True),
        ColumnShape(name="b", affinity="REAL"),
        ColumnShape(name="c", affinity="INTEGER", default=5),
    ),
    rowid_column=0,
)


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ([None, "x", 1.5, 2], True), ([None, "x"], True), ([None, "x", None, None], True), ([None, "x", 3, 2], True),
        ([None], False), ([1, "x"], False), ([None, None], False), ([None, 7], False), ([None, "x", 1.5, 2, 3], False),
        ([None, "x", "1.5"], False), ([None, "x", 1.5, "12"], False), ([None, "x", 1.5, 2.0], False),
        ([None, b"x", "no number", "none"], True),
    ],
)  # fmt: skip
def test_a_record_fits_when_sqlite_could_have_stored_it(values: list[Any], fits: bool) -> None:
    fit = Fit(THREE)

    assert (fit.score(values) >= 0) == fits
    # Asked again, the answer may come from what is remembered of the types.
    assert [fit.fits(values), fit.fits(values)] == [fits, fits]


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ([None, "x", 1.5, 2], True), ([None, "x", 3, 2], True), ([None, "x", 1.5, "none"], False),
        ([None, b"x", 1.5, 2], False), ([None, "x", "no number", 2], False), ([None, "x", None, None], True),
    ],
)  # fmt: skip
def test_a_record_of_a_strict_table_has_values_of_its_types_only(values: list[Any], fits: bool) -> None:
    strict = replace(THREE, columns=tuple(replace(column, strict=True) for column in THREE.columns))
    assert (Fit(strict).score(values) >= 0) == fits


def test_a_row_is_made_as_sqlite_reads_it() -> None:
    assert Fit(THREE).row(9, [None, "x", 3]) == (9, "x", 3.0, 5)


def test_of_two_releases_of_one_table_the_tighter_is_taken_and_of_two_tables_none() -> None:
    longer = replace(THREE, columns=(*THREE.columns, ColumnShape(name="d", affinity="TEXT")))
    twin = replace(THREE, name="twin")
    rows: list[list[Any]] = [[None, "x", 1.5, 2], [None, "y", 2.5, 3]]
    lost = Lost.__new__(Lost)

    def table(*shapes: TableShape) -> Fit | None:
        return lost.table_of_rows(rows, index=False, among=[Fit(shape) for shape in shapes])

    found = table(longer, THREE)
    assert found is not None and found.shape is THREE
    assert table(THREE, twin) is None
    assert table() is None


TOKENS = (
    "CREATE TABLE t ( ) , a b INTEGER TEXT PRIMARY KEY UNIQUE DEFAULT - + 5 1e5 x'00' 'q' \"q\" [q WITHOUT ROWID CHECK "
    "CONSTRAINT NOT NULL AS STORED ' -- /* STRICT DESC 99999999999999999999 0x1F . ; INDEX ON WHERE"
)
words = st.sampled_from(TOKENS.split(" "))


@given(st.lists(words, max_size=40).map(" ".join), st.integers(0, 3000))
def test_no_sql_raises(text: str, depth: int) -> None:
    for sql in (text, f"CREATE TABLE t (a {text}", "CREATE TABLE t (a DEFAULT " + "(" * depth):
        parsed = parse_table(sql, name="t", root=2)
        assert parsed is None or len(parsed.shape.stored_order()) == len(parsed.shape.columns) > 0
        parse_index(sql, THREE, name="i")


def test_an_entry_of_an_index_ends_with_a_rowid() -> None:
    index = IndexShape(name="i", table="t", columns=("a",), affinities=("TEXT",))

    assert index_score(index, ["x", 7]) > 0
    assert index_score(index, [None, 7]) >= 0
    assert index_score(index, ["x", "y"]) < 0
    assert index_score(index, [1, 7]) < 0
    assert index_score(index, ["x"]) < 0
