"""What connections write: nothing, but for what changed (T1.13, T1.24, T1.25, Must show 3)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import ReadStore, Transaction, open_read
from hermes_state.instances import last_seen, registry
from hermes_state.instances.generations import Generation
from hermes_state.instances.last_seen import LastSeen
from hermes_state.instances.liveness import Act, Watch
from hermes_state.instances.protocol import VersionRange
from hermes_state.store import Store
from hermes_state.testing import temporary_store
from tests.hermes_state.instances.servers import Server, hello


@pytest.fixture(name="store")
def gateway_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


@pytest.fixture(name="other")
def other_connection(store: Store, fake_clock: FakeClock) -> Iterator[ReadStore]:
    """A connection that sees every commit of the others."""
    reader = open_read(store.path, clock=fake_clock)
    yield reader
    reader.close()


def commits(other: ReadStore) -> int:
    return int(other.rows("PRAGMA data_version")[0][0])


def bytes_written(store: Store) -> tuple[int, int]:
    """Size and time of the WAL, by stat: a commit changes both."""
    state = os.stat(f"{store.path}-wal")
    return state.st_size, state.st_mtime_ns


def test_thousand_connects_and_disconnects_write_no_byte(store: Store, other: ReadStore) -> None:
    """T1.13, Must show 3."""
    server = Server(store)
    server.connections.accept(hello())
    before, files = commits(other), bytes_written(store)
    for _ in range(1000):
        accepted = server.connections.accept(hello())
        server.connections.record_session_count("mac", accepted.generation, 2)
        assert server.connections.disconnect("mac", accepted.generation)
    assert (commits(other), bytes_written(store)) == (before, files)
    assert accepted.generation == Generation(1, 1001)


def test_ten_thousand_pings_leave_the_store_unchanged(store: Store, other: ReadStore) -> None:
    """T1.24, Must show 3: probes, answers, session counts and what was heard of, without one commit."""
    server, watch, seen = Server(store), Watch(), LastSeen(store.core)
    accepted = server.connections.accept(hello())
    watch.begin("mac", accepted.generation, 0.0)
    before, files = commits(other), bytes_written(store)
    now = 0.0
    for count in range(10_000):
        now += 10.0
        (due,) = watch.due(now)
        assert due.act is Act.PROBE
        assert watch.answer("mac", accepted.generation, due.probe, now)
        assert server.connections.record_session_count("mac", accepted.generation, count)
        if count % 100 == 0:  # the fake clock is a file: asking it is what takes the time
            seen.note("mac")
    assert (commits(other), bytes_written(store)) == (before, files)


@pytest.mark.parametrize(
    ("fields", "written"),
    [({}, 0), ({"boot_id": "boot 2"}, 1), ({"versions": VersionRange(2, 2)}, 1), ({"model": "another"}, 0)],
)
def test_connect_commits_only_another_version_or_boot_id(
    store: Store, other: ReadStore, fields: dict[str, object], written: int
) -> None:
    server = Server(store)
    server.connections.accept(hello())
    before = commits(other)
    server.connections.accept(hello("mac", **fields))
    assert (commits(other) != before) == bool(written)


def added(store: Store, *names: str) -> None:
    for name in names:
        store.instances.add(name, nickname=name, actor="test")


def test_last_seen_is_written_at_most_once_in_ten_minutes_and_never_by_a_connect(
    store: Store, other: ReadStore, fake_clock: FakeClock
) -> None:
    """T1.25."""
    server, seen = Server(store), LastSeen(store.core)
    added(store, "mac", "phone")
    server.connections.accept(hello())
    writes = []
    before = commits(other)
    for minute in range(60):
        server.connections.accept(hello())
        seen.note("mac")
        seen.note("phone")
        assert commits(other) == before, "a connect or a note committed"
        if seen.write():
            writes.append(minute)
        before = commits(other)
        fake_clock.advance(60.0)
    assert writes == [0, 10, 20, 30, 40, 50]
    with store.core.reader() as reader:
        assert last_seen.read(reader, "mac") == 1_800_000_000.0 + 50 * 60
        assert last_seen.read(reader, "nobody") is None


def test_restarted_server_does_not_write_last_seen_again_before_its_time(store: Store, fake_clock: FakeClock) -> None:
    """T1.25: the limit is of the instance, not of one process."""
    added(store, "mac")
    first = LastSeen(store.core)
    first.note("mac")
    assert first.write() == 1
    fake_clock.advance(300.0)
    second = LastSeen(store.core)
    second.note("mac")
    assert second.write() == 0
    fake_clock.advance(300.0)
    second.note("mac")
    assert second.write() == 1


def test_clock_that_goes_back_does_not_take_last_seen_back(store: Store, fake_clock: FakeClock) -> None:
    seen = LastSeen(store.core)
    added(store, "mac")
    seen.note("mac")
    assert seen.write() == 1
    fake_clock.step_wall(-86_400.0)
    seen.note("mac")
    assert seen.write() == 0
    again = LastSeen(store.core)
    again.note("mac")
    assert again.write() == 0
    with store.core.reader() as reader:
        assert last_seen.read(reader, "mac") == 1_800_000_000.0


def test_many_that_were_heard_of_at_once_are_written_a_thousand_at_a_time(store: Store) -> None:
    seen = LastSeen(store.core)
    names = [f"n{number}" for number in range(last_seen.MOST + 7)]

    def many(tx: Transaction) -> None:
        for name in names:
            registry.add(tx, name, nickname=name, connector_url=None, actor="test", at=1.0)

    store.core.write(many)
    for name in names:
        seen.note(name)
    assert [seen.write(), seen.write(), seen.write()] == [last_seen.MOST, 7, 0]


def test_removed_instance_is_not_written_as_seen(store: Store, fake_clock: FakeClock) -> None:
    """Whoever removed it: a row that came after would stay for ever, and be of whoever gets the id next."""
    seen = LastSeen(store.core)
    added(store, "mac")
    seen.note("mac")
    assert seen.write() == 1
    fake_clock.advance(600.0)
    seen.note("mac")
    store.instances.remove("mac", actor="test", reason="old")
    assert seen.write() == 0
    added(store, "mac")
    assert seen.write() == 0  # it was let go of
    with store.core.reader() as reader:
        assert last_seen.read(reader, "mac") is None
