"""An image shows the pages that SQLite would read, and finds out what a lost header would have said."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maintenance.recovery.format.image import Image
from tests.maintenance.recovery.carving import (
    assert_carved_equals_selected,
    beside,
    build,
    build_many,
    carved,
    selected,
)


def filled(path: Path, *pragmas: str, rows: int = 120) -> Path:
    build(path, "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INT)", pragmas=list(pragmas))
    build_many(path, "INSERT INTO t VALUES (?, ?, ?)", [(n, f"text of row {n} " * (n % 9), n) for n in range(rows)])
    return path


@pytest.mark.parametrize("page_size", [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.parametrize("auto_vacuum", ["NONE", "INCREMENTAL"])
def test_a_lost_header_is_found_out_from_the_pages(
    page_size: int, encoding: str, auto_vacuum: str, tmp_path: Path
) -> None:
    pragmas = (f"page_size={page_size}", f"encoding='{encoding}'", f"auto_vacuum={auto_vacuum}")
    path = filled(tmp_path / "x.db", *pragmas, rows=600)
    with Image.read(path) as sound:
        assert sound.header_whole
        wanted = (page_size, sound.encoding, sound.usable, sound.header.auto_vacuum)
    with path.open("r+b") as file:
        file.write(bytes(100))

    with Image.read(path) as image:
        assert (image.page_size, image.encoding, image.usable, image.header.auto_vacuum) == wanted
        assert not image.header_whole
    assert len([row for row in carved(path) if row.table == "t" and row.place == "linked"]) == 600


@pytest.mark.parametrize(
    ("offset", "byte"), [(59, 3), (20, 40), (17, 2), (16, 2), (55, 9), (0, 0)],
    ids=["encoding", "reserved bytes", "page size", "page size high", "auto_vacuum", "magic"],
)  # fmt: skip
def test_one_wrong_byte_of_the_header_is_put_right(offset: int, byte: int, tmp_path: Path) -> None:
    path = filled(tmp_path / "x.db", rows=600)
    before = [row.values for row in carved(path)]
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes([byte]))

    assert [row.values for row in carved(path)] == before
    with Image.read(path) as image:
        assert not image.header_whole


def test_an_empty_and_a_missing_file_have_no_pages(tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()

    for path in (empty, tmp_path / "missing.db", None):
        with Image.read(path, tmp_path / "missing-wal") as image:
            assert (image.page_count, image.page(1), image.page_types()) == (0, b"", bytearray(1))
    assert carved(empty) == []


def test_a_file_cut_in_a_page_is_padded_and_says_so(tmp_path: Path) -> None:
    path = filled(tmp_path / "x.db")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 1000)

    with Image.read(path) as image:
        last = image.page_count
        assert (last * 4096, image.real_bytes(last)) == (size, 3096)
        assert image.page(last)[3096:] == bytes(1000)
        assert image.page(last + 1) == image.page(0) == b""


def test_rows_that_the_cut_reaches_are_not_whole_and_the_others_are(tmp_path: Path) -> None:
    path = filled(tmp_path / "x.db", rows=100)
    before = {row.rowid: row for row in carved(path)}
    last = max(row.page for row in before.values())
    with path.open("r+b") as file:
        file.truncate(last * 4096 - 300)

    after = {row.rowid: row for row in carved(path) if row.rowid is not None}

    assert all(after[key].values == row.values for key, row in before.items() if row.page != last)
    on_last = [after[key] for key, row in before.items() if row.page == last and key in after]
    assert any(row.whole for row in on_last)
    assert all(not row.whole or row.values == before[row.rowid].values for row in on_last)


def test_the_image_grows_and_shrinks_with_the_commits_of_the_wal(tmp_path: Path) -> None:
    path = filled(tmp_path / "x.db", "auto_vacuum=FULL", rows=900)
    build(path, wal=True)
    build(path, "PRAGMA wal_checkpoint(TRUNCATE)", wal=True)
    build(path, "DELETE FROM t WHERE id > 100", wal=True)

    with Image.read(path, beside(path)) as image:
        assert image.size_in_pages < image.file_pages == image.page_count
        assert [(commit.number, commit.visible) for commit in image.commits] == [(1, True)]
        assert image.commit_of(1) == 1
    with Image.read(path, beside(path), wal_rule="none") as image:
        assert (image.size_in_pages, image.commits, image.commit_of(1)) == (image.file_pages, (), 0)
    assert_carved_equals_selected(path)


def test_a_page_one_that_only_the_wal_has_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("CREATE TABLE t (a)").fetchall()
    connection.execute("INSERT INTO t VALUES (1)").fetchall()
    connection.close()

    with Image.read(None, beside(path)) as image:
        assert image.header_whole and image.page_count == 2
        assert image.page_types() == bytearray([0, 13, 13])


@pytest.mark.parametrize("kept", [0, 20, 32, 33, 60, 4152, 5000])
def test_a_wal_cut_anywhere_gives_what_sqlite_reads(kept: int, tmp_path: Path) -> None:
    path = filled(tmp_path / "x.db", rows=20)
    build(path, wal=True)
    build(path, "INSERT INTO t VALUES (500, 'one', 1)", "INSERT INTO t VALUES (501, 'two', 2)", wal=True)
    with beside(path).open("r+b") as file:
        file.truncate(kept)

    assert_carved_equals_selected(path)


class Logged:
    """A database and its WAL with two generations of frames, as bytes."""

    def __init__(self, path: Path) -> None:
        filled(path, "page_size=512", rows=60)
        connection = apsw.Connection(str(path))
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        connection.wal_autocheckpoint(0)
        for generation in range(2):
            for number in range(14 - 8 * generation):
                connection.execute(
                    "INSERT INTO t VALUES (?, ?, ?)", (100 * (generation + 1) + number, "long " * 200, number)
                ).fetchall()
                connection.execute("DELETE FROM t WHERE id = ?", (3 * number + generation,)).fetchall()
            if generation == 0:
                connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        connection.close()
        self.main, self.wal = path.read_bytes(), beside(path).read_bytes()

    def __repr__(self) -> str:
        return f"a WAL of {len(self.wal)} bytes"


@pytest.fixture(scope="module")
def two_generations(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    return Logged(tmp_path_factory.mktemp("wal") / "x.db")


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
@given(
    flips=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 255)), max_size=3),
    cut=st.one_of(st.none(), st.integers(0, 60_000)),
)
def test_a_wal_with_wrong_bytes_gives_exactly_what_sqlite_reads_and_lenient_no_fewer(
    flips: list[tuple[int, int]], cut: int | None, two_generations: Logged
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        log = bytearray(two_generations.wal[:cut])
        for at, change in flips:
            if log:
                log[at % len(log)] ^= change
        path.write_bytes(two_generations.main)
        beside(path).write_bytes(log)

        lenient = {row.rowid for row in carved(path, wal_rule="lenient") if row.table == "t"}
        assert_carved_equals_selected(path)
        with Image.read(path, beside(path)) as image:
            commits = [commit.number for commit in image.commits]

        assert {row[0] for row in selected(path, "t")} <= lenient
        assert commits == sorted(commits) and 0 not in commits
