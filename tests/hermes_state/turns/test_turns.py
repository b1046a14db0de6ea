"""Turns: started once, ended once, remembered within bounds. Numbers are those of the facts on gateways, 1.9."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hermes_state.changes import trim
from hermes_state.errors import ThreadNotFound, TurnActive, TurnNotActive, Unsupported
from hermes_state.store import Store
from hermes_state.turns import Admission, FrameKind, ThreadStatus, TurnState
from hermes_state.turns.turns import Turns
from tests.hermes_state.turns.conftest import Plugin, frame, silent
from tests.support.bound_threads import bind

Run = Callable[..., str]


def test_t1_34_a_turn_outlives_a_dropped_socket(turns: Turns, plugin: Plugin, run: Run) -> None:
    """T1.34, first half: the plugin keeps generating; it is asked once and its end is accepted."""
    run("t1")
    assert plugin.reconnect() == ["ensure"]
    assert turns.thread("thread").status is ThreadStatus.RUNNING
    assert turns.admits(frame(FrameKind.CONTENT_DELTA, "t1", text="on"))
    done = turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", state="completed"))
    assert done.turn is not None
    assert done.turn.state is TurnState.COMPLETED
    thread = turns.thread("thread")
    assert (thread.status, thread.active_turn_id) == (ThreadStatus.READY, None)
    assert [kind for kind, _ in plugin.heard] == ["ensure"]


def test_t1_34_a_turn_of_a_restarted_plugin_fails_within_one_ensure(turns: Turns, plugin: Plugin, run: Run) -> None:
    """T1.34, second half."""
    run("t1")
    assert plugin.reconnect(boot_id="boot-2") == ["ensure"]
    turn = turns.get("t1")
    assert turn is not None
    assert (turn.state, turn.exit_class) == (TurnState.FAILED, "error")
    assert turn.error == "its gateway does not know it any more"
    assert turns.thread("thread").status is ThreadStatus.READY


def test_t1_35_a_terminal_is_accepted_once_and_for_the_recovered_id_only(
    turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.35."""
    run("t1")
    plugin.reconnect()
    other = turns.receive(frame(FrameKind.TURN_COMPLETED, "t0", state="completed"))
    assert other.admission is Admission.OTHER_TURN
    assert turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", state="completed")).admission is Admission.ADMITTED
    again = turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", state="failed", error="late"))
    assert again.admission is Admission.NO_TURN
    turn = turns.get("t1")
    assert turn is not None
    assert turn.state is TurnState.COMPLETED
    assert turns.thread("thread").rejected == 2


def test_t1_37_a_provider_without_turn_ids_stays_null_after_every_event(turns: Turns, plugin: Plugin) -> None:
    """T1.37, R28."""
    turns.open_thread("thread", turn_ids=False)
    for kind, fields in (
        (FrameKind.TURN_STARTED, {}), (FrameKind.CONTENT_DELTA, {"text": "x"}),
        (FrameKind.ITEM, {"item_type": "status_text", "text": "y"}),
        (FrameKind.TURN_COMPLETED, {"state": "completed"}), (FrameKind.TURN_ABORTED, {"reason": "z"}),
        (FrameKind.SESSION_EXITED, {"exit_kind": "error"}),
    ):
        if turns.active("thread") is None:
            turns.start("thread", silent, boot_id="boot-1")
        turns.receive(frame(kind, None, **fields))
        plugin.reconnect()
        assert turns.thread("thread").active_turn_id is None
        assert turns.thread("thread").status in (ThreadStatus.READY, ThreadStatus.ERROR)
    assert turns.thread("thread").rejected == 0


def test_t1_37_a_turn_without_an_id_ends_when_its_plugin_restarted(turns: Turns, plugin: Plugin) -> None:
    """T1.37: nobody can say what became of it, so it does not wait for an answer."""
    turns.open_thread("thread", turn_ids=False)
    turn = turns.start("thread", silent, boot_id="boot-1")
    plugin.reconnect()
    assert turns.active("thread") is not None
    plugin.reconnect(boot_id="boot-2")
    now = turns.get(turn.turn_id)
    assert now is not None
    assert (now.state, now.error) == (
        TurnState.FAILED, "its gateway restarted, and its provider cannot say what became of it",
    )


