"""The corruption library: it finds the pages that SQLite finds, changes only those, and each case is what it says."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from hermes_state.errors import InvalidInput, NotFound
from hermes_state.testing import corruption, temporary_store
from hermes_state.testing.corruption import CASES
from hermes_state.testing.pages import DatabaseFile, frames, wal_of
from hermes_state.testing.reference import reference_database
from tests.support.stores import StoreCopy, versions

SAYS = {"NotADB": apsw.NotADBError, "malformed schema": apsw.CorruptError}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "state.db"
    reference_database(path, rows=1700, wal_rows=150)
    return path


@pytest.fixture
def database(reference: Path, tmp_path: Path) -> Path:
    for suffix in ("", "-wal"):
        shutil.copy(f"{reference}{suffix}", tmp_path / f"state.db{suffix}")
    return tmp_path / "state.db"


def verdict(path: Path) -> object:
    """The first line of the page check, or the class of what SQLite raises."""
    connection = apsw.Connection(str(path))
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return connection.execute("PRAGMA quick_check(1)").fetchall()[0][0]
    except apsw.Error as error:
        return type(error)
    finally:
        connection.close()


def trees_by_sqlite(path: Path) -> dict[str, dict[str, set[int]]]:
    connection = apsw.Connection(str(path))
    try:
        found: dict[str, dict[str, set[int]]] = {}
        for name, kind, page in connection.execute("SELECT name, pagetype, pageno FROM dbstat"):
            found.setdefault(name, {"internal": set(), "leaf": set(), "overflow": set()})[kind].add(page)
        return found
    finally:
        connection.close()


def trees_by_bytes(path: Path) -> dict[str, dict[str, set[int]]]:
    with DatabaseFile(path) as file:
        roots = {"sqlite_schema": 1, **{row.name: row.root for row in file.schema() if row.root}}
        trees = {name: file.tree(root) for name, root in roots.items()}
    return {
        name: {"internal": set(tree.interiors), "leaf": set(tree.leaves), "overflow": set(tree.overflow)}
        for name, tree in trees.items()
    }


@pytest.mark.parametrize("version", versions())
def test_pages_of_every_tree_of_a_hermes_agent_file_are_those_that_sqlite_counts(
    store_copy: StoreCopy, version: str
) -> None:
    path = store_copy(version)
    assert trees_by_bytes(path) == trees_by_sqlite(path)


def test_pages_of_a_native_store_and_of_three_levels_with_overflow_are_those_that_sqlite_counts(
    tmp_path: Path, database: Path
) -> None:
    with temporary_store(tmp_path / "native") as store:
        path = store.path
    assert trees_by_bytes(path) == trees_by_sqlite(path)
    wal_of(database).unlink()
    assert trees_by_bytes(database) == trees_by_sqlite(database)


@pytest.mark.parametrize("name", CASES)
def test_each_case_makes_sqlite_say_what_the_table_says(database: Path, name: str) -> None:
    case = CASES[name]
    if "wal" not in case.needs:
        connection = apsw.Connection(str(database))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
    damage = case.apply(database, "messages", 3)
    found = verdict(database)
    if case.sqlite == "ok":
        assert found == "ok"
    elif case.sqlite in SAYS:
        assert found is SAYS[case.sqlite]
    else:
        assert found != "ok"
    assert (damage is None) == (name == "wal_control")


@pytest.mark.parametrize("name", CASES)
def test_each_case_does_the_same_twice_and_only_to_the_pages_that_it_returns(
    database: Path, tmp_path: Path, name: str
) -> None:
    again = tmp_path / "again" / "state.db"
    again.parent.mkdir()
    for path in (database, wal_of(database)):
        shutil.copy(path, again.with_name(path.name))
    before = database.read_bytes()
    damage, repeated = CASES[name].apply(database, "messages", 5), CASES[name].apply(again, "messages", 5)
    assert damage == repeated
    assert database.read_bytes() == again.read_bytes()
    assert wal_of(database).exists() == wal_of(again).exists()
    after = database.read_bytes()
    size = max(len(before), len(after)) // 4096
    changed = {
        number + 1 for number in range(size)
        if before[number * 4096 : number * 4096 + 4096] != after[number * 4096 : number * 4096 + 4096]
    }
    if "wal" not in CASES[name].needs or name.startswith("five"):
        assert damage is not None
        assert changed - {1} <= set(damage.pages)  # page 1 also says how many pages there are
    else:
        assert changed == set()


def test_a_leaf_that_the_wal_stands_for_is_not_damaged(database: Path) -> None:
    in_wal = {frame.page for frame in frames(database)}
    damage = corruption.zero_leaves(database, "messages", 100, seed=1)
    assert not in_wal & set(damage.pages)


def test_wal_checksum_is_that_of_sqlite(database: Path) -> None:
    header = wal_of(database).read_bytes()[:32]
    assert corruption.wal_checksum(header[:24], big=bool(header[3] & 1)) == header[24:]


def test_a_mismatched_wal_brings_nothing_and_another_databases_wal_is_taken_as_it_is(
    database: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    reference_database(other, rows=100, seed=9, wal_rows=50)
    given = wal_of(other).read_bytes()
    corruption.mismatch_wal(database, other)
    assert wal_of(database).read_bytes() == given


def test_an_open_store_is_refused(tmp_path: Path) -> None:
    with temporary_store(tmp_path) as store, pytest.raises(InvalidInput) as caught:
        corruption.zero_header(store.path)
    assert caught.value.message == f"This process has {tmp_path / 'state.db'} open."


def test_what_is_not_there_is_named(store_copy: StoreCopy) -> None:
    path = store_copy("0.19.0")
    for call, message in (
        (lambda: corruption.zero_root(path, "nosuch"), f"{path} has no table or index 'nosuch'."),
        (
            lambda: corruption.zero_interior(path, "messages"),
            f"{path} has 0 of the 1 pages asked for (interior of messages).",
        ),
        (lambda: corruption.cut_wal(path), f"{path} has no WAL with frames."),
        (lambda: corruption.zero_page(path, 9999), f"{path} has no page 9999."),
        (lambda: corruption.zero_header(path.with_name("none.db")), f"There is no file {path.with_name('none.db')}."),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.message == message
    corruption.zero_header(path)
    with pytest.raises(InvalidInput) as unreadable:
        corruption.zero_root(path, "messages")
    assert unreadable.value.message == f"The header of {path} does not tell a page size."


def test_a_second_schema_row_fits_into_every_shape_of_the_schema(tmp_path: Path) -> None:
    for tables in (1, 6, 30, 200):
        path = tmp_path / f"{tables}.db"
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA auto_vacuum = 2").fetchall()
        for number in range(tables):
            connection.execute(f"CREATE TABLE t{number}(a, b, c, {'d' * 400})").fetchall()
        connection.close()
        corruption.duplicate_schema_row(path, "t0")
        with DatabaseFile(path) as file:
            assert sorted(row.name for row in file.schema()).count("t0") == 2
        assert verdict(path) is apsw.CorruptError
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA writable_schema = ON").fetchall()
        assert connection.execute("PRAGMA integrity_check(9)").fetchall() == [("ok",)]
        connection.close()


@pytest.mark.parametrize("version", ["0.13.0", "0.19.0"])
def test_cases_that_a_small_hermes_agent_file_can_have_change_it(store_copy: StoreCopy, version: str) -> None:
    whole = store_copy(version)
    before = whole.read_bytes()
    tried = 0
    for case in CASES.values():
        if not case.needs & {"wal", "interior", "overflow"}:
            path = whole.with_name("damaged.db")
            shutil.copy(whole, path)
            damage = case.apply(path, "messages", 2)
            assert damage is not None
            assert path.read_bytes() != before
            assert damage.pages
            tried += 1
    assert tried == 17


def test_the_search_index_of_a_native_store_is_damaged_where_it_lies(tmp_path: Path) -> None:
    with temporary_store(tmp_path) as store:
        store.sessions.create(id="talk", source="cli")
        for number in range(60):
            store.messages.append("talk", role="user", content=f"lighthouse {number} " + "keeper of the lamp " * 30)
        store.search.catch_up(budget_seconds=5.0)
    path = tmp_path / "search.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    for how in ("blocks", "pages", "missing"):
        copy = tmp_path / f"{how}.db"
        shutil.copy(path, copy)
        damage = corruption.damage_fts(copy, how)  # type: ignore[arg-type]
        assert damage.objects[0].endswith("_data")
        assert damage.pages
        assert verdict(copy) != "ok"
