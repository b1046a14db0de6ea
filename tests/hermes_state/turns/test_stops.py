"""Stops: T1.41 to T1.45 of the facts on gateways, with the store alone; kills are in tests/processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, ThreadNotFound, ThreadStopped
from hermes_state.outbox import Accepted, Claim, NotSent, Refused
from hermes_state.store import Store
from hermes_state.turns import Admission, FrameKind, StopCause, StopState, ThreadStatus, TurnState
from hermes_state.turns.records import Stop, find_stop
from hermes_state.turns.turns import Turns
from tests.hermes_state.turns.conftest import GATEWAY, Plugin, frame, silent
from tests.support.bound_threads import bind

Run = Callable[..., str]


def asked(turns: Turns, thread: str = "thread") -> Stop:
    made = turns.stop(thread)
    assert made is not None
    return made


def stop_now(store: Store, stop: Stop) -> Stop:
    with store.core.reader() as reader:
        found = find_stop(reader, stop.stop_id)
    assert found is not None
    return found


def test_t1_41_a_stop_while_offline_goes_before_any_other_frame_of_its_thread(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.41, R33: also before what was owed to the thread earlier, which is taken back."""
    run("t1")
    turns.ensure("thread")
    stop = asked(turns)
    thread = turns.thread("thread")
    assert (thread.status, thread.active_turn_id) == (ThreadStatus.STOP_PENDING, None)
    turns.ensure("thread")  # somebody wants the session back, after the stop
    assert plugin.reconnect() == ["stop", "ensure"]
    assert stop_now(store, stop).state is StopState.ACKED
    turn = turns.get("t1")
    assert turn is not None
    assert (turn.state, turn.exit_class) == (TurnState.STOPPED, "graceful")


def test_t1_41_a_stop_is_asked_for_once_a_session(turns: Turns, plugin: Plugin, run: Run) -> None:
    """T1.41: a second wish finds the first, and after the end there is nothing to stop."""
    run("t1")
    assert asked(turns) == asked(turns)
    assert plugin.hear() == ["stop"]
    assert turns.thread("thread").status is ThreadStatus.STOPPED
    assert turns.stop("thread") is None
    assert plugin.hear() == []


def test_t1_41_a_repeat_has_one_effect_and_the_first_outcome(
    store: Store, turns: Turns, plugin: Plugin, run: Run, fake_clock: FakeClock
) -> None:
    """T1.41: the acknowledgement was lost; the gateway answers the repeat with what it said first."""
    run("t1")
    stop = asked(turns)

    def deaf(claim: Claim) -> None:
        plugin(claim)  # it arrived; the answer did not
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        turns.send(GATEWAY, deaf)
    assert turns.thread("thread").status is ThreadStatus.STOP_PENDING
    fake_clock.advance(1.0)
    assert plugin.reconnect() == ["stop"]
    assert plugin.effects == 1
    assert [payload["stop_id"] for _kind, payload in plugin.heard] == [stop.stop_id] * 2
    assert stop_now(store, stop).outcome == "stopped"


def test_t1_41_a_stop_that_ran_out_of_attempts_is_owed_again_under_its_id(
    store: Store, turns: Turns, plugin: Plugin, run: Run, fake_clock: FakeClock
) -> None:
    """T1.41: pending until it is acknowledged, whatever becomes of its obligations."""
    run("t1")
    stop = asked(turns)

    def broken(claim: Claim) -> None:
        raise NotSent("no route")

    for _ in range(10):
        turns.send(GATEWAY, broken)
        fake_clock.advance(60.0)
    assert turns.claim(GATEWAY) == []
    assert turns.sweep().stops_owed_again == (stop.stop_id,)
    assert turns.sweep().stops_owed_again == ()
    assert plugin.hear() == ["stop"]
    assert plugin.heard[0][1]["stop_id"] == stop.stop_id
    assert stop_now(store, stop).obligation == f"stop/{stop.stop_id}#2"
    assert turns.thread("thread").status is ThreadStatus.STOPPED


def test_a_stop_that_somebody_settled_in_the_outbox_is_taken_as_settled(
    store: Store, turns: Turns, run: Run
) -> None:
    run("t1")
    asked(turns)
    (claim,) = store.outbox.claim([f"gateway/{GATEWAY}"])
    store.outbox.settle(claim, Accepted())
    assert turns.thread("thread").status is ThreadStatus.STOP_PENDING
    turns.sweep()
    assert turns.thread("thread").status is ThreadStatus.STOPPED


def test_t1_42_what_comes_between_reconnect_and_acknowledgement_is_discarded(
    store: Store, turns: Turns, run: Run
) -> None:
    """T1.42, R33."""
    turn_id = run("t1")
    asked(turns)
    between = [
        frame(FrameKind.CONTENT_DELTA, turn_id, text="x"), frame(FrameKind.CONTENT_SNAPSHOT, turn_id, text="y"),
        frame(FrameKind.ITEM, turn_id, item_type="status_text", text="z"), frame(FrameKind.TURN_STARTED, "t2"),
        frame(FrameKind.APPROVAL, turn_id, request_id="r1"),
    ]
    before = store.changes.position()
    assert [turns.admits(one) for one in between] == [False] * 5
    assert {turns.receive(one, boot_id="boot-1").admission for one in between} == {Admission.STOPPING}
    assert store.changes.position() == before
    turn = turns.get(turn_id)
    assert turn is not None
    assert (turns.items(turn), turns.questions()) == ([], [])


