"""The recording sees every file, and the crashes are those that POSIX allows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from hermes_state.errors import InvalidInput
from hermes_state.testing.power_loss import MODES, Crash, Recording, crashes


def contents(recording: Recording, name: str, mode: str | None = None) -> set[bytes | None]:
    """Every content that a file may have after a crash at the end; None when it may be missing."""
    last = [crash for crash in crashes(recording, seeds=range(40), start=len(recording.events))]
    return {crash.files.get(name) for crash in last if mode in (None, crash.mode)}


def put(path: Path, data: bytes, *, sync: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def test_what_was_there_before_is_there_after_every_crash(tmp_path: Path) -> None:
    put(tmp_path / "kept", b"old", sync=False)
    with Recording(tmp_path) as recording:
        put(tmp_path / "other", b"new", sync=True)
    assert contents(recording, "kept") == {b"old"}


def test_a_file_that_nobody_synced_may_be_missing_empty_zero_or_whole(tmp_path: Path) -> None:
    with Recording(tmp_path) as recording:
        put(tmp_path / "note", b"text", sync=False)
    assert contents(recording, "note") == {None, b"", bytes(4), b"text"}


def test_a_synced_file_is_there_only_with_its_folder(tmp_path: Path) -> None:
    with Recording(tmp_path) as recording:
        put(tmp_path / "note", b"text", sync=True)
    assert contents(recording, "note") == {None, b"text"}
    with Recording(tmp_path) as recording:
        put(tmp_path / "second", b"text", sync=True)
        sync_folder(tmp_path)
    assert contents(recording, "second") == {b"text"}


def test_a_rename_before_its_content_is_synced_may_leave_an_empty_file(tmp_path: Path) -> None:
    put(tmp_path / "settings", b"old", sync=True)
    with Recording(tmp_path) as recording:
        put(tmp_path / "staged", b"new", sync=False)
        os.replace(tmp_path / "staged", tmp_path / "settings")
    assert contents(recording, "settings") == {b"old", b"", bytes(3), b"new"}


def test_a_rename_after_its_content_is_synced_leaves_old_or_new(tmp_path: Path) -> None:
    put(tmp_path / "settings", b"old", sync=True)
    with Recording(tmp_path) as recording:
        put(tmp_path / "staged", b"new", sync=True)
        os.replace(tmp_path / "staged", tmp_path / "settings")
    every = list(crashes(recording))
    assert {crash.files["settings"] for crash in every} == {b"old", b"new"}
    assert {crash.mode for crash in every} <= set(MODES)


def test_a_removed_file_may_come_back_until_its_folder_is_synced(tmp_path: Path) -> None:
    for synced, left in ((False, {b"old", None}), (True, {None})):
        put(tmp_path / "gone", b"old", sync=True)
        with Recording(tmp_path) as recording:
            (tmp_path / "gone").unlink()
            if synced:
                sync_folder(tmp_path)
        assert contents(recording, "gone") == left


def test_unsynced_pages_of_a_database_are_torn_by_sector_and_by_page(tmp_path: Path) -> None:
    path = tmp_path / "plain.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE t(x)").fetchall()
    connection.close()
    before = path.read_bytes()
    with Recording(tmp_path) as recording:
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA synchronous = off").fetchall()
        connection.execute("INSERT INTO t VALUES(zeroblob(3000))").fetchall()
        connection.close()
    after = path.read_bytes()
    torn = contents(recording, "plain.db", "torn") | contents(recording, "plain.db")
    assert before in torn
    assert after in torn
    assert len(torn) > 4
    for content in torn:
        assert content is not None
        for at in range(0, len(content), 512):
            assert content[at : at + 512] in (before[at : at + 512], after[at : at + 512])


def test_a_database_made_under_another_name_is_followed_to_its_own(tmp_path: Path) -> None:
    with Recording(tmp_path) as recording:
        connection = apsw.Connection(str(tmp_path / "staged"))
        connection.execute("CREATE TABLE t(x)").fetchall()
        connection.close()
        sync_folder(tmp_path)
        os.rename(tmp_path / "staged", tmp_path / "made.db")
    whole = (tmp_path / "made.db").read_bytes()
    last = list(crashes(recording, start=len(recording.events)))
    assert {tuple(crash.files) for crash in last} == {("staged",), ("made.db",)}
    assert {content for crash in last for content in crash.files.values()} == {whole}


def test_what_a_child_writes_counts_as_synced_unless_told_otherwise(tmp_path: Path) -> None:
    for trusted, left in ((True, {b"copy"}), (False, {b"copy", b"", bytes(4), None})):
        name = f"copy-{trusted}"
        with Recording(tmp_path, children_sync=trusted) as recording:
            subprocess.run([sys.executable, "-c", f"open({str(tmp_path / name)!r}, 'w').write('copy')"], check=True)
        assert contents(recording, name) == left


def test_marks_say_what_was_known_at_the_crash(tmp_path: Path) -> None:
    with Recording(tmp_path) as recording:
        put(tmp_path / "a", b"1", sync=True)
        recording.mark("a is there")
        put(tmp_path / "b", b"2", sync=True)
    assert {crash.marks for crash in crashes(recording)} == {(), ("a is there",)}
    assert any("b" in crash.files for crash in crashes(recording) if crash.marks)
    assert not any("b" in crash.files for crash in crashes(recording) if not crash.marks)


def test_crashes_are_the_same_each_time_and_can_be_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with Recording(home) as recording:
        (home / "inner").mkdir()
        put(home / "inner" / "note", b"text" * 400, sync=False)
    first, second = list(crashes(recording)), list(crashes(recording))
    assert first == second
    assert len({_key(crash) for crash in first}) == len(first)
    written = first[-1].write(tmp_path / "after")
    assert {
        str(path.relative_to(written)): path.read_bytes() for path in written.rglob("*") if path.is_file()
    } == first[-1].files


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught, Recording(tmp_path / "none"):
        pass
    assert caught.value.message == f"There is no folder {tmp_path / 'none'}."


def test_os_functions_are_as_before_after_the_block(tmp_path: Path) -> None:
    before = (os.fsync, os.replace, os.unlink)
    with Recording(tmp_path):
        assert os.fsync is not before[0]
    assert (os.fsync, os.replace, os.unlink) == before


def _key(crash: Crash) -> tuple[tuple[str, bytes], ...]:
    return tuple(crash.files.items())
