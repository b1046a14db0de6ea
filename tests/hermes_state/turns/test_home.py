"""Deliveries home, both ends, and the older queue: T1.56 and T1.57 without kills.

Kills, and a queue of ours that is damaged, are in tests/processes/test_home_deliveries.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import IdempotencyConflict, InvalidInput, QueueUnreadable, ThreadNotFound, TooOld
from hermes_state.outbox import Accepted, Claim
from hermes_state.store import Store
from hermes_state.turns.home import KIND, TRANSPORT, owe
from hermes_state.turns.home_queue import take_over
from hermes_state.turns.records import HomeDelivery


def test_a_delivery_is_shown_once_and_acknowledged_each_time(store: Store) -> None:
    """T1.56: the acknowledgement was lost."""
    home, shown = store.turns.home, []
    home.show_in("g", "thread")

    def show(tx: Transaction, delivery: HomeDelivery) -> None:
        shown.append(delivery.delivery_id)

    first, new = home.receive("g", "d1", {"text": "done"}, show=show)
    again, repeated = home.receive("g", "d1", {"text": "done"}, show=show)
    assert (new, repeated, again == first) == (True, False, True)
    assert shown == ["d1"]
    assert [one.payload for one in home.page("thread")] == [{"text": "done"}]


def test_what_shows_it_fails_and_nothing_is_left_behind(store: Store) -> None:
    """T1.56: visible and remembered are one transaction."""
    home = store.turns.home
    home.show_in("g", "thread")

    def broken(tx: Transaction, delivery: HomeDelivery) -> None:
        raise RuntimeError("no such view")

    with pytest.raises(RuntimeError, match=r"^no such view$"):
        home.receive("g", "d1", "x", show=broken)
    assert home.page("thread") == []
    assert home.receive("g", "d1", "x")[1]


def test_the_thread_is_looked_up_here_each_time(store: Store) -> None:
    """1.16: never taken from the frame."""
    home = store.turns.home
    with pytest.raises(ThreadNotFound) as caught:
        home.receive("g", "d1", {"thread_id": "somebody's"})
    assert str(caught.value) == f"Instance 'g' in {store.path} has no thread for what it delivers home."
    home.show_in("g", "one")
    home.receive("g", "d1", {"thread_id": "somebody's"})
    home.show_in("g", "two")
    home.receive("g", "d2", {})
    assert [[one.delivery_id for one in home.page(thread)] for thread in ("one", "two", "somebody's")] == [
        ["d1"], ["d2"], [],
    ]


def test_an_id_with_another_payload_and_an_id_of_another_instance(store: Store) -> None:
    home = store.turns.home
    for name in ("g", "h"):
        home.show_in(name, name)
        assert home.receive(name, "d1", name)[1]
    with pytest.raises(IdempotencyConflict) as caught:
        home.receive("g", "d1", "other")
    assert str(caught.value) == f"Delivery 'd1' of instance 'g' is in {store.path} with another payload."


def test_more_than_three_hundred_are_owed_and_none_is_dropped(store: Store) -> None:
    """1.16: the older queue dropped the oldest beyond 300."""
    at = store.core.clock.now()
    store.core.write(lambda tx: [owe(tx, f"d{number}", number, at=at) for number in range(350)])
    assert store.outbox.counts().by_kind[KIND]["pending"] == 350
    assert not store.turns.home.deliver("d0", 0).new
    got: list[int] = []

    def send(claim: Claim) -> Accepted:
        got.append(claim.primary.payload["payload"])
        return Accepted()

    store.outbox.deliver(send, [TRANSPORT], kinds=[KIND], limit=50)
    assert got == list(range(50))


def test_what_is_forgotten_is_refused_as_too_old(store: Store, fake_clock: FakeClock) -> None:
    home = store.turns.home
    home.show_in("g", "thread")
    made_at = fake_clock.now()
    home.receive("g", "d1", "x", made_at=made_at)
    with pytest.raises(InvalidInput, match=r"^Deliveries are kept for 8 days at least, not 604800 s\.$"):
        home.forget(kept_seconds=7 * 86_400.0)
    fake_clock.advance(14 * 86_400.0)
    assert (home.forget(), home.forget()) == (1, 0)
    with pytest.raises(TooOld) as caught:
        home.receive("g", "d1", "x", made_at=made_at)
    assert str(caught.value) == f"Delivery 'd1' of instance 'g' was made before what {store.path} remembers."
    assert home.receive("g", "d2", "y", made_at=fake_clock.now())[1]


def lines(*entries: object) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def test_t1_57_a_missing_queue_is_empty(store: Store, tmp_path: Path) -> None:
    """T1.57: missing is not unreadable."""
    done = take_over(store.core, tmp_path / "queue.jsonl")
    assert (done.entries, done.new, done.put_aside) == (0, 0, None)
    assert list(tmp_path.glob("queue*")) == []


def test_an_older_queue_is_owed_whole_and_put_aside(store: Store, tmp_path: Path) -> None:
    queue = tmp_path / "queue.jsonl"
    data = lines({"deliveryId": "a", "text": "1"}, {"deliveryId": "b", "text": "2"}, {"deliveryId": "a", "text": "1"})
    queue.write_bytes(data)
    done = take_over(store.core, queue)
    assert (done.entries, done.new) == (2, 2)
    assert [(one.dedupe_id, one.payload["payload"]) for one in store.outbox.page()] == [
        ("home/b", {"text": "2"}), ("home/a", {"text": "1"}),
    ]
    assert done.put_aside is not None
    assert (queue.exists(), done.put_aside.read_bytes()) == (False, data)


def test_t1_57_a_crash_before_it_is_put_aside_records_nothing_twice(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock
) -> None:
    """T1.57."""
    queue = tmp_path / "queue.jsonl"
    queue.write_bytes(lines({"deliveryId": "a", "text": "1"}))

    def dies(*_names: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            take_over(store.core, queue)
    assert queue.exists()
    fake_clock.advance(60.0)
    done = take_over(store.core, queue)
    assert (done.entries, done.new) == (1, 0)
    assert len(store.outbox.page()) == 1


@pytest.mark.parametrize(
    ("data", "line", "why"),
    [
        (lines({"deliveryId": "a"}) + b'{"deliveryId": "b"', 2, "it was not written to its end"),
        (lines({"deliveryId": "a"}) + b"\xff\xfe\n", 2, "it is not JSON"),
        (b"{}\n", 1, "it has no delivery id"),
        (b"[1]\n", 1, "it is no object"),
        (
            lines({"deliveryId": "a", "t": 1}, {"deliveryId": "a", "t": 2}), 2,
            "delivery 'a' is there twice, with other content",
        ),
    ],
)
def test_t1_57_an_unreadable_queue_is_named_and_left_as_it_is(
    store: Store, tmp_path: Path, data: bytes, line: int, why: str
) -> None:
    """T1.57."""
    queue = tmp_path / "queue.jsonl"
    queue.write_bytes(data)
    with pytest.raises(QueueUnreadable) as caught:
        take_over(store.core, queue)
    assert str(caught.value) == f"Nothing was taken from line {line} of the queue {queue}: {why}."
    assert caught.value.hint == (
        f"It is as it was. Repair or remove that line in a copy, put it at {queue}, and try again."
    )
    assert queue.read_bytes() == data
    assert store.outbox.page() == []


def test_t1_57_a_queue_that_the_system_does_not_give_is_not_missing(store: Store, tmp_path: Path) -> None:
    """T1.57."""
    queue = tmp_path / "queue.jsonl"
    queue.mkdir()
    with pytest.raises(QueueUnreadable) as caught:
        take_over(store.core, queue)
    assert str(caught.value) == f"Nothing was taken from the queue {queue}: the system says Is a directory."
    assert queue.is_dir()
