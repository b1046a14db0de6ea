"""The mount that a store lies on is found from the mount table, and WAL is refused where it cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.engine.filesystem import FileSystem, check_wal_allowed, file_system_of
from hermes_state.errors import Refused

TABLE = rb"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
24 22 0:22 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1024k
30 22 0:50 / /mnt/share rw,relatime - virtiofs share0 rw
31 22 0:51 / /mnt/nine rw,relatime - 9p host0 rw,trans=virtio
32 22 0:52 / /mnt/nfs rw,relatime - nfs4 files.example:/export rw,vers=4.2
33 22 0:53 / /mnt/cifs rw,relatime - cifs //files.example/home rw
34 22 0:54 / /mnt/smb rw,relatime - smb3 //files.example/home rw
35 22 0:55 / /mnt/ssh rw,relatime - fuse.sshfs me@files.example:/home/me rw
36 22 0:56 / /mnt/pool rw,relatime - zfs pool/home rw
37 22 0:57 /@home /mnt/tree rw,relatime - btrfs /dev/sdb1 rw,subvol=/@home
38 22 0:58 / /mnt/layer rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u
39 22 8:17 / /mnt/usb rw,relatime - fuseblk /dev/sdc1 rw
40 22 0:59 / /mnt/odd rw,relatime - fuse.encfs encfs rw
41 22 8:33 /data/hermes /mnt/share/volume rw,relatime - xfs /dev/sdd1 rw
42 22 0:60 / /mnt/my\040share\134x rw,relatime - nfs files.example:/a\040b rw
43 22 0:61 / /mnt/new rw,relatime - somethingfs none rw
44 22 0:62 / /mnt/shared rw,relatime - ext4 /dev/sde1 rw
45 22 0:63 / /mnt/twice rw,relatime - ext4 /dev/sdf1 rw
46 45 0:64 / /mnt/twice rw,relatime - nfs files.example:/twice rw
this line is not a mount
"""


@pytest.fixture
def proc_root(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "mountinfo").write_bytes(TABLE)
    return tmp_path / "proc"


@pytest.mark.parametrize(
    ("path", "kind", "wal"),
    [
        ("/home/me/.hermes/state.db", "ext4", "safe"),
        ("/tmp/state.db", "tmpfs", "advice"),
        ("/mnt/share/state.db", "virtiofs", "unsafe"),
        ("/mnt/nine/state.db", "9p", "unsafe"),
        ("/mnt/nfs/state.db", "nfs4", "unsafe"),
        ("/mnt/cifs/state.db", "cifs", "unsafe"),
        ("/mnt/smb/state.db", "smb3", "unsafe"),
        ("/mnt/ssh/state.db", "fuse.sshfs", "unsafe"),
        ("/mnt/pool/state.db", "zfs", "advice"),
        ("/mnt/tree/state.db", "btrfs", "advice"),
        ("/mnt/layer/state.db", "overlay", "advice"),
        ("/mnt/usb/state.db", "fuseblk", "safe"),
        ("/mnt/odd/state.db", "fuse.encfs", "advice"),
        ("/mnt/new/state.db", "somethingfs", "advice"),
    ],
)
def test_each_type_of_file_system_has_its_verdict(path: str, kind: str, wal: str, proc_root: Path) -> None:
    found = file_system_of(Path(path), proc_root=proc_root, platform="linux")
    assert (found.type, found.wal) == (kind, wal)
    assert found.reason.endswith(".")


def test_a_volume_mounted_inside_a_share_is_the_volume(proc_root: Path) -> None:
    assert file_system_of(Path("/mnt/share/volume/state.db"), proc_root=proc_root, platform="linux") == FileSystem(
        type="xfs",
        mount_point="/mnt/share/volume",
        source="/dev/sdd1",
        wal="safe",
        reason="xfs is a local disk.",
    )


def test_a_mount_point_is_a_prefix_by_whole_names_only(proc_root: Path) -> None:
    assert file_system_of(Path("/mnt/shared/state.db"), proc_root=proc_root, platform="linux").type == "ext4"
    assert file_system_of(Path("/mnt/share-old/state.db"), proc_root=proc_root, platform="linux").mount_point == "/"


def test_of_two_mounts_on_one_point_the_later_counts(proc_root: Path) -> None:
    assert file_system_of(Path("/mnt/twice/state.db"), proc_root=proc_root, platform="linux").type == "nfs"


def test_escaped_spaces_and_backslashes_in_mount_points_are_undone(proc_root: Path) -> None:
    found = file_system_of(Path("/mnt/my share\\x/state.db"), proc_root=proc_root, platform="linux")
    assert (found.mount_point, found.source, found.type) == ("/mnt/my share\\x", "files.example:/a b", "nfs")


def test_a_symlinked_home_is_judged_by_where_it_leads(proc_root: Path, tmp_path: Path) -> None:
    table = f"22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 0:9 / {tmp_path}/real rw - nfs4 host:/x rw\n"
    (proc_root / "self" / "mountinfo").write_text(table)
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    assert file_system_of(tmp_path / "home" / "state.db", proc_root=proc_root, platform="linux").type == "nfs4"


def test_wal_is_refused_on_a_cross_vm_share_with_the_reason_and_the_way_out(proc_root: Path) -> None:
    with pytest.raises(Refused) as refused:
        check_wal_allowed(Path("/mnt/share/state.db"), proc_root=proc_root, platform="linux")
    assert str(refused.value) == (
        "/mnt/share/state.db lies on virtiofs (share0 on /mnt/share), where WAL cannot be used safely."
    )
    assert refused.value.hint == (
        "virtiofs crosses a virtual machine's border, so processes on both sides share no memory. "
        "Keep the store on a local disk or a named volume, or in rollback-journal mode."
    )


def test_wal_is_not_refused_where_there_is_only_advice(proc_root: Path) -> None:
    assert check_wal_allowed(Path("/mnt/tree/state.db"), proc_root=proc_root, platform="linux").wal == "advice"


def test_other_systems_say_that_they_do_not_know() -> None:
    found = file_system_of(Path("/Users/me/.hermes/state.db"), platform="darwin")
    assert found == FileSystem(
        type="unknown",
        mount_point="",
        source="",
        wal="unknown",
        reason="The mount table is not read on darwin; check by hand that this is a local disk.",
    )


def test_an_unreadable_mount_table_is_unknown_not_safe(tmp_path: Path) -> None:
    found = file_system_of(Path("/x/state.db"), proc_root=tmp_path / "none", platform="linux")
    assert (found.type, found.wal) == ("unknown", "unknown")
    assert found.reason == (
        "The mount table cannot be read (No such file or directory); check by hand that this is a local disk."
    )


def test_this_machine_has_a_mount_for_the_test_folder(tmp_path: Path) -> None:
    assert file_system_of(tmp_path / "state.db").mount_point != ""
