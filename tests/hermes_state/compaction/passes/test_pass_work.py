"""A turn that goes on and on: passes that new work makes due are no refills, whatever else is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_state import Store, open_store
from hermes_state.clock import FakeClock
from hermes_state.compaction.guards import Limits
from tests.hermes_state.compaction.passes.talks import call, lines, talk, words


@pytest.fixture
def store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with open_store(path=tmp_path / "state.db") as opened:
        yield opened


def step(store: Store, number: int, size: int) -> None:
    """One request of an agent: a call, and its result of `size` words."""
    store.messages.append("one", role="assistant", content=None, tool_calls=[call(f"s{number}")])
    store.messages.append("one", role="tool", tool_call_id=f"s{number}", content=lines(f"s{number}", size // 10))


@pytest.mark.slow
@pytest.mark.parametrize(("window", "size", "steps"), [
    (4_096, 1_300, 60), (4_096, 300, 150), (8_192, 1_300, 100), (16_384, 3_000, 80),
])
def test_one_turn_of_many_steps_goes_on_as_long_as_it_wants(
    store: Store, window: int, size: int, steps: int
) -> None:
    session = store.sessions.create(id="one", source="cli").id
    store.messages.append(session, role="user", content="Fix all the bugs in the repository.")
    passes = 0
    for number in range(steps):
        step(store, number, size)
        outcome = store.compaction.compact(session, window=window, counter=words)
        assert outcome.state != "given_up" and outcome.fits, (number, passes, outcome.detail)
        passes += outcome.changed
    assert passes > Limits().burst + len(Limits().ladder)
    made = store.compaction.generations(session)
    assert {one.reason for one in made[1:]} == {"work"}
    assert all(one.tokens_after is not None and one.tokens_after < one.tokens_before for one in made)
    # Work is what lets a pass be made: at least two steps, half of the time at the least.
    assert passes * Limits().steps_between <= steps


@pytest.mark.slow
def test_a_step_that_needs_a_pass_of_its_own_every_time_is_bounded(store: Store, fake_clock: FakeClock) -> None:
    session = store.sessions.create(id="one", source="cli").id
    store.messages.append(session, role="user", content="Fix all the bugs in the repository.")
    states = []
    for number in range(40):
        step(store, number, 3_800)
        outcome = store.compaction.compact(session, window=4_096, counter=words)
        states.append(outcome.state)
        fake_clock.advance(367.0)
    assert states.count("compacted") <= Limits().burst + len(Limits().ladder)
    assert (outcome.state, outcome.why) == ("given_up", "refilled") and outcome.fills


@pytest.mark.slow
def test_going_back_and_compacting_again_without_work_in_between_is_bounded(
    store: Store, fake_clock: FakeClock
) -> None:
    session, made = talk(store, 12), 0
    outcome = None
    for _ in range(30):
        outcome = store.compaction.compact(session, window=4_000, counter=words, fixed_tokens=200)
        made += outcome.changed
        store.compaction.rollback(session, 0)
        fake_clock.advance(400.0)
    assert outcome is not None and (outcome.state, outcome.why) == ("given_up", "refilled")
    assert made <= Limits().burst + len(Limits().ladder)


@pytest.mark.slow
def test_refusals_of_a_server_without_work_in_between_are_bounded_and_with_it_they_go_on(store: Store) -> None:
    session = store.sessions.create(id="one", source="cli").id
    store.messages.append(session, role="user", content="Fix all the bugs in the repository.")
    for number in range(60):
        step(store, number, 400)
        if number % 4 == 3:
            outcome = store.compaction.compact(session, window=4_000, counter=words, trigger="overflow")
            assert outcome.changed, (number, outcome.why, outcome.detail)


def test_the_rule_stands_in_the_settings(store: Store) -> None:
    settings = store.compaction.preview(talk(store, 9), window=4_000, counter=words).settings
    assert settings is not None and (settings.turns_between, settings.steps_between, settings.burst) == (8, 2, 4)
