"""The outbox stays small without ever losing what is owed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.errors import InvalidInput, StatementFailed
from hermes_state.outbox import Accepted, Failed, Outbox, Recorded, State, upkeep
from hermes_state.outbox.append import HORIZON_SECONDS
from hermes_state.outbox.upkeep import BLANK_AFTER_SECONDS
from hermes_state.store import Store
from tests.hermes_state.outbox.conftest import told

Owe = Callable[..., Recorded]


def settle_all(box: Outbox) -> None:
    while claims := box.claim(["telegram"], limit=100):
        for claim in claims:
            box.settle(claim, Accepted())


def test_t5_7_undelivered_rows_are_never_pruned_however_many_and_old(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    """Measured in hermes-agent 0.19: of 60 undelivered results 10 were deleted by the next dispatch."""
    for number in range(60):
        owe(f"undelivered {number}", kind="completion")
    fake_clock.advance(400 * 86_400.0)
    owe("one more")
    done = box.upkeep(most_settled=0)
    assert (done.blanked, done.forgotten, done.forgotten_early, done.more) == (0, 0, 0, False)
    assert box.counts().by_state["pending"] == 61
    assert all(one.payload == {"text": one.dedupe_id} for one in box.page(limit=100))


def test_a_settled_payload_is_blanked_after_a_day_and_its_id_is_remembered(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one")
    settle_all(box)
    assert box.upkeep().blanked == 0
    fake_clock.advance(BLANK_AFTER_SECONDS)
    assert box.upkeep().blanked == 1
    row = box.get("one")
    assert (row.payload, row.payload_bytes, row.state) == (None, 14, State.ACCEPTED)
    assert not owe("one").new


def test_a_cap_drops_only_settled_rows_says_so_and_makes_their_ids_too_old(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    for number in range(10):
        owe(f"old {number}")
        fake_clock.advance(1.0)
    settle_all(box)
    owe("pending")
    done = box.upkeep(most_settled=4)
    assert (done.forgotten, done.forgotten_early) == (0, 6)
    assert sorted(one.dedupe_id for one in box.page()) == ["old 6", "old 7", "old 8", "old 9", "pending"]
    assert box.counts().remembered_from == fake_clock.now() - 5.0


def test_upkeep_goes_in_bounded_steps(store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    for number in range(30):
        owe(f"{number}")
    settle_all(box)
    fake_clock.advance(HORIZON_SECONDS + 1)
    from hermes_state.outbox.upkeep import step

    first = store.core.write(lambda tx: step(tx, at=fake_clock.now(), limit=20))
    assert (first.blanked, first.forgotten, first.more) == (20, 20, True)
    second = store.core.write(lambda tx: step(tx, at=fake_clock.now(), limit=20))
    assert (second.forgotten, second.more) == (10, False)


def test_the_file_itself_refuses_to_delete_what_is_owed_and_to_change_what_is_settled(
    store: Store, box: Outbox, owe: Owe
) -> None:
    owe("one")
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute("DELETE FROM outbox"))
    settle_all(box)
    for change in ("state = 'pending', settled_at = NULL", "attempts = 0 + 7", "verdict = NULL"):
        with pytest.raises(StatementFailed):
            store.core.write(functools.partial(changed, change))


def changed(change: str, tx: Transaction) -> None:
    tx.execute(f"UPDATE outbox SET {change}")


def test_what_waited_long_and_then_failed_can_be_looked_at_for_a_horizon(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("old")
    fake_clock.advance(HORIZON_SECONDS + 86_400.0)
    (claim,) = box.claim(["telegram"])
    box.settle(claim, Failed(why="no such chat", for_good=True))
    assert (box.upkeep().forgotten, box.get("old").state) == (0, State.FAILED)
    fake_clock.advance(HORIZON_SECONDS - 1)
    assert box.upkeep().forgotten == 0
    made_at = box.get("old").made_at
    fake_clock.advance(1)
    assert box.upkeep().forgotten == 1
    assert box.counts().remembered_from == made_at


def test_a_step_ends_when_its_time_is_over_and_says_that_there_is_more(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    from hermes_state.outbox.upkeep import PORTION, step

    for number in range(2 * PORTION + 10):
        owe(f"{number}")
    settle_all(box)
    fake_clock.advance(HORIZON_SECONDS + 1)
    seen = []
    ticks = iter(range(1000))
    while True:
        done = store.core.write(lambda tx: step(tx, at=fake_clock.now(), elapsed=lambda: float(next(ticks))))
        seen.append((done.blanked, done.forgotten))
        if not done.more:
            break
    assert seen[:3] == [(PORTION, 0), (PORTION, 0), (10, 0)]
    assert sum(forgotten for _blanked, forgotten in seen) == 2 * PORTION + 10
    assert box.page() == []


def test_a_step_frees_a_few_mebibytes_of_payloads_and_leaves_the_rest_to_the_next(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MOST_STEP_BYTES", 2500)
    for number in range(5):
        owe(f"{number}", payload="x" * 1000)
    settle_all(box)
    fake_clock.advance(BLANK_AFTER_SECONDS)
    steps = [store.core.write(lambda tx: upkeep.step(tx, at=fake_clock.now())) for _ in range(4)]
    assert [(done.blanked, done.more) for done in steps] == [(2, True), (2, True), (1, False), (0, False)]


def test_upkeep_rests_between_its_steps_for_as_long_as_one_takes(
    box: Outbox, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "step", lambda tx, **_given: slow(fake_clock))
    before = fake_clock.monotonic()
    assert box.upkeep(steps=3).more
    assert fake_clock.monotonic() - before == pytest.approx(3 * 0.5 + 2 * 0.5)


def slow(clock: FakeClock) -> upkeep.Tidied:
    clock.advance(0.5)
    return upkeep.Tidied(blanked=1, forgotten=0, forgotten_early=0, more=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *(({name: value}, f"{name} is a number of seconds {bound}, not {value!r}.")
          for name, bound in (("horizon_seconds", "above 0 and at most 253402300799"),
                              ("blank_after_seconds", "from 0 to 253402300799"))
          for value in (-5, float("nan"), float("inf"), True, "x")),
        ({"most_settled": -1}, "most_settled is a whole number from 0 to 9223372036854775807, not -1."),
        ({"most_settled": 1.0}, "most_settled is a whole number from 0 to 9223372036854775807, not 1.0."),
        ({"steps": 0}, "steps is a whole number from 1 to 1000000, not 0."),
        ({"steps": True}, "steps is a whole number from 1 to 1000000, not True."),
    ],
)
def test_upkeep_takes_numbers_that_make_sense(box: Outbox, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        box.upkeep(**given)
    assert told(caught.value) == says


def test_what_is_forgotten_is_in_the_feed_of_changes_and_a_claim_is_not(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    begun = store.changes.position()
    owe("one", due_at=fake_clock.now() + 50)
    box.retry("one")
    (claim,) = box.claim(["telegram"])
    box.renew(claim)
    box.settle(claim, Accepted())
    fake_clock.advance(HORIZON_SECONDS + 1)
    box.upkeep()
    seen = [(one.table_name, one.key, one.operation) for one in store.changes.since(begun).changes]
    assert seen == [("outbox", "one", operation) for operation in ("insert", "update", "update", "delete")]
