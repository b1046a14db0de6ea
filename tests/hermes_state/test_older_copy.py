"""An older copy of the same store over ours, and a file that was cut: both are seen, and nothing else looks like it."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from hermes_state import errors, open_store
from hermes_state.engine import open_read, open_write
from hermes_state.engine.core import Core
from hermes_state.engine.older_state import OlderState
from hermes_state.store import Store


@pytest.fixture
def staged(live_store_audit_hook) -> Iterator[None]:
    """These tests stage the accident on purpose."""
    with live_store_audit_hook.allowing():
        yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(path=tmp_path / "state.db")
    opened.sessions.create(id="talk", source="cli")
    yield opened
    with suppress(errors.GenerationLost):  # said again at the close, when the test staged a loss
        opened.close()


def say(store: Store, count: int, text: str = "x" * 300) -> None:
    for number in range(count):
        store.messages.append("talk", role="user", content=f"{number} {text}")


def copy_aside(core: Core) -> Path:
    """What a file manager copies: the database file alone."""
    older = core.path.with_name("older.db")
    subprocess.run(["cp", str(core.path), str(older)], check=True)  # in our process it would drop our locks
    return older


def put_back(core: Core, older: Path) -> None:
    subprocess.run(["cp", str(older), str(core.path)], check=True)


def sentence(path: Path, where: str = "") -> str:
    return (
        "Hermes paused saving because another program replaced the files of its session store while it was running. "
        "What was saved is kept; please quit every Hermes program of this profile and start it again, and do not "
        f"delete any file. {where}"
    )


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize(("before", "after"), [(5, 40), (200, 1), (1, 1)])
def test_an_older_copy_over_ours_is_seen_before_the_next_commit(store: Store, before: int, after: int) -> None:
    say(store, before)
    store.core.writer.checkpoint()
    older = copy_aside(store.core)
    say(store, after)
    store.core.writer.checkpoint()
    put_back(store.core, older)
    with pytest.raises(errors.GenerationLost) as caught:
        say(store, 1)
    assert (caught.value.lost, caught.value.committed) == (("main",), False)


@pytest.mark.usefixtures("staged")
def test_an_older_copy_is_seen_by_readers_before_their_next_read(store: Store) -> None:
    say(store, 5)
    store.core.writer.checkpoint()
    older = copy_aside(store.core)
    say(store, 1)
    store.core.writer.checkpoint()
    assert store.messages.count("talk") == 6
    put_back(store.core, older)
    with pytest.raises(errors.GenerationLost) as caught:
        store.messages.count("talk")
    path = store.core.path
    assert str(caught.value) == sentence(
        path, f"state.db of {path} was replaced, unlinked or overwritten under an open reader; nothing was read."
    )


@pytest.mark.usefixtures("staged")
def test_another_file_in_the_place_of_ours_is_seen_by_readers(store: Store) -> None:
    say(store, 5)
    store.core.writer.checkpoint()
    older = copy_aside(store.core)
    assert store.messages.count("talk") == 5
    os.replace(older, store.core.path)
    with pytest.raises(errors.GenerationLost) as caught:
        store.messages.count("talk")
    assert caught.value.lost == ("main",)


@pytest.mark.usefixtures("staged")
def test_a_reader_that_stands_for_the_writer_captures_what_it_still_sees(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as first:
        first.sessions.create(id="talk", source="cli")
        older = copy_aside(first.core)
        say(first, 3)
    with open_store(path=path) as second:
        assert second.messages.count("talk") == 3
        os.replace(older, path)
        with pytest.raises(errors.GenerationLost) as caught:
            second.messages.count("talk")
    capture = caught.value.capture
    assert capture is not None and (capture / "state.db-wal").stat().st_size > 0


@pytest.mark.usefixtures("staged")
@pytest.mark.parametrize("reads_first", [True, False])
def test_an_older_copy_that_lacks_a_page_is_seen_while_nothing_was_copied_back_since_the_wal_started_again(
    tmp_path: Path, reads_first: bool
) -> None:
    path = tmp_path / "state.db"
    first = open_store(path=path)
    first.sessions.create(id="talk", source="cli")
    say(first, 50)
    first.core.writer.checkpoint()
    older = copy_aside(first.core)
    say(first, 50)
    first.core.writer.checkpoint()
    first.sessions.create(id="other", source="cli")
    with suppress(errors.GenerationLost), open_store(path=path, read_only=True) as reads, reads.core.reader() as reader:
        state = reader.wal_state()
        assert state is not None and state.frames > 0 == state.backfilled_frames
        put_back(reads.core, older)
        with pytest.raises(errors.GenerationLost) as caught:
            if reads_first:
                reads.messages.count("talk")
            else:
                first.core.write(lambda tx: tx.execute("UPDATE store SET change_floor = 7"))
    assert (caught.value.lost, caught.value.committed) == (("main",), False)
    with suppress(errors.GenerationLost):
        first.close()


@pytest.mark.usefixtures("staged")
def test_an_older_copy_over_ours_between_open_and_first_write_is_seen_by_the_counter_that_the_open_saw(
    tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as first:
        first.sessions.create(id="talk", source="cli")
        with first.core.writer.transaction() as tx:
            tx.execute("CREATE TABLE spare (id INTEGER)")
        first.core.writer.checkpoint()
        older = copy_aside(first.core)
        for number in range(3):  # the counter moves when a connection that read page 1 anew writes it
            with open_write(path) as other, other.transaction() as tx:
                tx.execute(f"ALTER TABLE spare RENAME COLUMN {'id' if not number else f'id{number}'} TO id{number + 1}")
            first.core.writer.checkpoint()
        with first.core.writer.transaction() as tx:
            tx.execute("UPDATE store SET change_floor = 1")
        first.core.writer._wrote = False  # the close copies nothing back
    with open_store(path=path) as second:
        put_back(second.core, older)
        with pytest.raises(errors.GenerationLost) as caught:
            second.core.write(lambda tx: tx.execute("UPDATE store SET change_floor = 7"))
        assert (caught.value.lost, caught.value.committed) == (("main",), False)


def test_page_of_the_lock_bytes_is_missed_by_nobody(tmp_path: Path) -> None:
    size, after = 4096, 0x40000000 // 4096 + 2
    main, wal, shm = (tmp_path / name for name in ("main", "wal", "shm"))
    main.touch()
    os.truncate(main, 0x40000000)
    header = struct.pack("=14xHII8x8s56xI36x", size, 1, after, b"saltsalt", 0)
    for page in (after, after + 1):
        wal.write_bytes(bytes(32))
        shm.write_bytes(header + struct.pack("=I", page))
        numbers = [os.open(name, os.O_RDONLY) for name in (main, wal, shm)]
        assert OlderState(*numbers, size).is_there() == (page != after)
        for number in numbers:
            os.close(number)


@pytest.mark.usefixtures("staged")
def test_checkpoints_of_others_never_look_like_an_older_copy(store: Store) -> None:
    """Put off, complete, of a store that became shorter, and of a WAL that was started again."""
    other = open_write(store.core.path)
    try:
        for round_ in range(30):
            say(store, 7)
            with open_read(store.core.path) as reader, reader.snapshot():
                reader.rows("SELECT count(*) FROM messages")
                say(store, 3)
                other.checkpoint()
            assert store.messages.count("talk") > 0
            if round_ % 5 == 4:
                first = store.messages.history("talk").messages[0]
                store.messages.delete("talk", [first.id], reason="test", actor="test")
                with other.transaction() as tx:
                    tx.execute("PRAGMA incremental_vacuum")
                other.checkpoint()
            say(store, 1)
    finally:
        other.close()


def cut(path: Path, missing: int) -> None:
    """Everything of the store is in the one file, and its end is gone."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(truncate)").fetchall()
    connection.close()
    os.truncate(path, path.stat().st_size - missing)


