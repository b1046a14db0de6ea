"""What a call costs does not grow with what it leaves alone: counted in steps of SQLite's machine, not in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from hermes_state.clock import FakeClock
from hermes_state.outbox import Accepted, Outbox, append
from hermes_state.store import Store
from hermes_state.testing import temporary_store

SMALL, LARGE = 150, 1500
EVERY = 10  # steps between two calls of the counter


class Counter:
    """Steps of all connections that were made since."""

    def __init__(self) -> None:
        self.steps = 0

    def watch(self, connection: apsw.Connection) -> None:
        connection.set_progress_handler(self._count, EVERY)

    def _count(self) -> bool:
        self.steps += EVERY
        return False

    def of(self, work: Callable[[], Any]) -> int:
        before = self.steps
        work()
        return self.steps - before


@pytest.fixture(name="counter")
def counting() -> Iterator[Counter]:
    counter = Counter()
    apsw.connection_hooks.append(counter.watch)
    yield counter
    apsw.connection_hooks.remove(counter.watch)


@contextmanager
def filled(folder: Path, clock: FakeClock, rows: Iterator[dict[str, Any]]) -> Iterator[Store]:
    folder.mkdir()
    given = list(rows)
    plain: dict[str, Any] = {"kind": "x", "transport": "t", "payload": 1, "policy": "at_least_once", "at": clock.now()}
    with temporary_store(folder, clock=clock) as store:
        store.core.write(lambda tx: [
            append(tx, **plain | {"dedupe_id": f"row {number}"} | one) for number, one in enumerate(given)
        ])
        yield store


LATER = 3e7


def stops_before_frames(count: int, now: float) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"lane": "thread", "priority": 10 if number >= count - count // 10 else 0}


def lanes_whose_heads_are_due_later(count: int, now: float) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"lane": f"lane {number % (count // 3)}", "due_at": now + LATER if number < count // 3 else None}


def lanes_whose_heads_have_no_transport(count: int, now: float) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"lane": f"lane {number % (count // 3)}", "transport": "down" if number < count // 3 else "t"}


def one_lane_whose_head_is_due_later(count: int, now: float) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"lane": "thread", "due_at": None if number else now + LATER}


def all_due_later(count: int, now: float) -> Iterator[dict[str, Any]]:
    for _number in range(count):
        yield {"due_at": now + LATER}


def others_of_another_kind(count: int, now: float) -> Iterator[dict[str, Any]]:
    for _number in range(count):
        yield {"kind": "noise"}


@pytest.mark.parametrize("rows", [
    stops_before_frames, lanes_whose_heads_are_due_later, lanes_whose_heads_have_no_transport,
    one_lane_whose_head_is_due_later, all_due_later, others_of_another_kind,
])
def test_a_poll_costs_the_same_however_much_cannot_be_claimed(
    tmp_path: Path, fake_clock: FakeClock, counter: Counter, rows: Callable[[int, float], Iterator[dict[str, Any]]]
) -> None:
    cost = {}
    for count in (SMALL, LARGE):
        with filled(tmp_path / str(count), fake_clock, rows(count, fake_clock.now())) as store:
            store.outbox.claim(["t"], kinds=["x"])  # the stop that all others wait for
            before = data_version(store)
            cost[count] = counter.of(partial(nothing, store.outbox))
            assert data_version(store) == before
    assert cost[LARGE] <= cost[SMALL] + 5 * EVERY, cost


def nothing(box: Outbox) -> None:
    assert box.claim(["t"], kinds=["x"], limit=20) == []


def data_version(store: Store) -> int:
    """Changes with each commit of another connection."""
    with store.core.reader() as reader:
        return int(reader.rows("PRAGMA data_version")[0][0])


def test_a_claim_of_a_batch_costs_the_same_however_large_the_batch_is(
    tmp_path: Path, fake_clock: FakeClock, counter: Counter
) -> None:
    cost = {}
    for count in (SMALL, LARGE):
        with filled(tmp_path / str(count), fake_clock, ({"batch": "run"} for _ in range(count))) as store:
            cost[count] = counter.of(partial(fifty, store.outbox))
    assert cost[LARGE] <= cost[SMALL] * 1.1, cost


def fifty(box: Outbox) -> None:
    (claim,) = box.claim(["t"])
    assert [one.dedupe_id for one in claim] == [f"row {number}" for number in range(50)]


def test_a_thousand_of_a_batch_cost_as_much_each_as_fifty(
    tmp_path: Path, fake_clock: FakeClock, counter: Counter
) -> None:
    with filled(tmp_path / "one", fake_clock, ({"batch": "run"} for _ in range(2000))) as store:
        first = counter.of(lambda: fifty(store.outbox))
        found = []
        many = counter.of(lambda: found.extend(store.outbox.claim(["t"], limit=1000)))
    assert [len(claim) for claim in found] == [50] * 20
    assert many <= 20 * first * 1.2, (first, many)


def test_a_batch_of_which_most_is_not_due_bounds_what_one_call_looks_at(
    tmp_path: Path, fake_clock: FakeClock, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call makes progress, and all that is due is given out."""
    from hermes_state.outbox import claims

    monkeypatch.setattr(claims, "MOST_LOOKED", 20)
    monkeypatch.setattr(claims, "MOST_LOOKED_A_CALL", 40)
    rows = ({"batch": "run", "due_at": fake_clock.now() + LATER if number < 100 else None} for number in range(110))
    with filled(tmp_path / "one", fake_clock, rows) as store:
        given = [[len(claim) for claim in store.outbox.claim(["t"], limit=1000)] for _call in range(6)]
        assert given == [[1, 1], [1, 1], [1, 1], [1, 1], [1, 1], []]