def many_turns(store: Store, turns: Turns, count: int) -> None:
    """The feed is trimmed as `optimize` does it; everything else bounds itself."""
    pages, tenth = [], count // 10
    for number in range(count):
        turn = turns.start("thread", silent, turn_id=f"turn {number:05}")
        if number % 250 == 0:
            for _ in range(40):
                turns.receive(frame(FrameKind.ITEM, turn.turn_id, item_type="status_text", text="word " * 20))
        turns.receive(frame(FrameKind.TURN_COMPLETED, turn.turn_id, state="completed"))
        if number % tenth == tenth - 1:
            store.core.write(lambda tx: trim(tx, 200))
            with store.core.reader() as reader:
                pages.append(reader.rows("PRAGMA page_count")[0][0])
    kept = turns.history("thread")
    assert [turn.turn_id for turn in kept] == [f"turn {number:05}" for number in range(count - 1, count - 9, -1)]
    assert turns.thread("thread").history_rows == count
    assert max(pages[4:]) - pages[1] <= 4, pages  # a page more or less of the free list, not one a turn


@pytest.mark.slow
def test_t1_38_four_hundred_turns_leave_eight_and_no_more_pages(store: Store, turns: Turns) -> None:
    """T1.38, R26: smaller than in the campaign."""
    many_turns(store, turns, 400)


@pytest.mark.campaign
def test_t1_38_ten_thousand_turns_leave_eight_and_no_more_pages(store: Store, turns: Turns) -> None:
    """T1.38, R26."""
    many_turns(store, turns, 10_000)


def test_t1_38_a_turn_keeps_its_last_items(store: Store, turns: Turns, run: Run) -> None:
    """T1.38, R26: 32 items."""
    run("t1")
    for number in range(100):
        turns.receive(frame(FrameKind.ITEM, "t1", item_type="status_text", text=f"step {number}"))
    turn = turns.get("t1")
    assert turn is not None
    assert turn.items == 100
    assert [item.fields["text"] for item in turns.items(turn)] == [f"step {number}" for number in range(68, 100)]


def test_t1_39_a_failed_announcement_leaves_no_phantom(turns: Turns) -> None:
    """T1.39."""

    def broken(_turn: object) -> None:
        raise ConnectionError("the socket is gone")

    with pytest.raises(ConnectionError, match=r"^the socket is gone$"):
        turns.start("thread", broken, turn_id="t1")
    assert turns.active("thread") is None
    turn = turns.get("t1")
    assert turn is not None
    assert (turn.state, turn.exit_class) == (TurnState.WITHDRAWN, None)
    assert turns.start("thread", silent, turn_id="t2").state is TurnState.RUNNING


def test_t1_39_an_end_that_overtakes_the_announcement_counts(turns: Turns) -> None:
    """T1.39: the gateway was told and finished before the sender knew that it was told."""

    def fast(turn: object) -> None:
        turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", state="completed"))

    assert turns.start("thread", fast, turn_id="t1").state is TurnState.COMPLETED
    assert turns.thread("thread").status is ThreadStatus.READY


def test_t1_40_of_two_concurrent_starts_one_wins(turns: Turns) -> None:
    """T1.40: two threads of one process; two processes are in tests/processes."""
    barrier, outcomes = threading.Barrier(2), []

    def start(name: str) -> None:
        barrier.wait()
        try:
            outcomes.append(turns.start("thread", silent, turn_id=name).turn_id)
        except TurnActive as error:
            outcomes.append(error.code)

    both = [threading.Thread(target=start, args=(name,)) for name in ("a", "b")]
    for one in both:
        one.start()
    for one in both:
        one.join()
    active = turns.active("thread")
    assert active is not None
    assert sorted(outcomes) == sorted([active.turn_id, "turn_active"])


def test_the_second_start_is_told_what_runs(store: Store, turns: Turns) -> None:
    turns.start("thread", silent, turn_id="t1")
    with pytest.raises(TurnActive) as caught:
        turns.reserve("thread")
    assert str(caught.value) == f"Thread 'thread' in {store.path} has turn 't1' since 0 s; it is running."
    assert caught.value.hint == "Wait for its end, steer it, or stop it."


