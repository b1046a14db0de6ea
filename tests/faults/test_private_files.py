"""A private file counts only once it holds everything by itself: its WAL is copied back, and that is checked.

A close copies the WAL back too, and says nothing when that fails. So the disk is full from some write on to each
private file, the last one included: the work must end with an error, nothing may be used or named, and once there is
room again the same work must succeed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from hermes_state import open_store
from hermes_state.clock import SYSTEM
from hermes_state.engine import open_read
from hermes_state.engine.create import fill_empty_database
from hermes_state.engine.files import new_private_file
from hermes_state.engine.private import open_private
from hermes_state.engine.salvage import open_building
from hermes_state.engine.whole_file import copy_back, drop_sidecars, settle_private
from hermes_state.errors import IOFailure, LockTimeout, StateError
from hermes_state.testing import corruption
from hermes_state.testing.faults import Fault, inject
from maintenance.backups.making import backup
from maintenance.interop.give_back import give_back
from maintenance.recovery.finishing import compact
from maintenance.recovery.run import recover
from maintenance.repair import repair
from tests.faults.operation import STORE, conversation, foreign, settled, verb
from tests.maintenance.adopting import adopt_in_place, adopt_to
from tests.maintenance.native_stores import context

EVER = 10**9


@dataclass(frozen=True, kw_only=True)
class Case:
    """Work that fills a private file."""

    prepare: Callable[[Path], object]
    work: Callable[[Path], object]
    # the private file's name
    name: str
    # what the work makes, below the home
    makes: str
    # whether the store itself is changed before that
    changes: bool = False


def damaged(home: Path, damage: Callable[[Path], object]) -> None:
    foreign(home)
    damage(home / STORE)


def adopted(home: Path) -> None:
    foreign(home)
    adopt_in_place(home / STORE)


CASES = {
    "adopt": Case(
        prepare=foreign, work=lambda home: adopt_to(home / STORE, home / "made.db"), name="*.native", makes="made.db"
    ),
    "give back": Case(
        prepare=adopted, work=lambda home: give_back(context(home / STORE), home / "made.db"), name="*.back",
        makes="made.db",
    ),
    "backup": Case(
        prepare=conversation, work=lambda home: backup(home / STORE), name="*.partial", makes="backups/*.db"
    ),
    "recover": Case(
        prepare=lambda home: damaged(home, corruption.zero_header),
        work=lambda home: recover(home / STORE, home / "made.db"), name="filled.db", makes="made.db",
    ),
    "recover, native": Case(
        prepare=lambda home: damaged(home, corruption.zero_header),
        work=lambda home: recover(home / STORE, home / "made.db", native=True), name="native.db", makes="made.db",
    ),
    "repair": Case(
        prepare=lambda home: damaged(home, lambda path: corruption.zero_root(path, "idx_sessions_source")),
        work=lambda home: repair(home / STORE), name="source.db", makes=f"{STORE}.replaced-damage-*",
    ),
    "optimize by way of a copy": Case(
        prepare=foreign, work=lambda home: verb(home, "sessions", "optimize", "--via-copy", "--reclaim", "always"),
        name="*.compact-copy-*", makes="nothing", changes=True,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_disk_that_is_full_from_some_write_on_stops_the_work_and_names_nothing(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    start = tmp_path / "start"
    start.mkdir()
    case.prepare(start)
    ever = Fault(operation="write", role="main", number=EVER, name=case.name)
    with inject(ever) as counted:
        case.work(Path(shutil.copytree(start, tmp_path / "counted")))
    writes = counted.met(ever)
    assert writes > 0
    for number in sorted({1, (writes + 1) // 2, writes}):
        home = Path(shutil.copytree(start, tmp_path / str(number)))
        before = (home / STORE).read_bytes()
        full = Fault(operation="write", role="main", number=number, action="full", times=None, name=case.name)
        with inject(full) as injection, pytest.raises(StateError):
            case.work(home)
        assert injection.hit
        assert list(home.glob(case.makes)) == [], number
        assert case.changes or (home / STORE).read_bytes() == before, number
        case.work(home)
        assert case.makes == "nothing" or len(list(home.glob(case.makes))) >= 1


def with_wal(path: Path) -> Path:
    """A private file whose rows are in its WAL alone."""
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    for statement in ("PRAGMA journal_mode = wal", "CREATE TABLE t(x)", "INSERT INTO t VALUES (zeroblob(20000))"):
        connection.execute(statement).fetchall()
    connection.close()
    return path


def rows(path: Path) -> int:
    """By the file alone."""
    alone = path.with_name(f"alone-{path.name}")
    shutil.copyfile(path, alone)
    with open_read(alone) as store:
        return int(store.rows("SELECT count(*) FROM t")[0][0])


def test_settling_fails_on_a_full_disk_and_keeps_the_wal_until_the_file_is_whole(tmp_path: Path) -> None:
    path = with_wal(tmp_path / "new.db")
    for number in range(1, 100):
        with inject(Fault(operation="write", role="main", number=number, action="full", times=None)) as injection:
            if injection.hit:
                break
            try:
                settle_private(path)
            except StateError:
                wal = Path(f"{path}-wal")
                assert (wal.exists() and wal.stat().st_size > 0) or rows(path) == 1
                continue
        break
    assert number > 3
    assert rows(path) == 1
    assert list(tmp_path.glob("new.db-*")) == []


def test_settling_a_file_that_somebody_reads_is_refused_and_keeps_the_wal(tmp_path: Path) -> None:
    path = with_wal(tmp_path / "new.db")
    reader = apsw.Connection(str(path))
    rows_read = reader.execute("SELECT x FROM t")
    next(rows_read)
    with pytest.raises(LockTimeout):
        settle_private(path)
    rows_read.close()
    reader.close()
    assert Path(f"{path}-wal").exists() or rows(path) == 1
    settle_private(path)
    assert rows(path) == 1


def test_a_connection_that_has_read_nothing_copies_the_wal_back_as_well(tmp_path: Path) -> None:
    path = with_wal(tmp_path / "new.db")
    connection = apsw.Connection(str(path))
    copy_back(connection, path)
    assert Path(f"{path}-wal").stat().st_size == 0
    connection.close()


def test_a_wal_that_holds_bytes_is_not_dropped(tmp_path: Path) -> None:
    path = with_wal(tmp_path / "new.db")
    size = Path(f"{path}-wal").stat().st_size
    with pytest.raises(IOFailure) as raised:
        drop_sidecars(path)
    assert raised.value.message == f"{path} is not whole by itself: {size} bytes are still in its WAL."
    assert Path(f"{path}-wal").stat().st_size == size


def test_a_private_copy_whose_wal_cannot_be_copied_back_is_not_closed_silently(tmp_path: Path) -> None:
    path = with_wal(tmp_path / "new.db")
    full = Fault(operation="write", role="main", number=2, action="full", times=None)
    with inject(full), pytest.raises(StateError), open_private(path) as copy:
        copy.rows("INSERT INTO t VALUES (1)")
    with open_private(path) as copy:
        assert copy.rows("SELECT count(*) FROM t") == [(2,)]
    assert rows(path) == 2


def test_a_recovered_file_whose_wal_cannot_be_copied_back_is_not_finished(tmp_path: Path) -> None:
    def fill(path: Path) -> None:
        with open_building(path) as building:
            building.execute("CREATE TABLE t(x)")
            building.execute("INSERT INTO t VALUES (zeroblob(20000))")
            compact(building)

    ever = Fault(operation="write", role="main", number=EVER)
    with inject(ever) as counted:
        fill(tmp_path / "counted.db")
    last = Fault(operation="write", role="main", number=counted.met(ever), action="full", times=None)
    with inject(last), pytest.raises(StateError):
        fill(tmp_path / "new.db")
    reader = apsw.Connection(str(tmp_path / "counted.db"))
    cursor = reader.execute("SELECT x FROM t")
    next(cursor)
    with open_building(tmp_path / "counted.db") as building:
        building.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(LockTimeout):
            compact(building)
    cursor.close()
    reader.close()


def test_an_empty_database_for_another_programs_schema_is_whole_or_an_error(tmp_path: Path) -> None:
    for number in range(1, 20):
        path = tmp_path / f"{number}.db"
        new_private_file(path)
        with inject(Fault(operation="write", role="main", number=number, action="full", times=None)) as injection:
            try:
                fill_empty_database(path)
            except StateError:
                assert injection.hit
                continue
        assert not injection.hit
        break
    assert number > 1


@pytest.mark.slow
def test_a_search_index_that_cannot_be_filled_gets_no_name_and_costs_no_append(tmp_path: Path) -> None:
    path = tmp_path / STORE
    with open_store(path=path) as store:
        store.sessions.create(id="talk", source="cli")
        store.messages.append("talk", role="user", content="apple")
    (tmp_path / "search.db").unlink(missing_ok=True)
    second = Fault(operation="write", role="main", number=2, action="full", times=None, name=".search*")
    with inject(second) as injection, open_store(path=path) as store:
        store.messages.append("talk", role="user", content="apple again")
        assert len(store.search("apple")) == 2
    assert injection.hit
    assert not (tmp_path / "search.db").exists()
    with open_store(path=path, clock=SYSTEM) as store:
        assert store.search.index_idle(10).degraded == ""
        assert len(store.search("apple")) == 2
    assert settled(tmp_path / "search.db").exists()
