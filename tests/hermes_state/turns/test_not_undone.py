"""A stop stays a stop: what was on its way, what is asked for later, and many of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.clock import FakeClock
from hermes_state.engine import Transaction
from hermes_state.outbox import NotSent, Refused
from hermes_state.outbox.verdicts import lost_by
from hermes_state.store import Store
from hermes_state.turns import FrameKind, StopCause, stops
from hermes_state.turns.turns import Turns
from tests.hermes_state.turns.conftest import GATEWAY, Plugin, frame
from tests.support.bound_threads import bind

Run = Callable[..., str]


def on_its_way(turns: Turns, run: Run, kind: str) -> None:
    """Something is owed for a running turn: the ensure of its session, or a decision."""
    run("t1")
    if kind == "ensure":
        turns.ensure("thread")
        return
    asked = turns.receive(frame(FrameKind.APPROVAL, "t1", request_id="r1", request_type="x"), boot_id="boot-1")
    assert asked.interaction is not None
    turns.answer(asked.interaction.id, "accept")


@pytest.mark.parametrize("kind", ["ensure", "approval"])
@pytest.mark.parametrize("sender", ["lives", "died"])
def test_what_was_on_its_way_when_its_session_was_stopped_does_not_go_out_after_the_stop(
    store: Store, turns: Turns, plugin: Plugin, run: Run, fake_clock: FakeClock, kind: str, sender: str
) -> None:
    """A6: it brought the session back. A sender that died settles nothing: then the next claim looks."""
    on_its_way(turns, run, kind)
    (claim,) = turns.claim(GATEWAY)
    turns.stop("thread")
    error = ConnectionResetError("gone")
    if sender == "lives":
        turns.settle(claim, lost_by(error))
    else:
        store.outbox.settle(claim, lost_by(error))  # as the outbox does for a process that is gone
    fake_clock.advance(60)
    assert (plugin.hear(), turns.thread("thread").status) == (["stop"], "stopped")
    fake_clock.advance(600)
    assert (plugin.hear(), turns.thread("thread").status) == ([], "stopped")


def test_an_ensure_after_a_stop_survives_an_attempt_that_failed(
    turns: Turns, plugin: Plugin, run: Run, fake_clock: FakeClock
) -> None:
    """A6: it was taken back as unwanted, because its thread was stopped, and the person was never told."""
    run("t1")
    turns.stop("thread")
    plugin.hear()
    turns.ensure("thread")

    def broken(_claim: object) -> None:
        raise NotSent("no route")

    turns.send(GATEWAY, broken)
    fake_clock.advance(600)
    assert (plugin.hear(), turns.thread("thread").status) == (["ensure"], "ready")


def test_an_ensure_is_after_a_stop_also_when_that_is_owed_again(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    """A6: when a stop was asked for says its first obligation."""
    run("t1")
    stop = turns.stop("thread")
    assert stop is not None
    turns.ensure("thread")
    store.outbox.drop(stop.obligation, reason="by hand")
    assert turns.sweep().stops_owed_again == (stop.stop_id,)
    assert (plugin.hear(), turns.thread("thread").status) == (["stop", "ensure"], "ready")


def test_an_ensure_is_owed_anew_behind_a_stop_that_overtook_the_one_on_its_way(
    turns: Turns, plugin: Plugin, run: Run
) -> None:
    """A6: the answer to the earlier one counts for nothing, so it is not outstanding."""
    run("t1")
    turns.ensure("thread")
    (claim,) = turns.claim(GATEWAY)
    turns.stop("thread")
    assert not turns.ensure("thread").outstanding
    turns.settle(claim, plugin(claim))
    assert (plugin.hear(), turns.thread("thread").status) == (["stop", "ensure"], "ready")


def test_a_plan_that_a_stop_overtook_asks_for_nothing(turns: Turns, plugin: Plugin, run: Run) -> None:
    """A6."""
    run("t1")
    plan = turns.plan(GATEWAY, boot_id="boot-2", boot_id_changed=True)
    turns.stop("thread")
    turns.recover(plan)
    assert (plugin.hear(), turns.thread("thread").status) == (["stop"], "stopped")


def test_a_hundred_stops_that_wait_hide_no_other(store: Store, turns: Turns) -> None:
    """A8: those that are owed are none to owe again, and a sweep with none such writes nothing."""
    bind(store, "last", "here", "session")
    bind(store, "t0", "away", "session")

    def hundred(tx: Transaction) -> None:
        for number in range(100):
            if number:
                tx.execute("INSERT INTO thread_bindings VALUES (?, 'away', 'session', 1)", (f"t{number}",))
            stops.ask(tx, f"t{number}", cause=StopCause.USER, at=store.core.clock.now())

    store.core.write(hundred)
    stop = turns.stop("last")
    assert stop is not None
    before = store.changes.position()
    turns.sweep()
    assert store.changes.position() == before
    store.outbox.drop(stop.obligation, reason="by hand")
    assert turns.sweep().stops_owed_again == (stop.stop_id,)
    sent: list[str] = []

    def take(claim: object) -> Refused:
        sent.append("stop")
        return Refused(why="unknown session")

    turns.send("here", take)
    assert (sent, turns.thread("last").status) == (["stop"], "stopped")


def test_the_exit_of_an_earlier_turn_does_not_end_the_one_that_runs(turns: Turns, run: Run) -> None:
    """B18: a frame that is repeated names the turn that it was about."""
    run("t1")
    exited = frame(FrameKind.SESSION_EXITED, "t1", exit_kind="error", error="boom")
    turns.receive(exited)
    assert turns.thread("thread").status == "error"
    run("t2")
    assert turns.receive(exited).admission == "other_turn"
    found = turns.get("t2")
    assert found is not None and (found.state, turns.thread("thread").status) == ("running", "running")
    assert turns.receive(frame(FrameKind.SESSION_EXITED, exit_kind="graceful")).admission == "admitted"
    assert turns.thread("thread").status == "stopped"