@pytest.mark.parametrize("missing", [1, 1000, 4095])
@pytest.mark.parametrize("opens", [open_read, open_write])
def test_a_file_that_ends_within_its_last_page_is_damaged(tmp_path: Path, missing: int, opens) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="talk", source="cli")
        say(store, 50)
    cut(path, missing)
    size = path.stat().st_size
    pages = size // 4096 + 1
    with pytest.raises(errors.Corrupt) as caught:
        opens(path)
    assert str(caught.value) == (
        f"The database file {path} is damaged: it was cut. It has {size} bytes, and its {pages} pages of 4096 bytes "
        f"take {pages * 4096}."
    )
    assert caught.value.hint == (
        f"Run `hermes-state doctor --db {path}`; it says what can be recovered and changes nothing."
    )
    assert caught.value.exit_code == 65
    with pytest.raises(errors.Corrupt), open_store(path=path):
        pass


def test_a_file_that_a_full_disk_left_within_a_page_is_whole_while_the_wal_has_the_page(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="talk", source="cli")
        store.core.writer.checkpoint()
        say(store, 50)
    size = path.stat().st_size
    with path.open("ab") as half:  # what a checkpoint leaves that the disk had no more room for
        half.write(b"\0" * 1000)
    with open_store(path=path) as store:
        assert store.messages.count("talk") == 50
    os.truncate(path, size)


@pytest.mark.parametrize("opens", [open_read, open_write])
def test_an_older_copy_beside_the_wal_of_a_newer_file_is_damage_to_whoever_opens_it(tmp_path: Path, opens) -> None:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        store.sessions.create(id="talk", source="cli")
        say(store, 50)
        store.core.writer.checkpoint()
        older = copy_aside(store.core)
        say(store, 50)
        store.core.writer.checkpoint()
        store.sessions.create(id="other", source="cli")  # the WAL starts again; the frames of the new pages are gone
        pages = store.core.writer.page_count
        store.core.writer._wrote = False  # the close copies nothing back
    os.replace(older, path)
    size = path.stat().st_size
    with pytest.raises(errors.Corrupt) as caught:
        opens(path)
    assert str(caught.value) == (
        f"The database file {path} is damaged: it was cut, or an older copy of it was put there beside a newer WAL. It "
        f"has {size} bytes, and its {pages} pages of 4096 bytes take {pages * 4096}."
    )
    with pytest.raises(errors.Corrupt), open_store(path=path):
        pass
