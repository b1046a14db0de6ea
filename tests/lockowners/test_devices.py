"""The device numbers of the lock table: canned mount tables of btrfs and overlays, and the live ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockowners.devices import device_numbers, mount_of, parse_mountinfo, read_mounts, watch
from lockowners.errors import StoreUnreachable
from lockowners.lock_table import read_table
from tests.lockowners.holding import holding, needs_linux

CANNED = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=invisible
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:40 /sub /srv/my\040store rw shared:5 master:2 - btrfs /dev/vdb rw,subvol=/sub
41 27 0:45 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/u
42 27 0:60 / /net rw - nfs4 host:/x rw
odd line
43 27 zero:1 / /x rw - ext4 /dev/vdc rw
"""


def test_mount_rows_are_read_with_optional_fields_and_escapes() -> None:
    rows = parse_mountinfo(CANNED)
    assert [(row.mount_id, row.device, row.point, row.fs_type) for row in rows] == [
        (22, (0, 21), "/proc", "proc"),
        (27, (254, 0), "/", "ext4"),
        (40, (0, 40), "/srv/my store", "btrfs"),
        (41, (0, 45), "/merged", "overlay"),
        (42, (0, 60), "/net", "nfs4"),
    ]
    assert "hidepid=invisible" in rows[0].options


def canned(folder: Path, mountinfo: str) -> Path:
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "self" / "mountinfo").write_text(mountinfo)
    return folder / "proc"


def test_store_on_btrfs_is_matched_by_the_mounts_device_too_and_only_possibly(store: Path, tmp_path: Path) -> None:
    root = canned(tmp_path, f"1 0 254:0 / / rw - ext4 /dev/vda rw\n40 1 0:40 / {tmp_path} rw - btrfs /dev/vdb rw\n")
    watched = watch(store, root)
    assert watched.devices == {(0, 40), device_numbers(store.stat().st_dev)}
    assert not watched.exact
    assert (0, 40, store.stat().st_ino) in watched.keys_of("main")


def test_store_whose_mount_is_unknown_is_matched_by_its_own_device(store: Path, tmp_path: Path) -> None:
    watched = watch(store, tmp_path / "nothing")
    assert watched.devices == {device_numbers(store.stat().st_dev)}
    assert watched.exact
    assert watched.fs_type == ""


def test_network_mounts_elsewhere_are_not_asked_and_a_store_on_one_says_so(store: Path, tmp_path: Path) -> None:
    root = canned(
        tmp_path,
        f"1 0 254:0 / / rw - ext4 /dev/vda rw\n42 1 0:60 / {tmp_path} rw - nfs4 h:/ rw\n"
        "43 1 0:61 / /n rw - nfs h:/ rw\n",
    )
    watched = watch(store, root)
    assert watched.is_network
    assert watched.distant == ("/n/",)


@needs_linux
def test_live_lock_has_the_device_that_was_worked_out(store: Path) -> None:
    with holding("writing", store) as child:
        watched = watch(store)
        keys = {row.key for row in read_table().lines if row.pid == child.pid}
    assert keys == set(watched.keys_of("main")) | set(watched.keys_of("shm"))


@needs_linux
def test_mount_is_found_by_its_id_where_mount_points_would_mislead(store: Path) -> None:
    row = mount_of(str(store), Path("/proc"), read_mounts(Path("/proc")))
    assert row is not None
    assert row.device == device_numbers(os.stat(store).st_dev)


def test_files_that_do_not_exist_are_not_watched(tmp_path: Path) -> None:
    assert watch(tmp_path / "none.db").files == {}


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs user ids")
def test_path_that_may_not_be_examined_is_an_error_that_says_so(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(StoreUnreachable) as caught:
        watch(loop)
    assert str(caught.value) == f"{loop} cannot be examined: Too many levels of symbolic links"
