"""A verdict that the store cannot take now: tried again for a stated time, and never lost with its error."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction, open_write
from hermes_state.errors import DiskFull, LockTimeout, StateError
from hermes_state.outbox import Accepted, Claim, Outbox, Recorded, State, Verdict
from hermes_state.outbox.delivering import SETTLE_SECONDS
from hermes_state.store import Store
from hermes_state.testing import temporary_store

Owe = Callable[..., Recorded]
SAID = Accepted(result={"message": 7})


class Lock:
    """Somebody else who writes to the store."""

    def __init__(self, path: Path) -> None:
        self._held, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write, args=(path,))

    def _write(self, path: Path) -> None:
        def work(_tx: Transaction) -> None:
            self._held.set()
            self._leave.wait(30)

        with open_write(path) as writer:
            writer.write(work)

    def take(self) -> None:
        self._thread.start()
        assert self._held.wait(30)

    def give_up(self) -> None:
        self._leave.set()
        self._thread.join(30)


class Coarse(FakeClock):
    """Sleeps by seconds, and does something once so many have passed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.at = float("inf")
        self.then: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(max(seconds, 2.0))
        if self.monotonic() > self.at:
            self.then()


@pytest.fixture(name="store")
def store_on_a_coarse_clock(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=Coarse(fake_clock.path)) as opened:
        yield opened


def test_a_verdict_that_no_lock_was_free_for_comes_with_the_error_and_counts_later(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("before")
    owe("one", "at_most_once")
    lock = Lock(store.path)

    def send(claim: Claim) -> Verdict:
        if claim.primary.dedupe_id == "one":
            lock.take()
        return SAID

    begun = fake_clock.monotonic()
    try:
        with pytest.raises(LockTimeout) as caught:
            box.deliver(send, ["telegram"], limit=2)
    finally:
        lock.give_up()
    assert SETTLE_SECONDS - 5 < fake_clock.monotonic() - begun < SETTLE_SECONDS + 5
    error = caught.value
    facts = error.facts
    assert ([one.dedupe_id for one in facts["claim"]], facts["verdict"]) == (["one"], SAID)
    assert [(claim.primary.dedupe_id, verdict) for claim, verdict in facts["delivered"]] == [("before", SAID)]
    assert error.__notes__ == [
        "Of 'one' the handler had said Accepted(result={'message': 7}), which was not written."
    ]
    again = pickle.loads(pickle.dumps(error))
    assert box.settle(again.claim, again.verdict) == {2: State.ACCEPTED}


def test_a_verdict_is_tried_again_while_the_store_says_that_it_may_pass(store: Store, box: Outbox, owe: Owe) -> None:
    owe("one", "at_most_once")
    clock, lock = store.core.clock, Lock(store.path)
    assert isinstance(clock, Coarse)
    clock.at, clock.then = clock.monotonic() + 20, lock.give_up

    def send(claim: Claim) -> Verdict:
        lock.take()
        return SAID

    assert [verdict for _claim, verdict in box.deliver(send, ["telegram"])] == [SAID]
    assert box.get("one").state is State.ACCEPTED and clock.monotonic() > clock.at


def test_a_full_disk_is_not_waited_for_and_takes_no_verdict_along(store: Store, box: Outbox, owe: Owe) -> None:
    owe("one", "at_most_once")
    writer = store.core.writer
    verdict = Accepted(result={"text": "x" * 60_000})

    def send(claim: Claim) -> Verdict:
        writer.rows(f"PRAGMA max_page_count = {writer.page_count}")
        return verdict

    with pytest.raises(StateError) as caught:
        box.deliver(send, ["telegram"])
    assert isinstance(caught.value, DiskFull)
    assert caught.value.facts["verdict"] == verdict
    writer.rows("PRAGMA max_page_count = 1000000")
    assert box.settle(caught.value.facts["claim"], verdict) == {1: State.ACCEPTED}
