"""A clock that was wrong for a while makes no id forgotten that is new, and no new id too old."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, TooOld
from hermes_state.outbox import Accepted, Outbox, Recorded
from hermes_state.outbox.append import HORIZON_SECONDS
from tests.hermes_state.outbox.conftest import told

Owe = Callable[..., Recorded]
DAY = 86_400.0
YEARS = 3_652 * DAY


def settle_all(box: Outbox) -> None:
    for claim in box.claim(["telegram"], limit=100):
        box.settle(claim, Accepted())


def test_new_ids_are_recorded_after_a_clock_was_ten_years_ahead_and_rows_were_forgotten(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    began = fake_clock.now()
    owe("before")
    settle_all(box)
    fake_clock.step_wall(YEARS)
    owe("ahead")
    settle_all(box)
    fake_clock.advance(HORIZON_SECONDS + 1)
    assert box.upkeep().forgotten == 2
    fake_clock.step_wall(-YEARS)
    assert box.counts().remembered_from == began + YEARS
    assert owe("new").new
    assert not owe("new").new
    fake_clock.advance(5 * DAY)
    assert owe("new, later").new
    with pytest.raises(TooOld) as caught:  # it may be one of those that were forgotten
        owe("before", made_at=began + 6 * DAY)
    assert told(caught.value) == (
        f"Obligation 'before' was made 518401 s ago; {box._core.path} forgot ids up to 314495999 s from now, when a"
        " clock was ahead, so it cannot tell whether it was sent. Decide by what the receiver shows; if it is still"
        " owed, record it under a new id as made now: without made_at."
    )
    with pytest.raises(TooOld):
        owe("soon", made_at=fake_clock.now() + 60)
    settle_all(box)
    fake_clock.advance(HORIZON_SECONDS + 1)
    assert box.upkeep().forgotten == 2  # the new ones, as if nothing had been
    assert box.counts().remembered_from == began + YEARS


def test_the_horizon_is_what_was_forgotten_and_nothing_more(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    owe("one")
    settle_all(box)
    fake_clock.step_wall(YEARS)
    owe("owed")
    box.upkeep()
    fake_clock.step_wall(-YEARS)
    assert box.counts().remembered_from == fake_clock.now()
    fake_clock.advance(1.0)
    assert owe("new").new


def test_what_was_made_after_now_is_not_forgotten_by_the_cap_either(
    box: Outbox, owe: Owe, fake_clock: FakeClock
) -> None:
    owe("ahead", made_at=fake_clock.now() + 3600)
    owe("now")
    settle_all(box)
    done = box.upkeep(most_settled=0)
    assert (done.forgotten_early, done.more) == (1, False)
    assert [one.dedupe_id for one in box.page()] == ["ahead"]
    assert box.counts().remembered_from == fake_clock.now()
    fake_clock.advance(3601)
    assert box.upkeep(most_settled=0).forgotten_early == 1


def test_what_was_forgotten_in_this_instant_is_too_old_in_it(box: Outbox, owe: Owe) -> None:
    owe("one")
    settle_all(box)
    assert box.upkeep(most_settled=0).forgotten_early == 1
    with pytest.raises(TooOld):
        owe("one")


def test_a_sender_may_be_a_day_ahead_and_no_more(box: Outbox, owe: Owe, fake_clock: FakeClock) -> None:
    assert owe("time zone", made_at=fake_clock.now() + DAY).new
    with pytest.raises(InvalidInput) as caught:
        owe("one", made_at=fake_clock.now() + DAY + 1)
    assert told(caught.value) == (
        "Obligation 'one' says that it was made 86401 s from now; 86400 s is what a clock may be ahead. made_at is when"
        " its sender made it; when it may go out is due_at."
    )
    fake_clock.step_wall(-10 * DAY)
    assert not owe("time zone", made_at=fake_clock.now() + 11 * DAY).new  # it is here: nothing is judged
