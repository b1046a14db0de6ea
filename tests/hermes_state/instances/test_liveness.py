"""Whether a connection still answers (T1.22, T1.23); the reason that waiters get is in test_correlation."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hermes_state.instances import liveness
from hermes_state.instances.generations import Generation
from hermes_state.instances.liveness import (
    LONGEST_SECONDS,
    Act,
    Due,
    Event,
    Liveness,
    State,
    Watch,
    answer,
    begin,
    tick,
)

G1, G2 = Generation(1, 1), Generation(1, 2)


def test_every_state_and_event_has_its_outcome() -> None:
    """R42."""
    resting, probed, retired = State
    outcomes = {pair: liveness.to_event(*pair) for pair in product(State, Event)}
    assert outcomes == {
        (resting, Event.DUE): (probed, Act.PROBE), (resting, Event.DUE_LAST): None,
        (resting, Event.ANSWER): (resting, Act.NOTHING), (resting, Event.STRAY_ANSWER): (resting, Act.NOTHING),
        (probed, Event.DUE): (probed, Act.PROBE), (probed, Event.DUE_LAST): (retired, Act.RETIRE),
        (probed, Event.ANSWER): (resting, Act.NOTHING), (probed, Event.STRAY_ANSWER): (probed, Act.NOTHING),
        (retired, Event.DUE): None, (retired, Event.DUE_LAST): None, (retired, Event.ANSWER): None,
        (retired, Event.STRAY_ANSWER): None,
    }


def seconds_until_retired(one: Liveness, now: float, step: float = 1.0) -> float:
    started = now
    while one.state is not State.RETIRED and now < started + 100.0:
        now += step
        one, _ = tick(one, now)
    return now - started


def test_silent_connection_is_retired_after_28_seconds() -> None:
    """T1.22, R32."""
    assert LONGEST_SECONDS == 28.0
    assert seconds_until_retired(begin(100.0), 100.0) == 28.0
    acts = []
    one = begin(0.0)
    for now in range(1, 40):
        one, act = tick(one, float(now))
        if act is not Act.NOTHING:
            acts.append((now, act))
    assert acts == [(10, Act.PROBE), (16, Act.PROBE), (22, Act.PROBE), (28, Act.RETIRE)]


def test_two_of_three_probes_answered_late_never_retire() -> None:
    """T1.23: for an hour, the first two probes of each round are answered after their time."""
    one, now = begin(0.0), 0.0
    for _ in range(120):
        now += 10.0
        one, act = tick(one, now)
        assert act is Act.PROBE
        late = [one.sent]
        for _ in range(2):
            now += 6.0
            one, act = tick(one, now)
            assert act is Act.PROBE
            late.append(one.sent)
        one = answer(one, late[2], now + 1.0)  # in time
        now += 1.0
        assert (one.state, one.misses) == (State.RESTING, 0)
        for probe in late[:2]:
            one = answer(one, probe, now)
        assert one.state is State.RESTING


def test_late_answer_proves_life() -> None:
    """T1.23."""
    one, _ = tick(begin(0.0), 10.0)
    one, _ = tick(one, 16.0)
    one, _ = tick(one, 22.0)
    one = answer(one, 1, 27.9)
    assert (one.state, one.misses, one.due_at) == (State.RESTING, 0, 37.9)


def test_answer_to_nothing_that_was_asked_proves_nothing() -> None:
    """A peer that repeats one answer for ever, or makes answers up, is retired all the same."""
    one, _ = tick(begin(0.0), 10.0)
    one = answer(one, 1, 10.5)
    for second in range(60):
        if one.state is State.RETIRED:
            break
        now = 11.5 + second
        one, _ = tick(one, now)
        for stray in (1, 0, -3, one.sent + 1, 10**9):
            one = answer(one, stray, now)
    assert one.state is State.RETIRED
    assert now - 10.5 <= LONGEST_SECONDS + 1.0


def test_retired_is_the_end() -> None:
    one = begin(0.0)
    for now in (10.0, 16.0, 22.0, 28.0):
        one, _ = tick(one, now)
    assert answer(one, one.sent, 28.5) == one
    assert tick(one, 1000.0) == (one, Act.NOTHING)


def test_server_that_slept_retires_nobody_for_its_own_sleep() -> None:
    one, act = tick(begin(0.0), 4000.0)
    assert (act, one.due_at, one.misses) == (Act.PROBE, 4006.0, 0)


@given(st.lists(st.tuples(st.floats(0.0, 20.0), st.sampled_from(["tick", "newest", "older", "made up"])), max_size=40))
def test_silence_from_any_moment_ends_within_28_seconds(story: list[tuple[float, str]]) -> None:
    """T1.22, whatever happened before, for ticks once a second."""
    one, now = begin(0.0), 0.0
    for pause, what in story:
        for _ in range(int(pause)):
            now += 1.0
            one, _ = tick(one, now)
        if what != "tick":
            one = answer(one, {"newest": one.sent, "older": one.sent - 1, "made up": one.sent + 7}[what], now)
    if one.state is not State.RETIRED:
        assert seconds_until_retired(one, now) <= LONGEST_SECONDS + 1.0
    assert len(one.answered) <= liveness.MOST_MISSES


def test_watch_follows_the_connection_that_is_live() -> None:
    watch = Watch()
    watch.begin("mac", G1, 0.0)
    watch.begin("mac", G2, 5.0)
    watch.begin("mac", G1, 6.0)  # told late
    assert watch.due(10.0) == []
    assert watch.due(15.0) == [Due(instance_id="mac", generation=G2, act=Act.PROBE, probe=1)]
    assert not watch.answer("mac", G1, 1, 15.0)
    assert not watch.end("mac", G1)
    assert [one.act for now in (21.0, 27.0, 33.0) for one in watch.due(now)] == [Act.PROBE, Act.PROBE, Act.RETIRE]
    assert (len(watch), watch.answer("mac", G2, 3, 34.0), watch.end("mac", G2)) == (0, False, False)
