"""A capture is used only when it is whole, unaltered and in order (report 11)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_state.engine import open_read
from hermes_state.errors import CaptureRefused
from maintenance.recovery.captures.manifest import verify
from maintenance.recovery.captures.order import in_order, require_order
from tests.maintenance.recovery.captures.making import foreign_capture, write_manifest
from tests.support.children import Children

pytestmark = pytest.mark.slow


@pytest.fixture
def db(store_copy: Callable[[str], Path]) -> Path:
    return store_copy("0.19.0")


def session_of(db: Path) -> str:
    with open_read(db) as reader:
        return str(reader.rows("SELECT id FROM sessions ORDER BY id LIMIT 1")[0][0])


@pytest.fixture
def capture(db: Path, child: Children) -> Path:
    return foreign_capture(db, child, session=session_of(db))


def refusal(folder: Path) -> tuple[str, str]:
    with pytest.raises(CaptureRefused) as raised:
        verify(folder)
    assert raised.value.path == folder and raised.value.exit_code == 65
    return raised.value.kind, raised.value.message


def test_a_whole_capture_is_described(capture: Path) -> None:
    found = verify(capture)
    assert (found.commits, found.page_size, found.main is not None) == (4, 4096, True)
    assert found.captured_at == 1789294500.0
    assert found.salts is not None and found.checkpoints == 0


def test_a_capture_that_was_interrupted_is_refused(capture: Path) -> None:
    partial = capture.with_name(capture.name + ".partial")
    capture.rename(partial)
    assert refusal(partial) == (
        "partial",
        f"The capture {partial} cannot be used: it was interrupted while it was made, so it may hold only a part.",
    )


def test_a_missing_payload_is_refused(capture: Path) -> None:
    (capture / "state.db-wal").unlink()
    assert refusal(capture) == (
        "missing", f"The capture {capture} cannot be used: state.db-wal is missing, which its manifest names.",
    )


def test_an_altered_payload_is_refused_although_its_size_is_right(capture: Path) -> None:
    wal = capture / "state.db-wal"
    data = bytearray(wal.read_bytes())
    data[5000] ^= 1
    wal.write_bytes(data)
    assert refusal(capture) == (
        "altered",
        f"The capture {capture} cannot be used: state.db-wal was altered: its SHA-256 is not the manifest's.",
    )


def test_a_payload_of_another_size_is_refused(capture: Path) -> None:
    wal = capture / "state.db-wal"
    size = wal.stat().st_size
    os.truncate(wal, size - 10)
    assert refusal(capture) == (
        "altered",
        f"The capture {capture} cannot be used: state.db-wal has {size - 10} bytes, its manifest says {size}.",
    )


def test_a_file_that_the_manifest_does_not_name_is_refused(capture: Path) -> None:
    write_manifest(capture, "2026-09-13T10:15:00Z", ["state.db"])
    assert refusal(capture) == (
        "unnamed", f"The capture {capture} cannot be used: its manifest does not name state.db-wal.",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "it has no manifest"), ("{", "its manifest is not JSON"), ("[]", "its manifest is no JSON object"),
        ('{"version": 2}', "its manifest is of version 2; this release reads version 1"),
        ('{"version": 1}', "its manifest names no file with a SHA-256"),
    ],
)
def test_a_manifest_that_says_nothing_of_use_is_refused(capture: Path, text: str | None, why: str) -> None:
    (capture / "manifest.json").unlink()
    if text is not None:
        (capture / "manifest.json").write_text(text)
    assert refusal(capture) == ("manifest", f"The capture {capture} cannot be used: {why}.")


def test_a_wal_whose_bytes_are_wrong_under_a_right_hash_is_refused(capture: Path) -> None:
    # The manifest was written after the damage: only the WAL's own checksums can tell.
    wal = capture / "state.db-wal"
    data = bytearray(wal.read_bytes())
    data[32 + 24 + 100] ^= 1
    wal.write_bytes(data)
    write_manifest(capture, "2026-09-13T10:15:00Z")
    kind, message = refusal(capture)
    assert (kind, message) == (
        "wal",
        f"The capture {capture} cannot be used: a frame of state.db-wal before its last commit has a wrong checksum.",
    )

    data[:32] = bytes(32)
    wal.write_bytes(data)
    write_manifest(capture, "2026-09-13T10:15:00Z")
    assert refusal(capture) == (
        "wal_header", f"The capture {capture} cannot be used: the header of state.db-wal is damaged.",
    )


def test_two_generations_are_put_in_order_and_the_wrong_order_is_refused(db: Path, child: Children) -> None:
    session = session_of(db)
    newer = foreign_capture(
        db, child, session=session, prefix="b", stamp="20260101T000000Z", captured_at="2026-09-13T11:00:00Z"
    )
    older = foreign_capture(
        db, child, session=session, prefix="a", stamp="20270101T000000Z", captured_at="2026-09-13T10:00:00Z"
    )
    verified = [verify(newer), verify(older)]

    assert [capture.folder for capture in in_order(verified)] == [older, newer]
    require_order([verified[1], verified[0]])
    with pytest.raises(CaptureRefused) as raised:
        require_order(verified)
    assert (raised.value.kind, raised.value.message) == (
        "order", f"The captures are given in the wrong order: {older} is older than {newer}.",
    )


def test_times_that_the_wals_contradict_are_no_order(db: Path, child: Children, tmp_path: Path) -> None:
    session = session_of(db)
    first = foreign_capture(db, child, session=session, stamp="1", captured_at="2026-09-13T10:00:00Z")
    second = foreign_capture(db, child, session=session, stamp="2", captured_at="2026-09-13T09:00:00Z")
    # The second is of the same WAL file, begun anew once since: salt and checkpoint number are one higher.
    from dataclasses import replace

    one, two = verify(first), verify(second)
    assert one.salts is not None and one.checkpoints is not None
    two = replace(two, salts=(one.salts[0] + 1, 7), checkpoints=one.checkpoints + 1)
    with pytest.raises(CaptureRefused) as raised:
        in_order([one, two])
    assert raised.value.message == (
        f"The order of {second} and {first} is in doubt: by their times the first is older, by their WALs the second."
    )


def test_a_capture_without_a_time_cannot_be_ordered(db: Path, child: Children) -> None:
    session = session_of(db)
    first = foreign_capture(db, child, session=session, stamp="1")
    second = foreign_capture(db, child, session=session, stamp="2")
    told = json.loads((second / "manifest.json").read_text())
    del told["captured_at"]
    (second / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(CaptureRefused) as raised:
        in_order([verify(first), verify(second)])
    assert raised.value.message == (
        f"The order of 2 captures cannot be told: {second} does not say when it was made."
    )
