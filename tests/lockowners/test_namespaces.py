"""PID namespaces and hidepid: seen from outside, not seen from inside, and never taken for "nobody"."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lockowners import holders
from tests.lockowners.holding import CHILD, USER, as_user, holding, make_store, needs_linux, needs_root, running

pytestmark = [needs_linux, needs_root]

SCAN = Path(__file__).with_name("scan_child.py")
INSIDE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
INSIDE_OLD_PROC = ("unshare", "--pid", "--fork", "--kill-child")


@cache
def _refusal() -> str:
    try:
        subprocess.run([*INSIDE, "true"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"this machine does not allow PID namespaces: {error}"
    return ""


@pytest.fixture(autouse=True)
def namespaces_allowed() -> None:
    if _refusal():
        pytest.skip(_refusal())


def scan(prefix: tuple[str, ...], store: Path, *, lease: bool = False) -> dict[str, Any]:
    command = [*prefix, sys.executable, str(SCAN), str(store), "/proc", "lease" if lease else "plain"]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout)
    return result


@pytest.mark.parametrize("state", ["idle", "never-read"])
def test_holder_in_a_child_namespace_is_found_from_outside_with_its_namespace(store: Path, state: str) -> None:
    with holding(state, store, prefix=INSIDE):
        found = [holder.process for holder in holders(store).holders]
    assert len(found) == 1
    assert found[0].container is not None
    assert found[0].container.startswith("PID namespace ")
    assert found[0].argv[1:3] == (str(CHILD), state)


def test_scan_from_inside_says_that_it_sees_only_its_own_namespace(store: Path) -> None:
    result = scan(INSIDE, store)
    assert result["holders"] == []
    assert result["note"] == "processes outside this PID namespace"
    assert result["not_visible"] == "not visible: processes outside this PID namespace"
    assert not result["complete"]
    assert not result["replacing"]


def test_holder_outside_the_namespace_is_hidden_but_its_lock_is_felt_from_inside(store: Path) -> None:
    with holding("idle", store):
        blind, felt = scan(INSIDE, store), scan(INSIDE, store, lease=True)
    assert blind["holders"] == []
    assert not blind["complete"]
    assert "1 process outside this PID namespace that holds a lock" in felt["not_visible"]
    assert not felt["in_place"]


def test_never_read_opener_outside_the_namespace_is_proved_by_a_lease_from_inside(store: Path) -> None:
    with holding("never-read", store):
        result = scan(INSIDE, store, lease=True)
    assert result["sole"] is False
    assert not result["in_place"]


def test_nothing_is_refused_in_place_from_inside_when_a_lease_shows_nobody_else(store: Path) -> None:
    result = scan(INSIDE, store, lease=True)
    assert result["sole"] is True
    assert result["in_place"]
    assert not result["replacing"]


def test_outer_process_table_in_a_child_namespace_shows_everybody(store: Path) -> None:
    with holding("idle", store) as child:
        result = scan(INSIDE_OLD_PROC, store, lease=True)
    assert result["holders"] == [child.pid]
    assert result["note"] == ""


def test_hidepid_is_said_and_its_unlisted_users_refuse_what_they_could_reach(open_folder: Path) -> None:
    store = make_store(open_folder / "state.db")
    for path in (open_folder, *open_folder.iterdir()):
        os.chown(path, USER, USER)
    mount = 'mount -t proc -o hidepid=invisible proc /proc && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", mount, "sh", *as_user(USER))
    result = scan(prefix, store)
    assert result["note"] == "processes of other users (/proc is mounted with hidepid)"
    assert not result["complete"]
    assert not result["in_place"]
    open_folder.chmod(0o700)
    assert scan(prefix, store)["in_place"]
    assert not scan(prefix, store)["replacing"]


def test_process_in_a_namespace_ends_with_its_gate(store: Path) -> None:
    with running([*INSIDE, sys.executable, str(CHILD), "idle", str(store)]) as child:
        child.wait_for("ready")
    assert holders(store).holders == ()
