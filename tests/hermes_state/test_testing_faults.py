"""The fault shim: the planned operation fails as planned, the next one works, and nothing else is touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import apsw
import pytest

from hermes_state import open_store
from hermes_state.errors import CannotOpen, DiskFull, InvalidInput, IOFailure, StateError
from hermes_state.testing import faults, temporary_store
from hermes_state.testing.faults import Fault, inject
from hermes_state.testing.file_hooks import Hooks, hooked
from tests.support.children import child_environment


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    with temporary_store(tmp_path) as store:
        store.sessions.create(id="talk", source="cli")
    return tmp_path / "state.db"


def append(path: Path) -> None:
    with open_store(path=path) as store:
        store.messages.append("talk", role="user", content="said " * 900, durability="power")


def count(path: Path) -> int:
    with open_store(path=path) as store:
        return store.messages.count("talk")


@pytest.mark.parametrize(
    ("fault", "error", "extended"),
    [
        (Fault(operation="open", role="main", number=1), CannotOpen, apsw.SQLITE_CANTOPEN),
        (Fault(operation="read", role="main", number=1), IOFailure, apsw.SQLITE_IOERR_READ),
        (Fault(operation="write", role="wal", number=1), IOFailure, apsw.SQLITE_IOERR_WRITE),
        (Fault(operation="write", role="wal", number=2, action="torn"), IOFailure, apsw.SQLITE_IOERR_WRITE),
        (Fault(operation="write", role="wal", number=3, action="full"), DiskFull, apsw.SQLITE_FULL),
        (Fault(operation="write", role="wal", number=3, action="short"), DiskFull, apsw.SQLITE_FULL),
        (Fault(operation="sync", role="wal", number=1), IOFailure, apsw.SQLITE_IOERR_FSYNC),
        (Fault(operation="truncate", role="main", number=1), IOFailure, apsw.SQLITE_IOERR_TRUNCATE),
        (Fault(operation="map_index", role="main", number=1, times=None), IOFailure, apsw.SQLITE_IOERR_SHMMAP),
        (Fault(operation="lock_index", role="main", number=3, times=None), IOFailure, apsw.SQLITE_IOERR_SHMLOCK),
    ],
)
def test_a_failing_operation_is_the_error_of_its_kind(
    store_path: Path, fault: Fault, error: type[StateError], extended: int
) -> None:
    with inject(fault) as injection, pytest.raises(error) as caught:
        append(store_path)
    assert caught.value.sqlite_extended == extended
    assert {hit for hit, _name in injection.hits} == {fault}


def test_the_system_says_what_it_would_say(store_path: Path) -> None:
    for action, words in (("error", "(EIO: Input/output error)"), ("short", "is full; the transaction was rolled")):
        fault = Fault(operation="write", role="wal", number=1, action=action)  # type: ignore[arg-type]
        with inject(fault) as injection, pytest.raises(StateError) as caught:
            append(store_path)
        assert words in caught.value.message
        assert injection.errno == {"error": 5, "short": 28}[action]


def test_a_failure_that_sqlite_survives_stays_its_own(store_path: Path) -> None:
    """A close goes on when its checkpoint fails: the WAL stays, and nothing is raised."""
    connection = apsw.Connection(str(store_path))
    connection.execute("UPDATE sessions SET title = 'x'").fetchall()
    connection.close()
    with inject(Fault(operation="write", role="main", number=1, times=None)) as injection:
        connection = apsw.Connection(str(store_path))
        connection.execute("UPDATE sessions SET title = 'y'").fetchall()
        connection.close()
    assert injection.hit
    with open_store(path=store_path) as store:
        assert store.sessions.get("talk").title == "y"


def test_after_the_block_nothing_fails(store_path: Path) -> None:
    with inject(Fault(operation="write", number=1, times=None)), pytest.raises(IOFailure):
        append(store_path)
    append(store_path)
    assert count(store_path) == 1


def test_without_a_fault_it_counts_by_role(store_path: Path) -> None:
    with inject() as injection:
        append(store_path)
    assert not injection.hit
    assert injection.errno == 0
    assert injection.counts["wal", "write"] >= 4
    assert injection.counts["wal", "sync"] >= 1
    assert set(role for role, _operation in injection.counts) == {"main", "wal"}


def test_a_fault_can_be_for_one_file_only(store_path: Path) -> None:
    with inject(Fault(operation="write", number=1, times=None, name="search.db*")) as injection:
        append(store_path)
    assert not injection.hit
    assert count(store_path) == 1


def test_a_rollback_journal_has_its_own_role(tmp_path: Path) -> None:
    with inject(Fault(operation="delete", role="journal", number=1)) as injection:
        connection = apsw.Connection(str(tmp_path / "plain.db"))
        with pytest.raises(apsw.IOError):
            connection.execute("CREATE TABLE t(x)").fetchall()
        connection.close()
    assert injection.counts["journal", "sync"] >= 1
    assert [name for _fault, name in injection.hits] == ["plain.db-journal"]


@pytest.mark.slow
@pytest.mark.parametrize("action", ["kill", "torn_kill"])
def test_a_child_can_be_killed_at_an_operation(store_path: Path, tmp_path: Path, action: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys\nfrom hermes_state import open_store\n"
        "with open_store(path=sys.argv[1]) as store:\n"
        "    for n in range(9):\n"
        "        store.messages.append('talk', role='user', content='said ' * 900)\n        print(n, flush=True)\n"
    )
    fault = Fault(operation="write", role="wal", number=20, action=action)  # type: ignore[arg-type]
    ran = subprocess.run(
        faults.command([fault], str(script), str(store_path)), env=child_environment(own_packages=True),
        capture_output=True, text=True,
    )
    assert ran.returncode == -9, ran.stderr
    assert 0 < count(store_path) < 9
    assert count(store_path) in (ran.stdout.count("\n"), ran.stdout.count("\n") + 1)


@pytest.mark.slow
def test_modules_and_code_run_as_they_would_without_faults(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    environment = child_environment(own_packages=True)
    environment["PYTHONPATH"] += f":{tmp_path}"
    for program in (("-m", "named", "x"), ("-c", "import sys; print(__name__, sys.argv[1:])", "x")):
        ran = subprocess.run(faults.command([], *program), env=environment, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout) == (0, "__main__ ['x']\n"), ran.stderr


def test_what_no_fault_can_be_is_refused() -> None:
    for wrong, message in (
        (
            {"operation": "fly", "number": 1},
            "'fly' is none of open, read, write, sync, truncate, size, delete, lock, map_index, lock_index.",
        ),
        ({"operation": "write", "number": 1, "role": "shm"}, "'shm' is none of None, main, wal, journal, other."),
        (
            {"operation": "sync", "number": 1, "action": "torn"},
            f"A fault cannot be {Fault(operation='sync', number=1, action='torn')}.",
        ),
    ):
        with pytest.raises(InvalidInput) as caught, inject(Fault(**wrong)):
            pass
        assert caught.value.message == message
    with pytest.raises(InvalidInput) as unread:
        faults.loads("[1]")
    assert unread.value.message == "'[1]' is no list of faults."


def test_two_blocks_at_once_are_refused() -> None:
    with inject(), pytest.raises(InvalidInput) as caught, inject():
        pass
    assert caught.value.message == "Faults or a recording are under way in this process."
    with inject():
        pass


def test_what_a_hook_raises_comes_out_when_the_block_ends(store_path: Path) -> None:
    class Broken(Hooks):
        def open(self, path: str, flags: int) -> None:
            raise ZeroDivisionError(os.path.basename(path))

    with pytest.raises(ZeroDivisionError) as caught, hooked(Broken()), pytest.raises(StateError):
        append(store_path)
    assert str(caught.value) == "state.db"


def test_after_a_block_files_are_opened_by_the_system_alone_again(tmp_path: Path) -> None:
    """Left in place, a Python method would lose the signals that come while it runs, for the rest of the process."""
    from hermes_state.testing.file_hooks import _default_vfs

    before = _default_vfs().xOpen, _default_vfs().xDelete
    with inject(Fault(operation="write", number=10_000)):
        assert (_default_vfs().xOpen, _default_vfs().xDelete) != before
    assert (_default_vfs().xOpen, _default_vfs().xDelete) == before
