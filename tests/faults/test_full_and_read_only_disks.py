"""A disk that is full, or mounted read-only: named as what it is, with the path, and nothing half is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import errors, open_store
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("a file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def make_store(path: Path, sessions: int = 2, bytes_each: int = 300) -> None:
    with open_store(path=path) as store:
        for number in range(sessions):
            store.sessions.create(id=f"talk{number}", source="cli")
            store.messages.append(f"talk{number}", role="user", content="x" * bytes_each)


def fill(folder: Path) -> None:
    """Use up every block."""
    with open(folder / "ballast", "ab", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"x" * 4096)
        except OSError:
            pass


def without_sidecars(store: Path) -> None:
    for ending in ("-wal", "-shm"):
        Path(f"{store}{ending}").unlink(missing_ok=True)


@pytest.mark.parametrize("read_only", [False, True])
def test_opening_a_store_on_a_full_disk_says_that_the_disk_is_full(disk: Path, read_only: bool) -> None:
    path = disk / "state.db"
    make_store(path)
    without_sidecars(path)
    fill(disk)
    with pytest.raises(errors.DiskFull) as caught, open_store(path=path, read_only=read_only):
        pass
    assert str(caught.value).startswith(
        f"The disk of {path} is full, so opening it failed (ENOSPC: No space left on device). SQLite said: "
    )
    assert caught.value.hint == "Free some space on that file system and repeat."


def test_making_a_store_on_a_full_disk_leaves_nothing(disk: Path) -> None:
    fill(disk)
    with pytest.raises(errors.DiskFull) as caught, open_store(path=disk / "state.db"):
        pass
    assert str(caught.value).startswith(f"The disk of {disk / 'state.db'} is full")
    assert os.listdir(disk) == ["ballast"]


@pytest.mark.parametrize("form", ["jsonl", "json", "html", "sqlite", "hermes-agent", "md"])
def test_an_export_to_a_full_disk_leaves_nothing_and_says_so(
    disk: Path, tmp_path: Path, run_cli: RunCli, form: str
) -> None:
    path = tmp_path / "home" / "state.db"
    make_store(path, sessions=40, bytes_each=60_000)  # more than the disk holds; the first sessions fit
    target = disk / "out" if form == "md" else disk / f"out.{form}"
    result = run_cli("sessions", "export", target, "--format", form, "--json", home=path.parent)
    assert result.exit_code == 1, result.stdout
    error = result.json_error["error"]
    assert error["code"] == "disk_full"
    assert str(target) in error["message"]
    assert error["message"].startswith("The disk of ") and " is full, so writing it failed" in error["message"]
    assert os.listdir(disk) == []


def test_a_failed_export_into_a_folder_leaves_what_was_there(disk: Path, tmp_path: Path, run_cli: RunCli) -> None:
    path = tmp_path / "home" / "state.db"
    make_store(path, sessions=2)
    folder = disk / "out"
    assert run_cli("sessions", "export", folder, "--format", "md", home=path.parent).exit_code == 0
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(before) == {"talk0.md", "talk1.md", "manifest.jsonl"}
    with open_store(path=path) as store:
        for number in range(40):
            store.sessions.create(id=f"more{number}", source="cli")
            store.messages.append(f"more{number}", role="user", content="x" * 60_000)
    result = run_cli("sessions", "export", folder, "--format", "md", "--force", "--json", home=path.parent)
    assert result.json_error["error"]["code"] == "disk_full"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_store_on_a_read_only_mount_is_named_as_such(disk: Path) -> None:
    path = disk / "state.db"
    make_store(path)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(errors.ReadOnlyStore) as caught, open_store(path=path):
        pass
    assert str(caught.value) == f"{path} lies on a file system that is mounted read-only, so opening it failed."
    assert caught.value.hint == (
        "Mount it writable, or copy the file (with its -wal, if there is one) to another disk and use the copy."
    )
    for new, named in ((disk / "new.db", disk / "new.db"), (disk / "folder" / "new.db", disk / "folder")):
        with pytest.raises(errors.ReadOnlyStore) as caught, open_store(path=new):
            pass
        assert str(caught.value) == f"{named} lies on a file system that is mounted read-only, so creating it failed."


def test_reading_a_store_without_sidecars_on_a_read_only_mount_says_why_it_cannot_be(disk: Path) -> None:
    path = disk / "state.db"
    make_store(path)
    without_sidecars(path)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(errors.ReadOnlyStore) as caught, open_store(path=path, read_only=True):
        pass
    assert str(caught.value).startswith(
        f"{path} lies on a file system that is mounted read-only, so opening it failed. SQLite said: "
    )


def test_exporting_to_a_read_only_mount_says_so(disk: Path, tmp_path: Path, run_cli: RunCli) -> None:
    path = tmp_path / "home" / "state.db"
    make_store(path)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    result = run_cli("sessions", "export", disk / "out.jsonl", "--json", home=path.parent)
    assert result.json_error["error"]["message"] == (
        f"{disk / 'out.jsonl'} lies on a file system that is mounted read-only, so writing it failed."
    )


@pytest.mark.parametrize("read_only", [False, True])
def test_a_loop_of_links_is_an_error_of_the_tree(tmp_path: Path, read_only: bool) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.symlink_to(two)
    two.symlink_to(one)
    with pytest.raises(errors.CannotOpen) as caught, open_store(path=one, read_only=read_only):
        pass
    assert str(caught.value) == f"Opening {one} failed (ELOOP: Too many levels of symbolic links)."
    assert caught.value.hint == "A link in it leads back to itself: see `namei -l` on the path."
    with pytest.raises(errors.CannotOpen) as caught, open_store(home=one):
        pass
    assert str(caught.value) == f"Opening {one / 'state.db'} failed (ELOOP: Too many levels of symbolic links)."


def test_a_name_that_is_too_long_and_a_file_as_folder_are_errors_of_the_tree(tmp_path: Path) -> None:
    long = tmp_path / ("n" * 300)
    with pytest.raises(errors.CannotOpen) as caught, open_store(path=long):
        pass
    assert str(caught.value) == f"Opening {long} failed (ENAMETOOLONG: File name too long)."
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.CannotOpen) as caught, open_store(path=tmp_path / "file" / "state.db"):
        pass
    assert str(caught.value) == f"Opening {tmp_path / 'file' / 'state.db'} failed (ENOTDIR: Not a directory)."


OPEN_UNTIL_NONE_IS_LEFT = """
import resource, sys
from hermes_state import errors, open_store
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = []
try:
    while True:
        kept.append(open_store(path=f"{sys.argv[1]}/{len(kept)}.db"))
except errors.StateError as error:
    print(type(error).__name__, len(kept), error.facts["errno"], error.message)
"""


def test_too_many_open_files_are_named_as_such(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OPEN_UNTIL_NONE_IS_LEFT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    kind, opened, number, sentence = ran.stdout.split(" ", 3)
    assert (kind, int(opened) > 5, number) == ("CannotOpen", True, "24")
    assert sentence.startswith("This process has run out of file descriptors, so ")
    assert " failed (EMFILE: Too many open files)." in sentence
