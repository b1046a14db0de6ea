"""Time is an argument; the fake clock is one for all processes of a test."""

from __future__ import annotations

from hermes_state.clock import SYSTEM, FakeClock, clock_from_environment


def test_system_clock_never_goes_back_on_its_monotonic_side() -> None:
    first, second = SYSTEM.monotonic(), SYSTEM.monotonic()
    assert second >= first
    assert SYSTEM.boottime() >= 0
    assert SYSTEM.now() > 1_700_000_000


def test_sleeping_on_the_fake_clock_moves_both_sides(fake_clock: FakeClock) -> None:
    start = fake_clock.now(), fake_clock.monotonic(), fake_clock.boottime()
    fake_clock.sleep(2.5)
    assert (fake_clock.now(), fake_clock.monotonic(), fake_clock.boottime()) == tuple(side + 2.5 for side in start)


def test_stepping_the_wall_leaves_the_monotonic_side(fake_clock: FakeClock) -> None:
    before = fake_clock.monotonic()
    now = fake_clock.now()
    fake_clock.step_wall(-3600)
    assert (fake_clock.now(), fake_clock.monotonic()) == (now - 3600, before)


def test_child_sees_the_same_time(fake_clock: FakeClock, child) -> None:
    fake_clock.advance(17)
    other = child(
        """
        from hermes_state.clock import clock_from_environment
        clock = clock_from_environment()
        print(clock.now(), clock.monotonic())
        clock.advance(3)
        """
    )
    assert other.finish().split() == [str(fake_clock.now() - 3), "17.0"]
    assert fake_clock.monotonic() == 20.0


def test_without_the_variable_the_clock_is_the_machines(monkeypatch) -> None:
    monkeypatch.delenv("HERMES_STATE_CLOCK", raising=False)
    assert clock_from_environment() is SYSTEM
