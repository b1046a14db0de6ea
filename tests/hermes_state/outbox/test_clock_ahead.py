"""A clock that was ahead puts nothing off for longer than its schedule can, once it is right again."""

from __future__ import annotations

from collections.abc import Callable

from hermes_state.clock import FakeClock
from hermes_state.outbox import Failed, NotAdmitted, Outbox, Recorded, Schedule
from hermes_state.outbox.schedules import SET_BACK_SECONDS
from hermes_state.store import Store

Owe = Callable[..., Recorded]
YEAR = 3.15e7


def given(box: Outbox, *transports: str) -> list[str]:
    return sorted(one.dedupe_id for claim in box.claim(transports or ("telegram",), limit=50) for one in claim)


def test_what_was_recorded_refunded_failed_or_lost_by_a_clock_a_year_ahead_is_due_once_it_is_right(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("failed", lane="thread")
    owe("refunded")
    owe("lost", transport="gateway")
    owe("retried", transport="matrix", due_at=fake_clock.now() + 2 * YEAR)
    fake_clock.step_wall(YEAR)
    owe("recorded", lane="thread")
    box.deliver(
        lambda claim: Failed(why="no") if claim.primary.dedupe_id == "failed" else NotAdmitted(why="busy"),
        ["telegram"], limit=2,
    )
    box.claim(["gateway"], term_seconds=1)
    fake_clock.advance(2)
    box.claim(["nothing"])
    box.retry("retried")
    fake_clock.step_wall(-YEAR)
    assert box.counts().due_ahead == 5
    assert given(box, "telegram", "gateway", "matrix") == ["failed", "lost", "refunded", "retried"]
    assert box.counts().due_ahead == 0
    assert box.get("recorded").due_at == fake_clock.now()


def test_a_time_that_was_asked_for_is_kept_whatever_the_clock_does(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    asked = fake_clock.now() + YEAR
    owe("reminder", due_at=asked)
    fake_clock.step_wall(-YEAR)
    assert given(box) == []
    assert (box.get("reminder").due_at, box.counts().due_ahead) == (asked, 0)
    fake_clock.step_wall(2 * YEAR)
    assert given(box) == ["reminder"]


def test_a_clock_that_is_set_back_by_what_clocks_are_set_makes_nothing_due_before_its_time(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one", schedule=Schedule(delays=(600.0,)))
    box.deliver(lambda _claim: Failed(why="no"), ["telegram"])
    fake_clock.step_wall(-SET_BACK_SECONDS)
    assert given(box) == []
    fake_clock.step_wall(-1)
    assert given(box) == ["one"]


def test_a_rest_that_the_receiver_asked_for_is_believed_although_it_is_longer_than_the_schedule(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("one")
    box.deliver(lambda _claim: NotAdmitted(why="flood", retry_after=7 * 86_400.0), ["telegram"])
    assert (given(box), box.counts().due_ahead) == ([], 0)
    fake_clock.advance(7 * 86_400.0)
    assert given(box) == ["one"]


def test_many_that_were_put_off_come_back_in_bounded_steps(
    store: Store, box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    from hermes_state.outbox import append

    fake_clock.step_wall(YEAR)
    store.core.write(lambda tx: [
        append(tx, dedupe_id=f"row {number}", kind="x", transport="down", payload=1, policy="at_most_once",
               at=fake_clock.now()) for number in range(1100)
    ])
    fake_clock.step_wall(-YEAR)
    left = []
    for _call in range(3):
        box.claim(["nothing"])
        left.append(box.counts().due_ahead)
    assert left == [600, 100, 0]