def settled(store: Store) -> None:
    for claim in store.outbox.claim(["t"], limit=1000):
        store.outbox.settle(claim, Accepted())


def test_to_forget_a_row_costs_the_same_however_many_rows_there_are(
    tmp_path: Path, fake_clock: FakeClock, counter: Counter
) -> None:
    cost = {}
    for count in (SMALL, LARGE):
        with filled(
            tmp_path / str(count), fake_clock,
            ({"batch": f"run {number // 50}"} if number < 100 else {"transport": "u"} for number in range(count)),
        ) as store:
            settled(store)
            cost[count] = counter.of(partial(hundred_forgotten, store.outbox))
    assert cost[LARGE] <= cost[SMALL] * 1.1, cost


def hundred_forgotten(box: Outbox) -> None:
    assert box.upkeep(most_settled=0).forgotten_early == 100


def test_a_step_that_finds_nothing_costs_the_same_however_many_are_settled_and_blanked(
    tmp_path: Path, fake_clock: FakeClock, counter: Counter
) -> None:
    cost = {}
    for count in (SMALL, LARGE):
        with filled(tmp_path / str(count), fake_clock, ({"batch": f"run {n // 50}"} for n in range(count))) as store:
            while store.outbox.claim(["t"]):
                store.core.write(lambda tx: tx.execute(
                    "UPDATE outbox SET state = 'accepted', owner = NULL, settled_at = made_at WHERE state = 'claimed'"
                ))
            fake_clock.advance(90_000)
            store.outbox.upkeep()
            cost[count] = counter.of(partial(idle, store.outbox))
    # All that is counted is the cap, by its index alone.
    assert cost[LARGE] <= cost[SMALL] + 8 * (LARGE - SMALL), cost


def idle(box: Outbox) -> None:
    done = box.upkeep()
    assert (done.blanked, done.forgotten, done.forgotten_early, done.more) == (0, 0, 0, False)


def test_to_repeat_a_settled_row_costs_the_same_however_many_rows_there_are(
    tmp_path: Path, fake_clock: FakeClock, counter: Counter
) -> None:
    cost = {}
    for count in (SMALL, LARGE):
        with filled(tmp_path / str(count), fake_clock, ({} for _ in range(count))) as store:
            (claim,) = store.outbox.claim(["t"])
            store.outbox.settle(claim, Accepted())
            cost[count] = counter.of(partial(store.outbox.retry, "row 0"))
    assert cost[LARGE] <= cost[SMALL] + 5 * EVERY, cost