def test_t1_43_a_deliberate_stop_is_graceful_even_if_its_session_says_otherwise(
    turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.43: the plugin answers a stop with `session.exited recoverable:true`, which was an error elsewhere."""
    run("t1")
    asked(turns)
    turns.receive(frame(FrameKind.SESSION_EXITED, recoverable=True, error="killed"))
    thread = turns.thread("thread")
    assert (thread.status, thread.error) == (ThreadStatus.STOPPED, None)
    turn = turns.get("t1")
    assert turn is not None
    assert (turn.state, turn.exit_class) == (TurnState.STOPPED, "graceful")
    assert plugin.reconnect() == []


def test_t1_43_a_crash_ends_in_error(turns: Turns, run: Run) -> None:
    """T1.43."""
    run("t1")
    turns.receive(frame(FrameKind.SESSION_EXITED, exit_kind="error", error="out of memory"))
    thread = turns.thread("thread")
    assert (thread.status, thread.error) == (ThreadStatus.ERROR, "out of memory")
    turn = turns.get("t1")
    assert turn is not None
    assert (turn.state, turn.exit_class, turn.error) == (TurnState.FAILED, "error", "out of memory")


def test_t1_44_a_shutdown_sends_no_stop_and_a_person_sends_one(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.44, R41."""
    for number in range(20):
        bind(store, f"thread {number}", GATEWAY, "session")
        run(f"turn {number}", thread=f"thread {number}")
    before = store.changes.position()
    assert [turns.stop(f"thread {number}", cause=StopCause.SHUTDOWN) for number in range(20)] == [None] * 20
    assert store.changes.position() == before
    assert plugin.hear() == []
    assert {turns.thread(f"thread {number}").status for number in range(20)} == {ThreadStatus.RUNNING}
    asked(turns, "thread 7")
    assert plugin.hear() == ["stop"]


def test_t1_45_a_later_ensure_of_another_session_cancels_the_stop(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.45: the stop of the previous session is taken back; what it stopped stays stopped."""
    run("t1")
    stop = asked(turns)
    turns.ensure("thread", session_id="session 2")
    now = stop_now(store, stop)
    assert (now.state, now.outcome) == (StopState.CANCELLED, "session session 2 was asked for later")
    plugin.active.clear()
    assert plugin.reconnect() == ["ensure"]
    thread = turns.thread("thread")
    assert (thread.session_id, thread.status) == ("session 2", ThreadStatus.READY)
    turn = turns.get("t1")
    assert turn is not None
    assert turn.state is TurnState.STOPPED


def test_t1_45_an_earlier_ensure_does_not_cancel_the_stop_nor_undo_it_by_a_late_answer(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.45: the ensure was on its way when the stop was asked for."""
    turns.open_thread("thread")
    turns.ensure("thread", session_id="session 2")
    (ensure,) = turns.claim(GATEWAY)
    stop = asked(turns)
    assert stop.session_id == "session 2"
    assert plugin.hear() == ["stop"]  # a higher priority does not wait for what is on its way
    turns.settle(ensure, Accepted(result={"session_id": "session 2", "active_turn_id": None, "boot_id": "boot-1"}))
    assert stop_now(store, stop).state is StopState.ACKED
    assert turns.thread("thread").status is ThreadStatus.STOPPED


def test_t1_45_an_ensure_of_the_same_session_waits_for_its_stop(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.45: it is not the previous session's stop."""
    run("t1")
    stop = asked(turns)
    turns.ensure("thread")
    assert stop_now(store, stop).state is StopState.PENDING
    assert plugin.hear() == ["stop", "ensure"]
    assert turns.thread("thread").status is ThreadStatus.READY
    assert turns.start("thread", silent).state is TurnState.RUNNING


def test_a_stop_of_a_session_that_the_gateway_does_not_know_is_done(store: Store, turns: Turns, run: Run) -> None:
    run("t1")
    stop = asked(turns)
    turns.send(GATEWAY, lambda claim: Refused(why="session-not-found"))
    now = stop_now(store, stop)
    assert (now.state, now.outcome) == (StopState.ACKED, "session-not-found")
    assert turns.thread("thread").status is ThreadStatus.STOPPED


def test_no_turn_starts_while_a_stop_is_owed_or_after_it(store: Store, turns: Turns, plugin: Plugin, run: Run) -> None:
    run("t1")
    asked(turns)
    turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", state="completed"))
    for status in ("stop_pending", "stopped"):
        with pytest.raises(ThreadStopped) as caught:
            turns.reserve("thread")
        assert str(caught.value) == f"The session of thread 'thread' in {store.path} is {status}."
        plugin.hear()


def test_a_stop_of_a_start_that_is_not_announced_yet_ends_it(turns: Turns, plugin: Plugin) -> None:
    """1.9: session.stop cancels the reservation."""
    turns.reserve("thread", turn_id="t1")
    asked(turns)
    assert turns.withdraw("t1").state is TurnState.STOPPED
    assert plugin.hear() == ["stop"]


def test_a_cause_or_a_thread_that_is_none_is_refused(turns: Turns) -> None:
    with pytest.raises(InvalidInput, match=r"^cause is a StopCause, not 'shutdown'\.$"):
        turns.stop("thread", cause="shutdown")  # type: ignore[arg-type]
    with pytest.raises(ThreadNotFound):
        turns.stop("nobody's")


def test_eight_settled_stops_of_a_thread_are_kept(store: Store, turns: Turns, plugin: Plugin, run: Run) -> None:
    for number in range(15):
        run(f"t{number}")
        asked(turns)
        turns.ensure("thread")
        assert plugin.hear() == ["stop", "ensure"]
    with store.core.reader() as reader:
        assert reader.rows("SELECT count(*) FROM stops") == [(8,)]
