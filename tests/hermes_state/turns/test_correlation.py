"""Which answer belongs to which request (T1.22, T1.26 to T1.29)."""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import CancelledError
from itertools import product

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import ConnectionLost, InvalidInput, RequestAbandoned, RequestTimedOut
from hermes_state.instances.close_codes import CLOSINGS, CloseCode
from hermes_state.instances.generations import Generation
from hermes_state.instances.liveness import LONGEST_SECONDS, Act, Watch
from hermes_state.turns import correlation
from hermes_state.turns.correlation import REMEMBERED, Correlator, Event, Reply, Request, State, reply_to
from hermes_state.turns.operations import DEADLINES


@pytest.fixture(name="correlator")
def new_correlator(fake_clock: FakeClock) -> Correlator:
    return Correlator(fake_clock)


def test_every_state_and_event_of_a_request_has_its_outcome() -> None:
    """R42."""
    ends = dict(zip(Event, (State.ANSWERED, State.TIMED_OUT, State.LOST, State.ABANDONED, State.LEFT), strict=True))
    for state, event in product(State, Event):
        assert correlation.to_event(state, event) == (ends[event] if state is State.WAITING else None)
    assert {state: reply_to(state) for state in (None, *State)} == {
        None: Reply.UNKNOWN, State.WAITING: Reply.DELIVERED, State.ANSWERED: Reply.DUPLICATE,
        State.TIMED_OUT: Reply.LATE, State.LOST: Reply.LATE, State.ABANDONED: Reply.LATE, State.LEFT: Reply.LATE,
    }


def test_answer_reaches_who_waits_and_nothing_is_kept(correlator: Correlator) -> None:
    with correlator.request("mac", "1.1", "turn.start") as request:
        assert correlator.answer(request.id, {"turn": "t1"}) is Reply.DELIVERED
        assert request.answer.result(0) == {"turn": "t1"}
    assert len(correlator) == 0


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("when", range(8))
def test_cancelled_anywhere_a_request_is_over(correlator: Correlator, when: int, answered: bool) -> None:
    """T1.26, R36: 1,000 runs over the steps of the event loop at which the waiter may be."""

    async def one() -> None:
        sent: list[Request] = []

        async def send(request: Request) -> None:
            sent.append(request)
            for _ in range(3):
                await asyncio.sleep(0)

        task = asyncio.create_task(correlator.ask("mac", "1.1", "turn.start", send))
        for _ in range(when):
            await asyncio.sleep(0)
        if answered and sent:  # and the cancel in the same step
            correlator.answer(sent[0].id, "answer")
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() or (answered and task.result() == "answer")
        assert len(correlator) == 0

    async def all_of_them() -> None:
        for _ in range(63):
            await one()

    asyncio.run(all_of_them())
    assert len(correlator) == 0


def test_request_whose_sending_fails_is_over(correlator: Correlator) -> None:
    """T1.26."""

    async def send(request: Request) -> None:
        raise BrokenPipeError("socket closed")

    with pytest.raises(BrokenPipeError):
        asyncio.run(correlator.ask("mac", "1.1", "turn.start", send))
    assert len(correlator) == 0


def test_answer_from_another_thread_reaches_a_coroutine(correlator: Correlator) -> None:
    async def send(request: Request) -> None:
        threading.Thread(target=correlator.answer, args=(request.id, 7)).start()

    assert asyncio.run(correlator.ask("mac", "1.1", "session.ensure", send)) == 7


def test_request_that_nobody_ends_is_gone_after_ninety_seconds(
    correlator: Correlator, fake_clock: FakeClock
) -> None:
    """T1.27, R37: its owner died between begin and leave."""
    left = correlator.begin("mac", "1.1", "turn.start", request_id="r1")
    fake_clock.advance(60.0)
    later = correlator.begin("mac", "1.1", "turn.start")
    assert correlator.sweep() == 0
    fake_clock.advance(30.0)
    assert (correlator.sweep(), correlator.sweep(), len(correlator)) == (1, 0, 1)
    with pytest.raises(RequestAbandoned) as error:
        left.answer.result(0)
    assert str(error.value) == "Request turn.start to instance 'mac' was abandoned: nobody ended it for 90 s."
    assert not later.answer.done()
    copy = pickle.loads(pickle.dumps(error.value))
    assert (copy.request_id, copy.owner, copy.method, copy.age_seconds) == ("r1", "mac", "turn.start", 90.0)


def test_each_operation_has_its_own_deadline(correlator: Correlator, fake_clock: FakeClock) -> None:
    """T1.28, R38: a steer that answers at 31 s succeeds, a start that does fails, without any tick in between."""
    start = correlator.begin("mac", "1.1", "turn.start")
    steer = correlator.begin("mac", "1.1", "turn.steer")
    fake_clock.advance(31.0)
    assert correlator.answer(start.id, "late") is Reply.LATE
    assert correlator.answer(steer.id, "queued") is Reply.DELIVERED
    assert steer.answer.result(0) == "queued"
    with pytest.raises(RequestTimedOut) as error:
        start.answer.result(0)
    assert str(error.value) == "Instance 'mac' did not answer turn.start within 30 s."
    assert error.value.hint == "Whether it was carried out is not known."


