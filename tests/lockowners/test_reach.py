"""Proof that a process cannot reach a store: access lists, modes, parents, and every doubt."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockowners.process import Credentials
from lockowners.reach import AclEntry, Gatekeeper, Reach, grants, parse_acl
from tests.lockowners.holding import OTHER_USER, USER, as_user, needs_linux, needs_root

USER_OBJ, NAMED_USER, GROUP_OBJ, NAMED_GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
NOBODY_ID = 0xFFFFFFFF
READ = 4


def acl(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def keeper(mode: int, *entries: tuple[int, int, int]) -> Gatekeeper:
    """A file of user 10 and group 20. As in the kernel, the group bits of a file with an access list are its mask."""
    bits = {tag: bits for tag, bits, _ in entries}
    if entries:
        mode = bits[USER_OBJ] << 6 | bits.get(MASK, bits[GROUP_OBJ]) << 3 | bits[OTHER]
    return Gatekeeper(uid=10, gid=20, mode=mode, acl=parse_acl(acl(*entries)) if entries else None)


def person(
    uid: int = OTHER_USER, *, groups: tuple[int, ...] = (), capabilities: int = 0, saved: int | None = None
) -> Credentials:
    return Credentials(
        uids=(uid, uid, uid if saved is None else saved, uid),
        gids=(uid, uid, uid, uid),
        groups=frozenset(groups),
        capabilities=capabilities,
        pid_depth=0,
    )


@pytest.mark.parametrize(
    ("mode", "uid", "gids", "expected"),
    [
        (0o600, 10, {99}, "yes"),
        (0o600, 11, {20}, "no"),
        (0o640, 11, {20}, "yes"),
        (0o640, 11, {21}, "no"),
        (0o604, 11, {21}, "yes"),
        (0o604, 11, {20}, "no"),  # the group's bits decide for its members, even where others may
        (0o044, 10, {20}, "no"),  # and the owner's for the owner
    ],
)
def test_mode_bits_decide_in_the_kernels_order(mode: int, uid: int, gids: set[int], expected: str) -> None:
    assert grants(keeper(mode), READ, uid, frozenset(gids)) == expected


BASE = ((USER_OBJ, 6, NOBODY_ID), (GROUP_OBJ, 0, NOBODY_ID), (OTHER, 0, NOBODY_ID))


@pytest.mark.parametrize(
    ("extra", "uid", "gids", "expected"),
    [
        (((NAMED_USER, 4, 11), (MASK, 4, NOBODY_ID)), 11, set(), "yes"),
        (((NAMED_USER, 4, 11), (MASK, 0, NOBODY_ID)), 11, set(), "no"),
        (((NAMED_USER, 4, 12), (MASK, 4, NOBODY_ID)), 11, set(), "no"),
        (((NAMED_USER, 0, 11), (NAMED_GROUP, 4, 30), (MASK, 7, NOBODY_ID)), 11, {30}, "no"),
        (((NAMED_GROUP, 4, 30), (MASK, 4, NOBODY_ID)), 11, {30}, "yes"),
        (((NAMED_GROUP, 0, 30), (NAMED_GROUP, 4, 31), (MASK, 7, NOBODY_ID)), 11, {30, 31}, "yes"),
        ((), 10, set(), "yes"),
        ((), 11, {20}, "no"),
    ],
)
def test_access_list_decides_in_the_kernels_order(
    extra: tuple[tuple[int, int, int], ...], uid: int, gids: set[int], expected: str
) -> None:
    assert grants(keeper(0o600, *BASE, *extra), READ, uid, frozenset(gids)) == expected


def test_owner_of_the_group_entry_is_limited_by_the_mask_and_others_are_not() -> None:
    entries = ((USER_OBJ, 6, NOBODY_ID), (GROUP_OBJ, 4, NOBODY_ID), (MASK, 0, NOBODY_ID), (OTHER, 4, NOBODY_ID))
    assert grants(keeper(0o604, *entries), READ, 11, frozenset({20})) == "no"
    assert grants(keeper(0o604, *entries), READ, 11, frozenset({21})) == "yes"


def test_access_list_with_an_empty_mask_is_not_looked_at() -> None:
    entries = ((USER_OBJ, 6, NOBODY_ID), (NAMED_USER, 0, 11), (GROUP_OBJ, 0, NOBODY_ID), (MASK, 0, NOBODY_ID))
    assert grants(keeper(0, *entries, (OTHER, 4, NOBODY_ID)), READ, 11, frozenset({21})) == "yes"


def test_access_list_is_parsed() -> None:
    assert parse_acl(acl((NAMED_USER, 5, 1000))) == (AclEntry(tag=NAMED_USER, bits=5, who=1000),)


@pytest.mark.parametrize("data", [b"", b"\x02", acl() + b"x", struct.pack("<I", 3), acl((64, 4, 1))])
def test_access_list_of_another_form_is_a_doubt(data: bytes) -> None:
    assert parse_acl(data) is None
    assert grants(Gatekeeper(uid=1, gid=1, mode=0, acl="doubt"), READ, 2, frozenset()) == "doubt"


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_doubted(data: bytes) -> None:
    parsed = parse_acl(data)
    assert parsed is None or acl(*((entry.tag, entry.bits, entry.who) for entry in parsed)) == data


@pytest.fixture
def private(open_folder: Path) -> Path:
    """A file that only its owner may open, under folders that all may enter."""
    path = open_folder / "state.db"
    path.touch()
    path.chmod(0o600)
    return path


def excluded(path: Path, who: Credentials, *, same_view: bool = True) -> bool:
    return Reach([str(path)]).is_excluded(who, same_view=same_view)


@needs_linux
class TestProof:
    """On real files."""

    def test_file_closed_to_others_excludes_them(self, private: Path) -> None:
        assert excluded(private, person())

    def test_owner_of_the_file_is_never_excluded_whatever_its_mode(self, private: Path) -> None:
        private.chmod(0)
        assert not excluded(private, person(os.getuid() or 0, saved=0))
        if os.geteuid() == 0:
            os.chown(private, USER, USER)
            assert not excluded(private, person(USER))

    def test_root_in_any_of_the_four_ids_is_never_excluded(self, private: Path) -> None:
        assert not excluded(private, person(saved=0))

    @pytest.mark.parametrize("bit", [1, 2, 7, 21])
    def test_capability_that_overrides_modes_is_never_excluded(self, private: Path, bit: int) -> None:
        assert not excluded(private, person(capabilities=1 << bit))
        assert excluded(private, person(capabilities=1 << 10))

    def test_id_that_stands_for_unmapped_users_is_never_excluded(self, private: Path) -> None:
        assert not excluded(private, person(65534))

    def test_member_of_a_group_with_access_is_not_excluded(self, private: Path) -> None:
        private.chmod(0o640)
        assert not excluded(private, person(groups=(private.stat().st_gid,)))
        assert excluded(private, person())

    def test_folder_closed_to_others_excludes_them_from_an_open_file(self, private: Path) -> None:
        private.chmod(0o666)
        assert not excluded(private, person())
        private.parent.chmod(0o700)
        assert excluded(private, person())

    def test_folder_is_no_proof_for_a_process_with_another_view_or_a_second_name(self, private: Path) -> None:
        private.chmod(0o666)
        private.parent.chmod(0o700)
        assert not excluded(private, person(), same_view=False)
        (private.parent / "second").hardlink_to(private)
        assert not excluded(private, person())

    def test_every_file_of_the_store_must_be_closed(self, private: Path) -> None:
        wal = private.with_name("state.db-wal")
        wal.touch(mode=0o644)
        wal.chmod(0o644)
        assert not Reach([str(private), str(wal)]).is_excluded(person())

    def test_file_that_cannot_be_examined_is_a_doubt(self, private: Path) -> None:
        assert not excluded(private.with_name("none"), person())

    def test_ids_of_a_user_namespace_are_a_doubt(self, private: Path, tmp_path: Path) -> None:
        (tmp_path / "self").mkdir()
        (tmp_path / "self" / "uid_map").write_text("         0     100000      65536\n")
        assert not Reach([str(private)], tmp_path).is_excluded(person())

    def test_privacy_needs_neither_group_nor_others(self, private: Path) -> None:
        assert Reach([str(private)]).is_private()
        private.chmod(0o640)
        assert not Reach([str(private)]).is_private()
        private.parent.chmod(0o700)
        assert Reach([str(private)]).is_private()

    @needs_root
    def test_proof_agrees_with_what_the_kernel_does(self, private: Path) -> None:
        """Every mode of the file and its folder, and named entries of an access list, tried by a real process."""
        program = (
            "import os, sys\n"
            "for line in sys.stdin:\n"
            "    try:\n        os.close(os.open(sys.argv[1], os.O_RDONLY)); print('yes', flush=True)\n"
            "    except OSError: print('no', flush=True)\n"
        )
        command = [*as_user(OTHER_USER), sys.executable, "-c", program, str(private)]
        os.chown(private, USER, USER)
        os.chown(private.parent, USER, USER)
        lists: list[bytes | None] = [None]
        for named, mask in ((4, 7), (0, 7), (4, 0)):
            lists.append(
                acl(
                    (USER_OBJ, 6, NOBODY_ID),
                    (NAMED_USER, named, OTHER_USER),
                    (GROUP_OBJ, 0, NOBODY_ID),
                    (MASK, mask, NOBODY_ID),
                    (OTHER, 4, NOBODY_ID),
                )
            )
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as child:
            assert child.stdin is not None and child.stdout is not None
            for folder_mode in (0o700, 0o701, 0o710, 0o711):
                for file_mode in (0o600, 0o604, 0o640, 0o644, 0o000):
                    for entries in lists:
                        private.parent.chmod(folder_mode)
                        private.chmod(file_mode)
                        if entries is not None:
                            os.setxattr(private, "system.posix_acl_access", entries)
                        child.stdin.write("try\n")
                        could = child.stdout.readline().strip() == "yes"
                        assert excluded(private, person()) is not could, (folder_mode, file_mode, entries)
                        if entries is not None:
                            os.removexattr(private, "system.posix_acl_access")
            child.stdin.close()
