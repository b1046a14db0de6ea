"""The state machines, enumerated: every status with every event, every situation with its one step."""

from __future__ import annotations

import itertools

import pytest

from hermes_state.work.credentials.states import (
    STATUSES,
    WITH_LEASE,
    Event,
    Held,
    Rotation,
    Situation,
    Status,
    Step,
    after,
    decide,
    renew_after,
    rest_until,
)


@pytest.mark.parametrize(("status", "event"), list(itertools.product(Status, Event)))
def test_every_pair_of_status_and_event_has_its_outcome(status: Status, event: Event) -> None:
    expected = {
        Event.WORK: Status.OK, Event.LIMIT: Status.EXHAUSTED, Event.END: Status.DEAD, Event.RENEW: Status.OK,
    }[event]
    if status is Status.DEAD and event is not Event.RENEW:  # dead is dead until there is a new grant
        assert (status, event) not in STATUSES
        expected = Status.DEAD
    assert after(status, event) is expected


SITUATIONS = [
    Situation(held=held, status=status, cooling=cooling, rotation=rotation, usable=usable, renewable=renewable)
    for held, status, cooling, rotation, usable, renewable in itertools.product(
        Held, Status, (False, True), Rotation, (False, True), (False, True)
    )
]


def expected(seen: Situation) -> set[Step]:
    """What may follow, said the other way round: which situations each step is allowed in."""
    found = set()
    same, alive = seen.held is Held.SAME, seen.status is not Status.DEAD
    rests = seen.status is Status.EXHAUSTED and seen.cooling
    lost = same and alive and not seen.usable and seen.rotation is Rotation.MAY_BE_LOST
    ready = same and alive and not rests and not lost
    for step, when in {
        Step.MISSING: seen.held is Held.NOTHING,
        Step.ADOPT: seen.held is Held.NEWER,
        Step.DEAD: same and not alive,
        Step.COOLING: same and alive and rests and not lost,
        Step.SERVE: ready and seen.usable,
        Step.LOSE: ready and not seen.usable and seen.rotation is Rotation.ROTATING,
        Step.LOST: seen.held is Held.SPENT or lost,
        Step.POST: ready and not seen.usable and seen.rotation is Rotation.WHOLE and seen.renewable,
        Step.EXPIRED: ready and not seen.usable and seen.rotation is Rotation.WHOLE and not seen.renewable,
    }.items():
        if when:
            found.add(step)
    return found


def test_every_situation_has_exactly_one_step() -> None:
    assert len(SITUATIONS) == 288
    assert [seen for seen in SITUATIONS if {decide(seen)} != expected(seen)] == []


def test_a_token_is_sent_only_when_nothing_says_that_it_was_sent_before() -> None:
    sent = [seen for seen in SITUATIONS if decide(seen) is Step.POST]
    assert sent
    assert all(seen.rotation is Rotation.WHOLE and seen.held is Held.SAME for seen in sent)
    assert all(seen.status is not Status.DEAD and not seen.usable for seen in sent)


def test_every_step_is_reached_and_those_that_change_something_need_the_lease() -> None:
    assert {decide(seen) for seen in SITUATIONS} == set(Step)
    assert set(WITH_LEASE) == {Step.ADOPT, Step.POST, Step.LOSE}


@pytest.mark.parametrize(("code", "reset_at", "until"), [
    (401, None, 1300.0), ("401", None, 1300.0), (429, None, 4600.0), (None, None, 4600.0), (500, None, 4600.0),
    (401, 1001.0, 1001.0), (429, 9_000.0, 9_000.0), (401, 1000.0, 1300.0), (429, 1.0, 4600.0),
])
def test_rests_are_those_of_the_facts(code: str | int | None, reset_at: float | None, until: float) -> None:
    assert rest_until(1000.0, code, reset_at) == until


def test_a_short_life_is_used_for_half_of_it() -> None:
    lives = (None, -5.0, 0.0, 100.0, 240.0, 241.0, 3600.0)
    renewed = [renew_after(1000.0, None if lasts is None else 1000.0 + lasts) for lasts in lives]
    assert renewed == [None, None, None, 1050.0, 1120.0, None, None]