def test_answer_at_the_deadline_itself_still_counts(correlator: Correlator, fake_clock: FakeClock) -> None:
    start = correlator.begin("mac", "1.1", "turn.start")
    fake_clock.advance(30.0)
    assert correlator.end_overdue() == 0
    assert correlator.answer(start.id, "just in time") is Reply.DELIVERED


def test_deadlines_lie_between_a_dead_connection_and_the_sweep() -> None:
    """T1.22 and T1.27: so those who wait hear that the connection died, and nobody is swept who may wait on."""
    assert min(DEADLINES.values()) > LONGEST_SECONDS + 1.0
    assert max(DEADLINES.values()) < correlation.MOST_AGE_SECONDS


@pytest.mark.parametrize(("method", "seconds"), [("turn.dance", None), ("turn.start", 0), ("turn.start", 90.5)])
def test_request_without_a_deadline_is_refused(correlator: Correlator, method: str, seconds: float | None) -> None:
    with pytest.raises(InvalidInput):
        correlator.begin("mac", "1.1", method, seconds=seconds)
    assert len(correlator) == 0


def test_second_late_and_unknown_answers_change_nothing_and_are_counted(
    correlator: Correlator, fake_clock: FakeClock
) -> None:
    """T1.29."""
    with correlator.request("mac", "1.1", "turn.start") as answered:
        assert correlator.answer(answered.id, "first") is Reply.DELIVERED
        assert correlator.answer(answered.id, "second") is Reply.DUPLICATE
        assert correlator.refuse(answered.id, ValueError("third")) is Reply.DUPLICATE
        assert answered.answer.result(0) == "first"
    with correlator.request("mac", "1.1", "turn.start") as left:
        pass
    assert correlator.answer(left.id, "late") is Reply.LATE
    assert correlator.answer("never asked", "x") is Reply.UNKNOWN
    assert correlator.replies == {Reply.DELIVERED: 1, Reply.DUPLICATE: 2, Reply.LATE: 1, Reply.UNKNOWN: 1}
    with pytest.raises(CancelledError):
        left.answer.result(0)
    with pytest.raises(InvalidInput) as error:
        correlator.begin("mac", "1.1", "turn.start", request_id=answered.id)
    assert str(error.value) == f"Request {answered.id!r} was begun before."


def test_what_is_remembered_of_ended_requests_is_bounded(correlator: Correlator) -> None:
    for number in range(REMEMBERED + 10):
        with correlator.request("mac", "1.1", "turn.start", request_id=f"r{number}"):
            pass
    assert (correlator.answer("r0", 1), correlator.answer("r10", 1)) == (Reply.UNKNOWN, Reply.LATE)
    assert len(correlator._ended) == REMEMBERED


def test_two_threads_answer_one_request_and_one_is_first(correlator: Correlator) -> None:
    """T1.29: 100 rounds behind a barrier."""
    for _ in range(100):
        request = correlator.begin("mac", "1.1", "turn.start")
        barrier = threading.Barrier(2)
        replies: dict[Reply, int] = {}
        threads = [
            threading.Thread(target=_answer, args=(correlator, request.id, who, barrier, replies)) for who in (1, 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert set(replies) == {Reply.DELIVERED, Reply.DUPLICATE}
        assert request.answer.result(0) == replies[Reply.DELIVERED]


def _answer(
    correlator: Correlator, request_id: str, who: int, barrier: threading.Barrier, replies: dict[Reply, int]
) -> None:
    barrier.wait(10)
    replies[correlator.answer(request_id, who)] = who


def test_end_of_a_connection_fails_only_what_waits_on_it(correlator: Correlator) -> None:
    old = correlator.begin("mac", "1.1", "turn.start")
    new = correlator.begin("mac", "1.2", "turn.start")
    other = correlator.begin("phone", "1.1", "turn.start")
    ended = correlator.end_connection("mac", "1.1", close_code=4001, reason="replaced by another connection")
    assert (ended, len(correlator)) == (1, 2)
    with pytest.raises(ConnectionLost) as error:
        old.answer.result(0)
    assert str(error.value) == (
        "The connection of instance 'mac' ended before it answered turn.start: replaced by another connection."
    )
    assert not new.answer.done()
    assert not other.answer.done()


@pytest.mark.parametrize("begun", range(0, 29))
def test_request_on_a_half_open_connection_fails_with_the_reason_and_not_with_its_deadline(
    correlator: Correlator, fake_clock: FakeClock, begun: int
) -> None:
    """T1.22: the peer goes silent at 0, a start is sent at any second; ticks come once a second."""
    watch, generation = Watch(), Generation(1, 1)
    watch.begin("mac", generation, fake_clock.monotonic())
    request, retired_at = None, None
    for second in range(60):
        if second == begun:
            request = correlator.begin("mac", str(generation), "turn.start")
        correlator.end_overdue()
        for due in watch.due(fake_clock.monotonic()):
            if due.act is Act.RETIRE:
                code = CLOSINGS[CloseCode.NOT_ANSWERING]
                correlator.end_connection(
                    due.instance_id, str(due.generation), close_code=code.code, reason=code.reason
                )
                retired_at = second
        if retired_at is not None:
            break
        fake_clock.advance(1.0)
    assert retired_at == 28
    if request is None or begun > retired_at:
        return
    with pytest.raises(ConnectionLost) as error:
        request.answer.result(0)
    assert str(error.value) == (
        "The connection of instance 'mac' ended before it answered turn.start: probes were not answered."
    )
    assert error.value.facts["close_code"] == 4008
