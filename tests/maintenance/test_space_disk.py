"""Room for a rewrite: asked for where it will be written, refused with the numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_state.errors import InsufficientSpace
from maintenance.space.disk import MARGIN_BYTES, Need, Room, fits_in_memory, require_room, rooms, temporary_directory


def test_needs_on_one_file_system_are_added_up(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    found = rooms(
        [Need(directory=tmp_path, bytes=100, what="log"), Need(directory=inner, bytes=50, what="copy")],
        free=lambda _directory: 10**9,
    )
    assert found == (Room(directory=tmp_path, needed_bytes=150 + MARGIN_BYTES, free_bytes=10**9),)


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a second file system")
def test_needs_on_two_file_systems_are_kept_apart(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if os.stat(other).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("both directories are on one file system")
    found = rooms([Need(directory=tmp_path, bytes=100, what="log"), Need(directory=other, bytes=50, what="temporary")])
    assert [(room.directory, room.needed_bytes) for room in found] == [
        (tmp_path, 100 + MARGIN_BYTES),
        (other, 50 + MARGIN_BYTES),
    ]


def test_too_little_room_is_refused_with_the_numbers(tmp_path: Path) -> None:
    room = Room(directory=tmp_path, needed_bytes=3 * 1024**3, free_bytes=1024**3)
    with pytest.raises(InsufficientSpace) as refused:
        require_room((room,), what="Optimizing this store")
    assert str(refused.value) == (
        f"Optimizing this store needs 3.0 GiB on the file system of {tmp_path}, and 1.0 GiB are free. "
        "Nothing was changed."
    )
    assert refused.value.hint == "Free 2.0 GiB there, or move the store to a larger file system."
    assert refused.value.facts == {
        "needed_bytes": 3 * 1024**3,
        "free_bytes": 1024**3,
        "directory": str(tmp_path),
    }
    assert refused.value.exit_code == 1


def test_sqlites_own_variable_comes_first_for_temporary_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    assert temporary_directory({"SQLITE_TMPDIR": str(first), "TMPDIR": str(second)}) == first
    assert temporary_directory({"SQLITE_TMPDIR": str(tmp_path / "absent"), "TMPDIR": str(second)}) == second


def machine(tmp_path: Path, *, available_kib: int, limit: str | None = None) -> dict[str, Path]:
    (tmp_path / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available_kib} kB\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text("0\n")
    return {"proc_root": tmp_path, "cgroup_root": tmp_path}


@pytest.mark.parametrize(
    ("wanted", "available_kib", "limit", "fits"),
    [
        (100 * 1024**2, 8 * 1024**2, None, True),
        (100 * 1024**2, 300 * 1024, None, False),
        (100 * 1024**2, 8 * 1024**2, str(200 * 1024**2), False),
        (100 * 1024**2, 8 * 1024**2, "max", True),
        (3 * 1024**3, 900 * 1024**2, None, False),
    ],
)
def test_a_temporary_copy_stays_in_memory_only_where_a_quarter_of_it_is_enough(
    tmp_path: Path, wanted: int, available_kib: int, limit: str | None, fits: bool
) -> None:
    assert fits_in_memory(wanted, **machine(tmp_path, available_kib=available_kib, limit=limit)) is fits


def test_where_the_system_does_not_say_how_much_memory_it_has_the_disk_is_used(tmp_path: Path) -> None:
    assert not fits_in_memory(1, proc_root=tmp_path / "absent", cgroup_root=tmp_path)
