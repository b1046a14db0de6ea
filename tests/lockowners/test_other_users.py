"""Must-show: the scan as an unprivileged user beside root's processes, and beside those of other users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lockowners.holding import OTHER_USER, USER, as_user, holding, make_store, needs_linux, needs_root

pytestmark = [needs_linux, needs_root]

SCAN = Path(__file__).with_name("scan_child.py")


def scan_as(uid: int, store: Path, *, lease: bool = False) -> dict[str, Any]:
    command = [*as_user(uid), sys.executable, str(SCAN), str(store), "/proc", "lease" if lease else "plain"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout
    result: dict[str, Any] = json.loads(output)
    return result


@pytest.fixture
def users_store(open_folder: Path) -> Path:
    """A store of USER that no other ordinary user may open."""
    folder = open_folder / "home"
    folder.mkdir()
    store = make_store(folder / "state.db")
    for path in (folder, *folder.iterdir()):
        os.chown(path, USER, USER)
    folder.chmod(0o700)
    return store


def test_unprivileged_scan_says_that_roots_processes_are_not_visible_and_allows_only_in_place(
    users_store: Path,
) -> None:
    result = scan_as(USER, users_store)
    assert result["holders"] == []
    assert result["hidden"]["root"] >= 1
    assert not result["complete"]
    count = result["hidden"]["root"]
    assert result["not_visible"] == f"not visible: {count} process{'' if count == 1 else 'es'} of root"
    assert result["in_place"]
    assert not result["replacing"]


def test_kernel_threads_are_not_counted_as_processes_of_root(users_store: Path) -> None:
    listed = [name for name in os.listdir("/proc") if name.isdigit()]
    assert scan_as(USER, users_store)["hidden"]["root"] < len(listed) - 3


def test_holder_of_the_same_user_is_found_by_an_unprivileged_scan(users_store: Path) -> None:
    with holding("never-read", users_store, prefix=as_user(USER)) as child:
        result = scan_as(USER, users_store)
    assert result["holders"] == [child.pid]
    assert not result["in_place"]


def test_roots_holder_with_a_lock_is_named_by_an_unprivileged_scan(users_store: Path) -> None:
    with holding("idle", users_store) as child:
        result = scan_as(USER, users_store)
    assert (result["holders"], result["users"]) == ([child.pid], ["root"])
    assert not result["in_place"]


def test_roots_never_read_opener_is_not_visible_to_a_plain_scan_and_refuses_a_replacement(users_store: Path) -> None:
    with holding("never-read", users_store):
        result = scan_as(USER, users_store)
    assert result["holders"] == []
    assert "root" in result["not_visible"]
    assert not result["replacing"]


def test_roots_never_read_opener_is_proved_by_a_lease_and_refuses_in_place_too(users_store: Path) -> None:
    with holding("never-read", users_store):
        result = scan_as(USER, users_store, lease=True)
    assert result["sole"] is False
    assert result["reasons"] == [
        "1 process that has the file open and is not among the visible ones: its owner cannot be named from here"
    ]
    assert not result["in_place"]
    assert scan_as(USER, users_store, lease=True)["in_place"]


def test_process_of_another_user_that_cannot_reach_the_file_is_excluded_by_proof(
    users_store: Path, tmp_path: Path
) -> None:
    with holding("idle", _their_own_store(users_store.parent.parent), prefix=as_user(OTHER_USER)):
        result = scan_as(USER, users_store)
    assert result["excluded"] >= 1
    assert f"uid {OTHER_USER}" not in result["not_visible"]
    assert result["in_place"]


def test_process_of_another_user_that_can_reach_the_file_refuses_both(open_folder: Path) -> None:
    store = _their_own_store(open_folder, owner=USER)
    for path in store.parent.iterdir():
        path.chmod(0o644)
    with holding("idle", _their_own_store(open_folder), prefix=as_user(OTHER_USER)):
        result = scan_as(USER, store)
    assert result["hidden"][f"uid {OTHER_USER}"] == 1
    assert f"1 process of uid {OTHER_USER} cannot be looked into and may have the store open" in result["reasons"]
    assert not result["in_place"]
    assert not result["replacing"]


def test_lease_clears_an_unreadable_process_that_could_reach_the_file_but_has_it_not_open(open_folder: Path) -> None:
    store = _their_own_store(open_folder, owner=USER)
    for path in store.parent.iterdir():
        path.chmod(0o644)
    with holding("idle", _their_own_store(open_folder), prefix=as_user(OTHER_USER)):
        result = scan_as(USER, store, lease=True)
    assert result["sole"] is True
    assert result["in_place"]
    assert not result["replacing"]
    assert f"1 process of uid {OTHER_USER}" in result["not_visible"]


def test_other_users_holder_is_found_by_root(open_folder: Path) -> None:
    store = _their_own_store(open_folder)
    with holding("never-read", store, prefix=as_user(OTHER_USER)) as child:
        result = scan_as(0, store)
    assert (result["holders"], result["users"]) == ([child.pid], [f"uid {OTHER_USER}"])


def test_own_process_that_cannot_be_looked_into_refuses_unless_a_lease_clears_it(users_store: Path) -> None:
    elsewhere = _their_own_store(users_store.parent.parent, owner=USER)
    with holding("unreadable-idle", elsewhere, prefix=as_user(USER)):
        plain, leased = scan_as(USER, users_store), scan_as(USER, users_store, lease=True)
    assert not plain["in_place"]
    assert leased["in_place"]


def test_own_process_that_cannot_be_looked_into_is_found_by_its_locks(users_store: Path) -> None:
    with holding("unreadable-idle", users_store, prefix=as_user(USER)) as child:
        assert scan_as(USER, users_store)["holders"] == [child.pid]


def _their_own_store(folder: Path, *, owner: int = OTHER_USER) -> Path:
    place = folder / f"of-{owner}"
    place.mkdir()
    store = make_store(place / "state.db")
    for path in (place, *place.iterdir()):
        os.chown(path, owner, owner)
    return store
