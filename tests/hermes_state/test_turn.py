"""The turn among threads of one process: in order, with a deadline, without naps."""

from __future__ import annotations

import threading
import time

from hermes_state.clock import SYSTEM, FakeClock
from hermes_state.engine.busy import BusyWait
from hermes_state.engine.turn import Turn


def waiting(turn: Turn, count: int) -> None:
    """Until that many threads are in the queue."""
    deadline = time.monotonic() + 30
    while len(turn._queue) < count:
        assert time.monotonic() < deadline
        time.sleep(0)


def test_turn_goes_to_who_has_waited_longest() -> None:
    turn, order = Turn(SYSTEM), []
    assert turn.take_if_free(1)

    def take(thread: int) -> None:
        assert turn.wait_for(thread, BusyWait(SYSTEM, 30.0))
        order.append((thread, turn.owner))
        turn.give(thread)

    threads = []
    for thread in (2, 3, 4):
        threads.append(threading.Thread(target=take, args=(thread,)))
        threads[-1].start()
        waiting(turn, thread - 1)
    turn.give(1)
    for running in threads:
        running.join(30)
    assert order == [(2, 2), (3, 3), (4, 4)]
    assert turn.owner == 0
    assert turn.take_if_free(9)


def test_nobody_overtakes_a_thread_that_waits() -> None:
    turn = Turn(SYSTEM)
    assert turn.take_if_free(1)
    taken, leave = threading.Event(), threading.Event()

    def take() -> None:
        assert turn.wait_for(2, BusyWait(SYSTEM, 30.0))
        taken.set()
        leave.wait(30)
        turn.give(2)

    thread = threading.Thread(target=take)
    thread.start()
    waiting(turn, 1)
    turn.give(1)
    assert not turn.take_if_free(1)
    assert taken.wait(30)
    leave.set()
    thread.join(30)
    assert turn.take_if_free(1)


def test_deadline_of_the_system_clock_ends_the_wait() -> None:
    turn, wait = Turn(SYSTEM), BusyWait(SYSTEM, 0.02)
    assert turn.take_if_free(1)
    assert not turn.wait_for(2, wait)
    assert wait.waited >= 0.02
    assert (turn.owner, len(turn._queue)) == (1, 0)
    turn.give(1)
    assert turn.take_if_free(2)


def test_deadline_of_a_clock_moved_by_hand_ends_the_wait(fake_clock: FakeClock) -> None:
    turn, wait = Turn(fake_clock), BusyWait(fake_clock, 5.0)
    assert turn.take_if_free(1)
    assert not turn.wait_for(2, wait)
    assert round(wait.waited, 6) == 5.0


def test_turn_is_never_lost_between_deadlines_and_handovers() -> None:
    turn, had = Turn(SYSTEM), [0, 0]

    def hurry(thread: int) -> None:
        for n in range(300):
            wait = BusyWait(SYSTEM, (n % 5) * 0.0001)
            if turn.take_if_free(thread) or turn.wait_for(thread, wait):
                assert turn.owner == thread
                had[0] += 1
                turn.give(thread)
            else:
                had[1] += 1

    threads = [threading.Thread(target=hurry, args=(n,)) for n in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(had) == 1500
    assert (turn.owner, len(turn._queue)) == (0, 0)
    assert turn.take_if_free(9)
