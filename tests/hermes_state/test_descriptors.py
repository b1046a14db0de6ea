"""Which descriptors of this process are SQLite's: looks that concern every open store, and none left to look with."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import errors
from hermes_state.engine import open_exclusive, open_read, open_write
from hermes_state.engine.own_lock import WAL_WRITE_BYTE, all_shown, known_lock
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db")


@pytest.fixture
def full() -> Iterator[list[int]]:
    """Every descriptor of this process is in use but for those that the test closes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
    filler: list[int] = []
    try:
        while True:
            try:
                filler.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield filler
    finally:
        for number in filler:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_look_for_one_store_does_not_hide_what_concerns_another(
    store: Path, tmp_path: Path, live_store_audit_hook
) -> None:
    other_store = make_store(tmp_path / "other.db")
    with open_read(store) as reader, open_read(other_store) as other_reader, live_store_audit_hook.allowing():
        reader.rows("SELECT 1")
        stranger = sqlite3.connect(other_store)
        stranger.execute("SELECT count(*) FROM note").fetchall()
        reader.rows("SELECT 1")  # the look that this takes finds nothing on its own files
        with pytest.raises(errors.SecondSQLite):
            other_reader.rows("SELECT 1")
        stranger.close()


def test_every_connection_to_a_file_sees_the_stranger(store: Path, live_store_audit_hook) -> None:
    first, second = open_read(store), open_read(store)
    with live_store_audit_hook.allowing():
        stranger = sqlite3.connect(store)
        stranger.execute("SELECT count(*) FROM note").fetchall()
        for reader in (first, second):
            with pytest.raises(errors.SecondSQLite):
                reader.rows("SELECT 1")
        stranger.close()


def test_count_is_kept_by_the_kernel_and_survives_that_other_code_closes_its_folder(store: Path, child) -> None:
    told = child(
        """
        import os, sys
        from hermes_state.engine import open_read
        from hermes_state.engine.descriptors import REGISTRY
        seen = []
        with open_read(sys.argv[1]) as reader:
            reader.rows("SELECT 1")
            seen.append(REGISTRY.changed())
            number = os.open(os.devnull, os.O_RDONLY)
            seen.append(REGISTRY.changed())
            os.close(number)
            seen.append(REGISTRY.changed())
            taken = REGISTRY.descriptors.folder
            os.close(taken)
            os.dup2(os.open(os.devnull, os.O_RDONLY), taken)
            seen.append(REGISTRY.changed())
            for _ in range(3):
                reader.rows("SELECT 1")
            seen.append(REGISTRY.changed() or REGISTRY.descriptors.folder == taken)
        print(seen)
        """,
        store,
    )
    assert told.finish() == "[False, True, False, True, False]\n"


def test_known_lock_is_shown_while_the_kernel_has_it_as_expected(store: Path) -> None:
    with open_write(store) as writer:
        shm = writer.descriptors.shm
        assert shm is not None
        ours, free = [known_lock(shm, WAL_WRITE_BYTE, state) for state in ("write", "none")]
        assert (all_shown([ours]), all_shown([free])) == (False, True)
        with writer.transaction():
            assert (all_shown([ours]), all_shown([free]), all_shown([ours, free])) == (True, False, False)
        assert all_shown([])


# Main, -wal and -shm are needed; under the exclusive lock there is no -shm.
@pytest.mark.parametrize(
    ("how", "room"), [(open_exclusive, 0), (open_exclusive, 1), *((open_read, n) for n in range(3)), (open_write, 2)]
)
def test_open_without_enough_descriptors_says_what_ran_out(store: Path, full: list[int], how, room: int) -> None:
    for _ in range(room):
        os.close(full.pop())
    with pytest.raises(errors.CannotOpen) as refused:
        how(store)
    sentence = (
        f"This process has run out of file descriptors, so opening {store} failed (EMFILE: Too many open files)."
    )
    assert str(refused.value) in (
        sentence, f"{sentence} SQLite said: unable to open database file (code 14, extended 14)."
    )
    assert refused.value.hint == (
        "Nothing is wrong with the store. Find what keeps files open (`ls -l /proc/PID/fd`), or raise the open-file "
        "limit (`ulimit -n`, LimitNOFILE= of a service)."
    )
    for _ in range(8):
        os.close(full.pop())
    how(store).close()


def test_store_that_is_open_goes_on_when_no_descriptor_is_left(store: Path, full: list[int]) -> None:
    for _ in range(12):
        os.close(full.pop())
    with open_write(store) as writer:
        writer.write(lambda transaction: transaction.execute(ADD, ("before",)))
        while True:
            try:
                full.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        writer.write(lambda transaction: transaction.execute(ADD, ("none left",)))
        assert writer.rows("SELECT count(*) FROM note") == [(2,)]
        os.close(full.pop())
        os.close(full.pop())
    assert bodies(store) == ["before", "none left"]
