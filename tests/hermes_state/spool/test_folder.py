"""The folder of the spool: what `put` acknowledged is there, in order, whoever else uses it."""

from __future__ import annotations

import os
import resource
import stat
import threading
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import CannotOpen, DiskFull, InvalidInput, LockTimeout, TornItem
from hermes_state.spool import Spool
from hermes_state.spool.folder import lines_of
from hermes_state.spool.lines import item_of
from tests.support.children import Children


@pytest.fixture
def spool(tmp_path: Path, fake_clock: FakeClock) -> Spool:
    return Spool(tmp_path / "state.db", clock=fake_clock)


def put(spool: Spool, number: int) -> None:
    spool.put("turn", {"number": number}, cause="lock_timeout")


def numbers(spool: Spool) -> list[int]:
    return [item.payload["number"] for item in spool.items()]


def test_looking_at_a_spool_makes_nothing(spool: Spool) -> None:
    assert spool.is_empty() and numbers(spool) == [] and spool.quarantined() == []
    assert not spool.folder.exists()


def test_items_come_in_the_order_in_which_they_were_put_and_only_the_owner_may_read_them(spool: Spool) -> None:
    for number in range(5):
        put(spool, number)

    assert numbers(spool) == [0, 1, 2, 3, 4]
    assert not spool.is_empty()
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((spool.folder / "items.jsonl").stat().st_mode) == 0o600


def test_threads_put_side_by_side_and_no_line_is_mixed(spool: Spool) -> None:
    threads = [
        threading.Thread(target=lambda first=first: [put(spool, first + step) for step in range(20)])
        for first in range(0, 80, 20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = numbers(spool)
    assert sorted(found) == list(range(80))
    assert [[number for number in found if number // 20 == of] for of in range(4)] == [
        list(range(first, first + 20)) for first in range(0, 80, 20)
    ]


def test_what_is_put_during_a_replay_waits_for_the_next_one(spool: Spool) -> None:
    put(spool, 1)
    with spool.replaying() as files:
        put(spool, 2)
        assert [path.name for path in files] == ["replaying-00000001.jsonl"]
        assert numbers(spool) == [1, 2]
        spool.done(files[0])
    assert numbers(spool) == [2]


def test_a_replay_that_was_stopped_is_taken_up_with_its_items_first(spool: Spool) -> None:
    put(spool, 1)
    for number in (2, 3):
        with spool.replaying() as files:
            put(spool, number)
            assert [path.name for path in files] == ["replaying-00000001.jsonl"]
    assert numbers(spool) == [1, 2, 3]
    with spool.replaying() as files:
        assert [item_of(line).payload["number"] for line in lines_of(files[0])] == [1]
        spool.done(files[0])
    assert numbers(spool) == [2, 3]
    with spool.replaying() as files:
        assert [path.name for path in files] == ["replaying-00000001.jsonl"]
        spool.done(files[0])
    assert spool.is_empty()


def test_only_one_replays_at_a_time(spool: Spool, tmp_path: Path) -> None:
    put(spool, 1)
    other = Spool(tmp_path / "state.db")
    with spool.replaying(), pytest.raises(LockTimeout) as raised, other.replaying():
        pass
    assert raised.value.message == f"Another process is replaying {spool.folder}."
    assert raised.value.retryable


def test_a_line_that_was_torn_by_a_kill_does_not_take_the_next_one_with_it(spool: Spool) -> None:
    put(spool, 1)
    with open(spool.folder / "items.jsonl", "ab") as file:
        file.write(b'{"format":1,"id":"tor')
    put(spool, 2)

    assert numbers(spool) == [1, 2]


def test_a_payload_that_json_cannot_say_is_refused_and_nothing_is_kept(spool: Spool) -> None:
    with pytest.raises(InvalidInput) as raised:
        spool.put("turn", {"content": b"bytes"}, cause="lock_timeout")
    assert raised.value.message == (
        "The payload of a spooled item cannot be written as JSON: Object of type bytes is not JSON serializable."
    )
    assert spool.is_empty()


def test_a_full_disk_is_named_and_what_was_there_stays_whole(spool: Spool, child: Children) -> None:
    put(spool, 1)
    before = (spool.folder / "items.jsonl").read_bytes()
    told = child(
        """
        import resource, signal, sys
        from hermes_state.errors import DiskFull
        from hermes_state.spool import Spool

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            Spool(sys.argv[1]).put("turn", {"number": 2, "text": "x" * 1000}, cause="disk_full")
        except DiskFull as error:
            print(error.message, error.hint, sep="\\n")
        """,
        spool.folder.parent / "state.db", len(before) + 100,
    ).finish()

    assert told.splitlines() == [
        f"Items of {spool.folder} cannot be kept: File too large.",
        "Free space on that file system; the turn is in memory only until then.",
    ]
    assert (spool.folder / "items.jsonl").read_bytes() == before
    assert DiskFull.code == "disk_full" and resource.RLIMIT_FSIZE >= 0


def test_what_cannot_be_written_is_kept_with_its_reason_and_can_be_put_back(
    spool: Spool, fake_clock: FakeClock
) -> None:
    put(spool, 1)
    (item,) = spool.items()
    with spool.replaying() as files:
        kept = spool.quarantine(item, InvalidInput("It is not a turn."))
        again = spool.quarantine(item, InvalidInput("It is not a turn."))
        spool.done(files[0])
    assert (kept.code, kept.reason, kept.at) == ("invalid_input", "It is not a turn.", fake_clock.now())
    assert spool.quarantined() == [kept] == [again]
    assert spool.is_empty()

    assert spool.requeue(kept) == item
    assert list(spool.items()) == [item] and spool.quarantined() == []


def test_a_line_that_is_no_item_is_kept_as_it_was_and_cannot_be_put_back(spool: Spool) -> None:
    put(spool, 1)
    kept = spool.quarantine(b"half a line", TornItem("A line is no item."))

    with pytest.raises(TornItem) as raised:
        spool.requeue(kept)
    assert raised.value.message == f"{kept.path} holds a line that is no item: it cannot be put back."
    assert '"line": "half a line"' in kept.path.read_text()
    assert os.path.dirname(kept.path) == str(spool.folder / "quarantine")


@pytest.mark.parametrize("looks", [Spool.is_empty, numbers, Spool.quarantined], ids=lambda one: one.__name__)
def test_process_without_descriptors_is_told_so_and_not_that_nothing_waits(spool: Spool, looks) -> None:
    put(spool, 1)
    spool.quarantine(b"torn", TornItem("It is torn."))
    taken, (soft, hard) = [], resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(CannotOpen) as caught:
            looks(spool)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert str(caught.value) == f"Items of {spool.folder} cannot be looked for: Too many open files."
    assert caught.value.hint == "Find what keeps files open (`ls -l /proc/PID/fd`), or raise their limit."
