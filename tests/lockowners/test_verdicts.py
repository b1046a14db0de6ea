"""The verdict's table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lockowners import Hidden, Holder, Process, Scan, verdict

CLEAR = Scan(
    path=Path("/s.db"),
    holders=(),
    hidden=(),
    excluded_count=0,
    complete=True,
    method="procfs",
    namespace_note="",
    elapsed_seconds=0.01,
)
GATEWAY = Process(pid=77, start_ticks=1, uid=5, user="ann", command="hermes gateway run", role="gateway")
BY_LOCK = Holder(process=GATEWAY, via=frozenset({"lock", "descriptor"}))
BY_DESCRIPTOR = Holder(process=GATEWAY, via=frozenset({"descriptor"}))
STALE = Holder(process=GATEWAY, via=frozenset({"descriptor"}), stale=True)
ROOT = Hidden(user="root", uid=0, count=68)
ANN = Hidden(user="ann", uid=5, count=1)
FELT = Hidden(user="outside this PID namespace that holds a lock", count=1, holds=True)
NOTE = "processes outside this PID namespace"


def judged(scan: Scan, *, exclusive: bool = True, replaces: bool = False) -> tuple[bool, tuple[str, ...]]:
    result = verdict(scan, exclusive_obtained=exclusive, replaces_inode=replaces)
    return result.allowed, result.reasons


def test_clear_scan_under_the_exclusive_lock_is_allowed_for_both() -> None:
    assert judged(CLEAR) == (True, ())
    assert judged(CLEAR, replaces=True) == (True, ())


def test_nothing_is_allowed_without_the_exclusive_lock() -> None:
    assert judged(CLEAR, exclusive=False) == (False, ("SQLite's exclusive lock was not obtained",))


@pytest.mark.parametrize(
    ("holder", "reason"),
    [
        (BY_LOCK, "PID 77 (hermes gateway run) has a lock on the store"),
        (BY_DESCRIPTOR, "PID 77 (hermes gateway run) has the store open"),
        (STALE, "PID 77 (hermes gateway run) works on a deleted file of the store"),
    ],
)
def test_each_holder_refuses_both_and_is_named(holder: Holder, reason: str) -> None:
    scan = replace(CLEAR, holders=(holder,), sole_opener=True)
    assert judged(scan) == (False, (reason,))
    assert judged(scan, replaces=True) == (False, (reason,))


def test_unreadable_processes_of_root_are_said_and_refuse_only_a_replacement() -> None:
    scan = replace(CLEAR, hidden=(ROOT,), complete=False)
    result = verdict(scan, exclusive_obtained=True, replaces_inode=False)
    assert (result.allowed, result.not_visible) == (True, "not visible: 68 processes of root")
    assert judged(scan, replaces=True) == (
        False,
        ("68 processes of root cannot be looked into, and a file would be replaced",),
    )


def test_unreadable_processes_of_another_user_refuse_both() -> None:
    scan = replace(CLEAR, hidden=(ANN,), complete=False)
    assert judged(scan) == (False, ("1 process of ann cannot be looked into and may have the store open",))
    assert judged(scan, replaces=True) == (
        False,
        ("1 process of ann cannot be looked into, and a file would be replaced",),
    )


def test_lease_clears_unreadable_processes_in_place_and_not_for_a_replacement() -> None:
    scan = replace(CLEAR, hidden=(ROOT, ANN), complete=False, sole_opener=True)
    assert judged(scan) == (True, ())
    assert not judged(scan, replaces=True)[0]


def test_lease_clears_unreadable_processes_for_new_content_in_the_same_file() -> None:
    seen = replace(CLEAR, hidden=(ROOT, ANN), namespace_note=NOTE, complete=False)
    for sole, allowed in ((True, True), (False, False), (None, False)):
        found = verdict(replace(seen, sole_opener=sole), exclusive_obtained=True, replaces_content=True)
        assert found.allowed is allowed


def test_proved_holder_that_cannot_be_named_refuses_both_even_beside_a_lease() -> None:
    scan = replace(CLEAR, hidden=(FELT,), complete=False, sole_opener=True)
    reason = "1 process outside this PID namespace that holds a lock: its owner cannot be named from here"
    assert judged(scan) == (False, (reason,))
    assert judged(scan, replaces=True) == (False, (reason,))


@pytest.mark.parametrize(
    ("unlisted", "sole", "in_place"),
    [(False, None, True), (True, None, False), (True, True, True), (True, False, False)],
)
def test_limited_view_refuses_in_place_only_when_other_users_could_be_unseen(
    unlisted: bool, sole: bool | None, in_place: bool
) -> None:
    scan = replace(CLEAR, namespace_note=NOTE, complete=False, unlisted_users=unlisted, sole_opener=sole)
    assert judged(scan)[0] is in_place
    assert judged(scan, replaces=True) == (
        False,
        (f"not everything can be seen from here, and a file would be replaced: {NOTE}",),
    )


def test_what_is_not_visible_is_one_line() -> None:
    scan = replace(CLEAR, hidden=(ROOT, ANN), namespace_note=NOTE, complete=False)
    assert scan.not_visible == f"not visible: 68 processes of root, 1 process of ann; {NOTE}"
    assert CLEAR.not_visible == ""
