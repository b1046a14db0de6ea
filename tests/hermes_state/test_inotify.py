"""What the kernel reports of a store's files: quiet only while nothing has happened since the last look."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Store, open_read, open_write
from hermes_state.engine.inotify import QUEUE, RELOOK_SECONDS
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return make_store(tmp_path / "home" / "state.db")


@pytest.fixture
def writer(store: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_write(store, clock=fake_clock) as opened:
        write(opened)
        assert opened._watch.is_quiet()
        yield opened


def write(opened: Store) -> None:
    opened.write(lambda transaction: transaction.execute(ADD, ("row",)))


def test_writing_and_reading_stay_quiet(writer: Store) -> None:
    for _ in range(3):
        write(writer)
        writer.rows("SELECT 1")
    assert writer._watch.is_quiet()


def test_every_change_of_a_name_in_the_folder_is_reported_at_once(writer: Store, store: Path) -> None:
    other = store.with_name("other")
    changes: list[Callable[[], object]] = [
        other.touch, lambda: os.rename(other, store.with_name("moved")), store.with_name("moved").unlink,
        lambda: os.rename(store.parent, store.parent.with_name("away")),
    ]
    for change in changes:
        change()
        assert not writer._watch.names_are_quiet()
        if change is changes[-1]:
            os.rename(store.parent.with_name("away"), store.parent)
        write(writer)
        assert writer._watch.is_quiet()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_open_of_a_file_by_another_process_is_reported_until_descriptors_are_listed(
    writer: Store, store: Path, child, suffix: str
) -> None:
    child("import sys; open(sys.argv[1], 'rb').close()", f"{store}{suffix}").finish()
    assert not writer._watch.is_quiet()
    assert writer._guard.lost() == ()
    assert not writer._watch.is_quiet()
    write(writer)
    assert writer._watch.is_quiet()


def test_names_are_compared_again_after_a_second_without_any_report(writer: Store, fake_clock: FakeClock) -> None:
    fake_clock.advance(RELOOK_SECONDS)
    assert not writer._watch.names_are_quiet()
    write(writer)
    assert writer._watch.is_quiet()


def test_rename_of_a_folder_further_up_is_seen_at_the_next_commit(tmp_path: Path) -> None:
    folder = tmp_path / "user" / "home"
    folder.mkdir(parents=True)
    store = make_store(folder / "state.db")
    with open_write(store) as writer:
        write(writer)
        os.rename(tmp_path / "user", tmp_path / "moved")
        assert writer._guard.lost() == ("main", "wal", "shm")
        os.rename(tmp_path / "moved", tmp_path / "user")
        write(writer)
    assert bodies(store) == ["row", "row"]


def test_report_taken_out_by_one_connection_is_seen_by_all(writer: Store, store: Path, fake_clock: FakeClock) -> None:
    with open_read(store, clock=fake_clock) as reader:
        for opened in (writer, reader):
            opened._guard.lost()
        assert writer._watch.names_are_quiet() and reader._watch.names_are_quiet()
        store.with_name("other").touch()
        assert [opened._watch.names_are_quiet() for opened in (reader, writer, reader)] == [False] * 3


def test_store_of_another_folder_is_looked_at_again_but_not_missed(writer: Store, tmp_path: Path) -> None:
    second = make_store(tmp_path / "second.db")
    with open_write(second) as other:
        write(other)
        write(writer)
        second.with_name("new").touch()
        assert not other._watch.names_are_quiet()
        assert not writer._watch.names_are_quiet()


def test_threads_that_look_at_once_never_miss_a_report(store: Path) -> None:
    stores = [open_write(store) for _ in range(3)]
    for opened in stores:
        write(opened)
    missed, start = [], threading.Barrier(4)

    def look(opened: Store) -> None:
        for _ in range(200):
            start.wait(30)  # the folder changes between this
            start.wait(30)  # and this
            if opened._watch.names_are_quiet():
                missed.append(opened)
            opened._guard.lost()

    threads = [threading.Thread(target=look, args=(opened,), daemon=True) for opened in stores]
    for thread in threads:
        thread.start()
    for n in range(200):
        start.wait(30)
        store.with_name(f"file{n}").touch()
        start.wait(30)
    for thread in threads:
        thread.join(30)
    assert missed == []
    for opened in stores:
        opened.close()


def test_forked_child_takes_no_report_from_its_parent(writer: Store, store: Path) -> None:
    store.with_name("other").touch()
    pid = os.fork()
    if pid == 0:
        QUEUE.add(str(store.parent.parent), 0x100)
        QUEUE.take_reports()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not writer._watch.names_are_quiet()


def test_closed_connections_leave_no_watch_behind(store: Path) -> None:
    before = dict(QUEUE._users)
    opened = [open_write(store), open_read(store), open_read(store)]
    assert len(QUEUE._users) == len(before) + 4
    for one in opened:
        one.close()
    assert QUEUE._users == before


def test_descriptor_that_other_code_closed_makes_every_look_a_full_one(child, store: Path) -> None:
    told = child(
        """
        import os, sys
        from hermes_state.engine import open_write
        from hermes_state.engine.inotify import QUEUE
        with open_write(sys.argv[1]) as writer:
            add = lambda transaction: transaction.execute("INSERT INTO note(body) VALUES('row')")
            writer.write(add)
            os.close(QUEUE.descriptor)
            writer.write(add)
            print(writer._watch.is_quiet(), writer._guard.lost())
            os.unlink(sys.argv[1] + "-wal")
            print(writer._guard.lost())
            os._exit(0)
        """,
        store,
    )
    assert told.finish().splitlines() == ["False ()", "('wal',)"]
