"""A store whose sidecars are there is opened through a reader; the writer comes with the first write."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from hermes_state import errors, open_store
from hermes_state.engine import Store as Writer
from hermes_state.engine import is_open
from hermes_state.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that was opened before, so that its sidecars are there."""
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="first", source="cli")
        store.core.writer.checkpoint()
    assert Path(f"{path}-wal").exists() and Path(f"{path}-shm").exists()
    return path


def said(store: Store) -> list[str]:
    return [message.content for message in store.messages.history("first").messages]


def unlink_sidecars(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        os.unlink(f"{path}{suffix}")


def test_reading_opens_no_writer_and_the_first_write_does(path: Path) -> None:
    with open_store(path=path) as store:
        assert store.sessions.count() == 1
        assert store.core._writer is None
        store.messages.append("first", role="user", content="hello")
        assert store.core._writer is not None and store.core._founder is None
        assert said(store) == ["hello"]


def test_store_without_sidecars_is_opened_by_a_writer(path: Path) -> None:
    unlink_sidecars(path)
    with open_store(path=path) as store:
        assert store.core._writer is not None
        assert store.sessions.count() == 1


def test_open_refuses_what_a_writer_would_refuse(path: Path) -> None:
    other = path.with_name("other.db")
    os.link(path, other)
    with pytest.raises(errors.Refused) as refused:
        open_store(path=path)
    assert str(refused.value) == (
        f"{path} has 2 names (hard links). Each name would get a WAL of its own over the same file, which destroys it."
    )


def test_first_write_after_the_sidecars_were_unlinked_is_refused_and_what_they_hold_is_kept(path: Path) -> None:
    with open_store(path=path) as store:
        unlink_sidecars(path)
        with pytest.raises(errors.GenerationLost) as lost:
            store.core.write(lambda tx: tx.execute("UPDATE store SET change_floor = 7"))
        assert lost.value.capture is not None and lost.value.capture.is_dir()
        assert (lost.value.lost, lost.value.committed) == (("wal", "shm"), False)
        store.messages.append("first", role="user", content="later")
        assert said(store) == ["later"]
        assert store.core.epoch == 1


def test_close_after_the_sidecars_were_unlinked_keeps_what_they_hold(path: Path) -> None:
    store = open_store(path=path)
    unlink_sidecars(path)
    with pytest.raises(errors.GenerationLost) as lost:
        store.close()
    assert lost.value.capture is not None and lost.value.capture.is_dir()
    with open_store(path=path) as again:
        assert again.sessions.count() == 1


def test_first_write_that_finds_another_store_in_the_file_is_refused_and_writes_nothing(
    path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere" / "state.db"
    with open_store(path=other) as store:
        store.sessions.create(id="other", source="cli")
        store.core.writer.checkpoint()
    content = other.read_bytes()
    with open_store(path=path) as store:
        subprocess.run(["cp", str(other), str(path)], check=True)  # the same inode
        with pytest.raises(errors.GenerationLost) as lost:
            store.core.write(lambda tx: tx.execute("UPDATE store SET change_floor = 7"))
        assert lost.value.lost == ("main",)
    assert path.read_bytes() == content


def test_first_write_in_a_forked_child_is_refused_by_name(path: Path) -> None:
    def writes() -> None:
        try:
            store.core.write(lambda tx: None)
        except errors.ForkedConnection as error:
            os._exit(7 if error.facts["opened_by_pid"] == os.getppid() else 8)
        os._exit(9)

    with open_store(path=path) as store:
        child = multiprocessing.get_context("fork").Process(target=writes)
        child.start()
        child.join(20)
        assert child.exitcode == 7


def test_write_after_the_last_user_has_closed_opens_nothing(path: Path) -> None:
    store = open_store(path=path)
    core = store.core
    store.close()
    with pytest.raises(errors.StateError) as refused:
        core.write(lambda tx: None)
    assert str(refused.value) == f"The store {path} is closed here."


def left_in_the_middle(store: Store) -> Iterator[tuple[object, ...]]:
    """A loop over rows that nobody ends, as after Ctrl-C: the pool lets its reader go, and that was the founder."""
    with store.core.reader() as reader:
        rows = reader.iterate("SELECT name FROM sqlite_schema", batch=2)
        next(rows)
    assert store.core._founder is not None and store.core._founder.closed
    return rows


def test_store_whose_founder_was_let_go_is_written_to_and_closed(path: Path) -> None:
    with open_store(path=path) as store:
        rows = left_in_the_middle(store)
        unlink_sidecars(path)  # nobody here has them open: as between two opens
        store.messages.append("first", role="user", content="later")
        assert said(store) == ["later"]
        rows.close()  # type: ignore[attr-defined]
    with open_store(path=path) as store:
        left_in_the_middle(store)
        unlink_sidecars(path)


def test_next_reader_takes_the_place_of_a_founder_that_was_let_go(path: Path) -> None:
    with open_store(path=path) as store:
        left_in_the_middle(store)
        assert said(store) == []
        unlink_sidecars(path)
        with pytest.raises(errors.GenerationLost) as lost:
            store.core.write(lambda tx: tx.execute("UPDATE store SET change_floor = 7"))
        assert lost.value.capture is not None and lost.value.capture.is_dir()


def test_what_a_founder_in_use_still_sees_at_the_close_is_kept_when_its_block_ends(path: Path) -> None:
    store = open_store(path=path)
    reader = store.core.reader()
    inside, go_on = threading.Event(), threading.Event()
    caught: list[errors.GenerationLost] = []

    def reads() -> None:
        try:
            with reader as mine, mine.snapshot():
                inside.set()
                go_on.wait(20)
        except errors.GenerationLost as error:
            caught.append(error)

    thread = threading.Thread(target=reads)
    thread.start()
    inside.wait(20)
    unlink_sidecars(path)
    with pytest.raises(errors.GenerationLost):
        store.close()
    go_on.set()
    thread.join(20)
    assert [error.capture is not None and error.capture.is_dir() for error in caught] == [True]


def test_close_while_the_first_write_opens_its_writer_ends_that_write_by_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(path=path)
    core = store.core
    mark = Writer.mark_identity

    def close_first(writer: Writer, store_id: str) -> None:
        mark(writer, store_id)
        store.close()

    monkeypatch.setattr(Writer, "mark_identity", close_first)
    with pytest.raises(errors.StateError) as refused:
        core.write(lambda tx: None)
    assert str(refused.value) == f"The store {path} is closed here."
    assert not is_open(path)


def test_reader_that_found_no_wal_is_not_kept_for_later_reads(path: Path) -> None:
    """It would open the WAL by itself once there is one; a descriptor that nobody knows counts as a stranger's."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = delete").fetchall()
    connection.close()
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").touch()
    with open_store(path=path) as store:
        assert store.core._founder is None and store.core._pool._idle == []
        assert store.sessions.count() == 1
