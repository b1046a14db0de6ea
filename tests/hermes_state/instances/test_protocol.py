"""Versions of frames and cursors, and the codes with which sockets close (T1.46, T1.47)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import CursorVersionRefused, FrameRefused, InvalidInput, VersionIncompatible
from hermes_state.instances.close_codes import CLOSINGS, CloseCode, closing
from hermes_state.instances.protocol import (
    VersionRange,
    negotiate,
    refuse_other_version,
    restamped,
    resume,
    save_cursor,
    stamped,
)
from hermes_state.store import Store
from hermes_state.testing import temporary_store

OURS = VersionRange(2, 3)


@pytest.fixture(name="store")
def gateway_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def test_two_ranges_agree_on_the_highest_version_of_both_or_on_none() -> None:
    """T1.46, every pair of ranges within 1 to 5."""
    ranges = [VersionRange(low, high) for low in range(1, 6) for high in range(low, 6)]
    for one, other in product(ranges, ranges):
        both = {version for version in range(1, 6) if version in one and version in other}
        assert one.common(other) == max(both, default=None)
        assert one.common(other) == other.common(one)


def test_refusal_says_which_side_is_older() -> None:
    for theirs, hint in ((VersionRange(1, 1), "Update the plugin."), (VersionRange(4, 9), "Update the server.")):
        with pytest.raises(VersionIncompatible) as error:
            negotiate(OURS, theirs, instance_id="mac")
        assert error.value.hint == hint


@pytest.mark.parametrize(("lowest", "highest"), [(0, 1), (3, 2), (-1, -1), (1, 2**31), (True, 2), (1.0, 2)])
def test_range_that_is_none_is_refused(lowest: Any, highest: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        VersionRange(lowest, highest)
    assert str(error.value) == (
        f"A range of protocol versions goes from 1 upwards, not from {lowest!r} to {highest!r}."
    )


def test_stored_frame_of_an_older_version_goes_out_in_the_agreed_one() -> None:
    """T1.47, R31: one frame that was queued before an update must not close the socket."""
    queued = stamped({"type": "home.deliver", "id": "d1"}, 2)
    assert restamped(queued, agreed=3, ours=OURS) == {"type": "home.deliver", "id": "d1", "version": 3}
    with pytest.raises(FrameRefused) as error:
        restamped(stamped({"type": "home.deliver"}, 1), agreed=3, ours=OURS)
    assert str(error.value) == "A frame of type 'home.deliver' is of protocol 1; 2 to 3 was expected."


@pytest.mark.parametrize("version", [2, 4, "3", None, True, 3.5])
def test_received_frame_of_another_version_than_its_connection_is_refused_by_name(version: Any) -> None:
    """T1.47."""
    refuse_other_version({"type": "turn.completed", "version": 3}, agreed=3)
    with pytest.raises(FrameRefused) as error:
        refuse_other_version({"type": "turn.completed", "version": version}, agreed=3)
    assert str(error.value) == f"A frame of type 'turn.completed' is of protocol {version!r}; 3 was expected."


def test_cursor_of_an_older_version_in_range_resumes_and_one_out_of_range_is_refused_and_kept(store: Store) -> None:
    """T1.47."""
    core = store.core
    core.write(lambda tx: save_cursor(tx, "mac", "transcript", version=2, position="t:17", at=5.0))
    with core.reader() as reader:
        found = resume(reader, "mac", "transcript", ours=OURS)
        assert found is not None
        assert (found.version, found.position, found.saved_at) == (2, "t:17", 5.0)
        assert resume(reader, "mac", "another", ours=OURS) is None
        for _ in range(2):  # refusing it deletes nothing
            with pytest.raises(CursorVersionRefused) as error:
                resume(reader, "mac", "transcript", ours=VersionRange(3, 4))
        assert str(error.value) == (
            f"Cursor 'transcript' of instance 'mac' in {store.path} is of protocol 2; this server speaks 3 to 4."
        )
        assert resume(reader, "mac", "transcript", ours=OURS) == found
    core.write(lambda tx: save_cursor(tx, "mac", "transcript", version=3, position="t:18", at=6.0))
    with core.reader() as reader:
        again = resume(reader, "mac", "transcript", ours=VersionRange(3, 4))
    assert again is not None
    assert (again.version, again.position) == (3, "t:18")


@pytest.mark.parametrize("fields", [{"name": ""}, {"instance_id": ""}, {"version": 0}, {"position": "x" * 4097}])
def test_cursor_that_cannot_be_is_refused(store: Store, fields: dict[str, Any]) -> None:
    given = {"instance_id": "mac", "name": "transcript", "version": 2, "position": "p"} | fields
    with pytest.raises(InvalidInput):
        store.core.write(lambda tx: save_cursor(
            tx, given["instance_id"], given["name"], version=given["version"], position=given["position"], at=1.0
        ))


def test_close_codes_are_the_table_and_nothing_between() -> None:
    known = {4001: False, 4002: True, 4003: False, 4004: False, 4008: True}
    found = {code: closing(code) for code in range(3999, 4010)}
    assert {code: one.reconnects for code, one in found.items() if one is not None} == known
    assert set(CLOSINGS) == set(CloseCode)
    assert all(len(one.reason.encode()) <= 123 for one in CLOSINGS.values())  # the limit of a close frame
