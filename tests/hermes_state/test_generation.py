"""The generation guard: no commit is reported as done on files that the path no longer names."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from hermes_state import errors
from hermes_state.clock import FakeClock
from hermes_state.engine import Store, open_read, open_write
from tests.support.native import bodies, make_store

ADD = "INSERT INTO note(body) VALUES(?)"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "state.db", rows=3)


def unlink_wal(path: Path) -> None:
    os.unlink(f"{path}-wal")


def unlink_shm(path: Path) -> None:
    os.unlink(f"{path}-shm")


def unlink_both(path: Path) -> None:
    unlink_wal(path)
    unlink_shm(path)


def rename_wal_away(path: Path) -> None:
    os.rename(f"{path}-wal", f"{path}-wal.old")


def replace_main(path: Path) -> None:
    other = make_store(path.with_name("other.db"), rows=1)
    os.replace(other, path)


def rename_main_away(path: Path) -> None:
    os.rename(path, path.with_name("elsewhere.db"))


EVENTS = [
    (unlink_wal, ("wal",)), (unlink_shm, ("shm",)), (unlink_both, ("wal", "shm")), (rename_wal_away, ("wal",)),
    (replace_main, ("main",)), (rename_main_away, ("main",)),
]


def write_one(writer: Store, body: str = "one") -> None:
    with writer.transaction() as transaction:
        transaction.execute(ADD, (body,))


@pytest.mark.parametrize(("event", "lost"), EVENTS, ids=[event.__name__ for event, _ in EVENTS])
def test_write_after_the_event_is_refused_and_captured(store: Path, event, lost, fake_clock: FakeClock) -> None:
    writer = open_write(store, clock=fake_clock)
    write_one(writer, "before")
    event(store)
    with pytest.raises(errors.GenerationLost) as refused:
        write_one(writer, "after")
    assert (refused.value.lost, refused.value.committed) == (lost, False)
    capture = refused.value.capture
    assert capture is not None
    assert capture.name == f"state.db.retired-wal-20270115T080000Z-{os.getpid()}"
    assert bodies(capture / "copy.db") == ["row 0", "row 1", "row 2", "before"]
    with pytest.raises(errors.GenerationLost) as again:
        writer.rows("SELECT 1")
    assert again.value is refused.value
    writer.close()


@pytest.mark.parametrize(("event", "lost"), EVENTS, ids=[event.__name__ for event, _ in EVENTS])
def test_event_between_begin_and_commit_is_seen_before_the_commit(store: Path, event, lost) -> None:
    writer = open_write(store)
    with pytest.raises(errors.GenerationLost) as refused, writer.transaction() as transaction:
        transaction.execute(ADD, ("in flight",))
        event(store)
    assert (refused.value.lost, refused.value.committed) == (lost, False)
    assert bodies(refused.value.capture / "copy.db") == ["row 0", "row 1", "row 2"]


@pytest.mark.parametrize(("event", "lost"), EVENTS, ids=[event.__name__ for event, _ in EVENTS])
def test_event_during_the_commit_is_reported_as_committed_and_its_rows_are_captured(store: Path, event, lost) -> None:
    writer = open_write(store)
    after_commit = writer._after_commit

    def event_first() -> None:
        event(store)
        after_commit()

    writer._after_commit = event_first  # type: ignore[method-assign]
    with pytest.raises(errors.GenerationLost) as reported:
        write_one(writer, "committed to the old files")
    assert (reported.value.lost, reported.value.committed) == (lost, True)
    assert bodies(reported.value.capture / "copy.db")[-1] == "committed to the old files"


@pytest.mark.parametrize(("event", "lost"), EVENTS, ids=[event.__name__ for event, _ in EVENTS])
def test_checkpoint_and_close_notice_it_too(store: Path, event, lost) -> None:
    first, second = open_write(store), open_write(store)
    write_one(first)
    event(store)
    with pytest.raises(errors.GenerationLost) as refused:
        first.checkpoint()
    assert refused.value.lost == lost
    with pytest.raises(errors.GenerationLost) as at_close:
        second.close()
    assert at_close.value.lost == lost


def test_wal_truncated_in_place_is_seen_by_its_length(store: Path) -> None:
    writer = open_write(store)
    write_one(writer)
    os.truncate(f"{store}-wal", 0)
    with pytest.raises(errors.GenerationLost) as refused:
        write_one(writer)
    assert (refused.value.lost, refused.value.committed) == (("wal",), False)


def test_wal_overwritten_in_place_is_seen_by_its_salt(store: Path, live_store_audit_hook) -> None:
    writer = open_write(store)
    write_one(writer)
    descriptor = writer.descriptors.wal
    assert descriptor is not None
    os.pwrite(descriptor, b"\x55" * 8, 16)
    with pytest.raises(errors.GenerationLost) as refused:
        write_one(writer)
    assert refused.value.lost == ("wal",)


def test_database_zeroed_in_place_is_seen_by_its_header(store: Path) -> None:
    writer = open_write(store)
    write_one(writer)
    descriptor = writer.descriptors.main
    # SQLite opened its descriptor for writing, so the accident can be staged through it without cancelling a lock.
    os.pwrite(descriptor, b"\x00" * 100, 0)
    with pytest.raises(errors.GenerationLost) as refused:
        write_one(writer)
    assert refused.value.lost == ("main",)


def test_database_cut_off_in_place_is_seen_by_its_length(store: Path) -> None:
    writer = open_write(store)
    write_one(writer, "x" * 50_000)
    writer.checkpoint()
    os.truncate(store, 8192)
    with pytest.raises(errors.GenerationLost) as refused:
        write_one(writer)
    assert refused.value.lost == ("main",)


def test_text_has_a_plain_sentence_first_and_the_operator_detail_after_it(store: Path) -> None:
    writer = open_write(store)
    unlink_wal(store)
    with pytest.raises(errors.GenerationLost) as refused:
        write_one(writer)
    problem = refused.value
    assert problem.user_sentence == (
        "Hermes paused saving because another program replaced the files of its session store while it was running. "
        "What was saved is kept; please quit every Hermes program of this profile and start it again, "
        "and do not delete any file."
    )
    assert problem.operator_detail == (
        f"state.db-wal of {store} was replaced or unlinked under an open connection. "
        f"The last change was not committed. The generation was captured in {problem.capture}. "
        f"Stop every process that still has the old files open (`hermes-state doctor --db {store}` and "
        f"`hermes-state locks --db {store}` name them). Never delete -wal or -shm while one of them runs."
    )
    assert str(problem) == f"{problem.user_sentence} {problem.operator_detail}"


def test_capture_is_whole_and_its_manifest_matches(store: Path, fake_clock: FakeClock) -> None:
    writer = open_write(store, clock=fake_clock)
    write_one(writer, "in the wal")
    descriptor = writer.descriptors.wal
    assert descriptor is not None
    wal = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    inode = os.fstat(descriptor).st_ino
    unlink_wal(store)
    with pytest.raises(errors.GenerationLost) as refused:
        write_one(writer)
    capture = refused.value.capture
    manifest = json.loads((capture / "manifest.json").read_text())
    assert (capture / "state.db-wal").read_bytes() == wal
    assert manifest["version"] == 1
    assert manifest["lost"] == ["wal"]
    assert manifest["captured_at"] == "2027-01-15T08:00:00Z"
    assert manifest["copy"] == "made"
    kept = manifest["files"]["state.db-wal"]
    assert (kept["bytes"], kept["inode"]) == (len(wal), inode)
    for name, facts in manifest["files"].items():
        assert hashlib.sha256((capture / name).read_bytes()).hexdigest() == facts["sha256"]
    assert sorted(os.listdir(capture)) == ["copy.db", "manifest.json", "state.db-wal"]
    assert [oct((capture / name).stat().st_mode & 0o777) for name in os.listdir(capture)] == ["0o600"] * 3
    assert capture.stat().st_mode & 0o777 == 0o700


def test_second_capture_in_the_same_second_gets_a_name_of_its_own(store: Path, fake_clock: FakeClock) -> None:
    captures = []
    for _ in range(2):
        writer = open_write(store, clock=fake_clock)
        write_one(writer)
        unlink_both(store)
        with pytest.raises(errors.GenerationLost) as refused:
            write_one(writer)
        captures.append(refused.value.capture.name)
    assert captures == [f"state.db.retired-wal-20270115T080000Z-{os.getpid()}{n}" for n in ("", "-2")]


def test_capture_without_room_for_a_copy_keeps_the_wal_and_says_so(store: Path, monkeypatch) -> None:
    full = shutil.disk_usage(store.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: full)
    writer = open_write(store)
    write_one(writer)
    unlink_wal(store)
    with pytest.raises(errors.GenerationLost) as refused:
        write_one(writer)
    capture = refused.value.capture
    assert sorted(os.listdir(capture)) == ["manifest.json", "state.db-wal"]
    assert json.loads((capture / "manifest.json").read_text())["copy"].startswith("not made: ")


def test_store_goes_on_after_reopening(store: Path) -> None:
    writer = open_write(store)
    write_one(writer, "before")
    writer.checkpoint()
    unlink_both(store)
    with pytest.raises(errors.GenerationLost):
        write_one(writer, "refused")
    writer.reopen()
    write_one(writer, "after")
    writer.close()
    assert bodies(store) == ["row 0", "row 1", "row 2", "before", "after"]


def test_reopening_waits_for_other_stale_holders(store: Path, child) -> None:
    other = child(
        """
        import apsw, sys, gates
        connection = apsw.Connection(sys.argv[1])
        connection.execute("SELECT count(*) FROM note").fetchall()
        gates.reach("open")
        gates.wait("end")
        """,
        store,
    )
    other.wait_for("open")
    writer = open_write(store)
    unlink_both(store)
    with pytest.raises(errors.GenerationLost):
        write_one(writer)
    with pytest.raises(errors.GenerationLost) as refused:
        writer.reopen()
    assert refused.value.operator_detail == (
        f"PID {other.pid} still has replaced or unlinked files of {store} open."
    )
    other.kill()
    writer.reopen()
    write_one(writer, "after")
    writer.close()
    assert bodies(store)[-1] == "after"


def test_stale_close_does_not_destroy_what_others_committed(store: Path, child) -> None:
    stale = open_write(store)
    write_one(stale, "old generation")
    unlink_both(store)
    newer = child(
        """
        import apsw, sys
        connection = apsw.Connection(sys.argv[1])
        connection.execute("INSERT INTO note(body) VALUES('new generation')").fetchall()
        """,
        store,
    )
    newer.finish()
    with pytest.raises(errors.GenerationLost) as reported:
        stale.close()
    with open_read(store) as reader:
        assert reader.row("SELECT count(*) FROM note WHERE body = 'new generation'") == (1,)
    assert "old generation" in bodies(reported.value.capture / "copy.db")


def test_files_that_stay_are_never_reported(store: Path) -> None:
    with open_write(store) as writer:
        for n in range(50):
            write_one(writer, f"{n}" * 3000)
            if n % 10 == 0:
                writer.checkpoint()
    assert len(bodies(store)) == 53


def captured(store: Path) -> list[str]:
    """Every body in the copies of all captures beside the store."""
    return [body for copy in store.parent.glob("*.retired-wal-*/copy.db") for body in bodies(copy)]


def test_reopening_does_not_let_go_of_a_lost_generation_unseen(store: Path) -> None:
    writer = open_write(store)
    write_one(writer, "only in the lost WAL")
    unlink_both(store)
    with pytest.raises(errors.GenerationLost):
        writer.reopen()
    assert "only in the lost WAL" in captured(store)
    writer.reopen()
    write_one(writer, "after")
    writer.close()


def test_forgotten_store_keeps_what_only_it_still_sees(store: Path) -> None:
    writer = open_write(store)
    write_one(writer, "only in the lost WAL")
    unlink_both(store)
    del writer
    assert "only in the lost WAL" in captured(store)


def test_lock_lost_after_the_generation_still_captures_it(store: Path, live_store_audit_hook) -> None:
    writer = open_write(store)
    write_one(writer, "only in the lost WAL")
    unlink_wal(store)
    with live_store_audit_hook.allowing():
        store.read_bytes()
    with pytest.raises(errors.GenerationLost) as refused:
        writer.rows("SELECT 1")
    assert (refused.value.capture / "state.db-wal").stat().st_size > 0
    assert "only in the lost WAL" in captured(store)


def test_file_is_not_opened_beside_our_own_stale_connection(store: Path) -> None:
    stale = open_write(store)
    unlink_both(store)
    with pytest.raises(errors.GenerationLost) as refused:
        open_read(store)
    assert refused.value.operator_detail == (
        f"This process itself still has replaced or unlinked files of {store} open."
    )
    with pytest.raises(errors.GenerationLost):
        stale.close()
    with open_read(store) as reader:
        assert reader.row("SELECT count(*) FROM note") == (3,)