def test_r2_unknown_thread_and_unsupported_rollback_are_different_errors(store: Store, turns: Turns) -> None:
    """R2."""
    turns.open_thread("thread")
    with pytest.raises(Unsupported) as unsupported:
        turns.rollback("thread")
    with pytest.raises(ThreadNotFound) as unknown:
        turns.rollback("nobody's")
    assert (unsupported.value.code, unknown.value.code) == ("unsupported_operation", "thread_not_found")
    assert str(unknown.value) == f"No gateway serves thread \"nobody's\" in {store.path}."


def test_a_turn_that_is_none_is_named(store: Store, turns: Turns) -> None:
    with pytest.raises(TurnNotActive) as caught:
        turns.announced("nothing")
    assert str(caught.value) == f"There is no turn 'nothing' in {store.path}."


def test_r24_a_session_is_resumed_only_when_the_plugin_has_as_many_rows(
    turns: Turns, plugin: Plugin, run: Run
) -> None:
    """R24: both sides restarted; the session id alone says nothing about the transcript."""
    for number in range(3):
        turns.receive(frame(FrameKind.TURN_COMPLETED, run(f"t{number}"), state="completed"))
    plugin.active.clear()
    assert plugin.reconnect(boot_id="boot-2") == ["ensure"]
    assert turns.thread("thread").resumed is False
    turns.ensure("thread")
    plugin.rows["thread"] = 3
    plugin.hear()
    assert turns.thread("thread").resumed is True


def test_r27_an_item_of_unknown_type_is_inert_and_status_text_has_its_own_type(turns: Turns, run: Run) -> None:
    """R27, M1."""
    run("t1")
    for kind in (FrameKind.ITEM, FrameKind.ITEM_COMPLETED):
        got = turns.receive(frame(kind, "t1", item_type="unknown", text="Provider activity"))
        assert (got.admission, got.item) == (Admission.INERT, None)
    turns.receive(frame(FrameKind.ITEM, "t1", item_type="status_text", text="thinking", secret="s"))
    turn = turns.get("t1")
    assert turn is not None
    assert [(item.item_type, item.fields) for item in turns.items(turn)] == [("status_text", {"text": "thinking"})]


def test_a_session_id_that_the_gateway_gave_is_adopted_and_its_turn_goes_on(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    from hermes_state.outbox import Accepted

    run("t1")
    turns.recover(turns.plan("gateway-1", boot_id="boot-1"))
    (claim,) = turns.claim("gateway-1")
    turns.settle(claim, Accepted(result={"session_id": "new", "active_turn_id": "t1", "boot_id": "boot-1"}))
    assert turns.thread("thread").session_id == "new"
    assert turns.admits(frame(FrameKind.CONTENT_DELTA, "t1", session_id="new", text="x"))
    assert not turns.admits(frame(FrameKind.CONTENT_DELTA, "t1", text="x"))


def test_frames_of_another_gateway_or_of_nobody_do_not_count(store: Store, turns: Turns, run: Run) -> None:
    bind(store, "other thread", "gateway-1", "other")
    run("t1")
    expected = {
        Admission.UNKNOWN_THREAD: frame(FrameKind.CONTENT_DELTA, "t1", thread="nobody's", text="x"),
        Admission.OTHER_INSTANCE: frame(FrameKind.CONTENT_DELTA, "t1", instance_id="gateway-2", text="x"),
        Admission.OTHER_SESSION: frame(FrameKind.CONTENT_DELTA, "t1", session_id="old", text="x"),
        Admission.OTHER_TURN: frame(FrameKind.CONTENT_DELTA, None, text="x"),
        Admission.ADMITTED: frame(FrameKind.CONTENT_DELTA, "t1", text="x"),
    }
    assert {why: turns.judge(one) for why, one in expected.items()} == {why: why for why in expected}
    ended = turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", instance_id="gateway-2", state="completed"))
    assert ended.admission is Admission.OTHER_INSTANCE
    assert turns.thread("thread").rejected == 0
