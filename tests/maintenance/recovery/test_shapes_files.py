"""The shapes of the releases are what the fixtures look like, and statements made of them give the same tables."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from hermes_state.engine.salvage import describe_table
from maintenance.recovery.known import known_shapes, known_statement, nearly_known
from tests.support.make_shapes import FOLDER, as_text, describe, shape_of
from tests.support.stores import unpack, versions


@pytest.mark.slow
@pytest.mark.parametrize("version", versions())
def test_the_committed_shape_is_that_of_the_fixture(tmp_path: Path, version: str) -> None:
    assert (FOLDER / f"{version}.json").read_text(encoding="utf-8") == as_text(shape_of(version, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("version", versions())
def test_statements_made_of_a_shape_give_the_same_tables_and_indexes(tmp_path: Path, version: str) -> None:
    said = json.loads((FOLDER / f"{version}.json").read_text(encoding="utf-8"))
    (shape,) = [shape for shape in known_shapes() if shape.release == version]
    connection = apsw.Connection(":memory:")
    for sql in (*shape.tables.values(), *shape.indexes.values()):
        connection.execute(sql).fetchall()
    connection.execute("INSERT INTO schema_version VALUES (?)", (said["schema_version"],)).fetchall()
    made = describe(connection)
    connection.close()
    assert made["indexes"] == said["indexes"]
    assert made["tables"] == said["tables"]
    unpack(version, tmp_path / "state.db")


def test_every_shape_has_tables_that_sqlite_understands() -> None:
    for shape in known_shapes():
        assert {"sessions", "messages"} <= set(shape.tables)
        for name, sql in shape.tables.items():
            assert describe_table(name, sql) is not None, (shape.release, name)


def test_of_several_releases_the_one_that_is_like_the_rest_of_the_file_is_taken() -> None:
    def columns(release: str, table: str) -> tuple[str, ...]:
        (shape,) = [shape for shape in known_shapes() if shape.release == release]
        info = describe_table(table, shape.tables[table])
        assert info is not None
        return tuple(column.name for column in info.columns)

    beside = {"sessions": columns("0.13.0", "sessions")}
    found = known_statement("messages", beside, len(columns("0.13.0", "messages")))
    assert found is not None and found[0] == "0.13.0"
    assert known_statement("messages", {}, 5) is None
    exact = columns("0.19.0", "messages")
    assert nearly_known("messages", exact) is None
    near = nearly_known("messages", (*exact[:4], "J", *exact[5:]))
    assert near is not None and near[0] == "0.19.0"
