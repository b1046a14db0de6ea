"""The busy handler: soon half a millisecond between tries, and one deadline."""

from __future__ import annotations

from hermes_state.clock import FakeClock
from hermes_state.engine.busy import BusyWait


def tries_until_it_gives_up(wait: BusyWait) -> int:
    tries = 0
    while wait(tries):
        tries += 1
    return tries


def test_naps_are_a_tenth_of_a_millisecond_then_half_a_one_then_four(fake_clock: FakeClock) -> None:
    wait = BusyWait(fake_clock, 1.0)
    moments = []
    for tries in range(52):
        before = fake_clock.monotonic()
        assert wait(tries)
        moments.append(round(fake_clock.monotonic() - before, 6))
    assert moments == [0.0001] * 10 + [0.0005] * 40 + [0.004] * 2


def test_wait_ends_at_the_deadline_and_not_after_it(fake_clock: FakeClock) -> None:
    wait = BusyWait(fake_clock, 0.5)
    assert tries_until_it_gives_up(wait) > 100
    assert round(wait.waited, 6) == 0.5
    assert wait.remaining == 0


def test_no_patience_means_no_nap(fake_clock: FakeClock) -> None:
    wait = BusyWait(fake_clock, 0.0)
    before = fake_clock.monotonic()
    assert not wait(0)
    assert fake_clock.monotonic() == before


def test_arming_starts_a_new_wait(fake_clock: FakeClock) -> None:
    wait = BusyWait(fake_clock, 0.0)
    fake_clock.advance(10)
    wait.arm(2.0)
    assert (wait.waited, wait.remaining) == (0.0, 2.0)


def test_deadline_counts_from_the_first_nap_and_not_from_the_arming(fake_clock: FakeClock) -> None:
    wait = BusyWait(fake_clock, 2.0)
    fake_clock.advance(10)
    assert (wait.waited, wait.remaining) == (0.0, 2.0)
    assert wait(0)
    fake_clock.advance(10)
    assert not wait(1)
