"""The recovery plan: exact, idempotent, owed until it is answered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hermes_state.outbox import Accepted, NotSent, Refused
from hermes_state.store import Store
from hermes_state.turns import (
    Cancellation,
    Ensure,
    FrameKind,
    RecoveryPlan,
    Settlement,
    ThreadStatus,
    TurnEvent,
    TurnState,
    apply_recovery,
    plan_recovery,
)
from hermes_state.turns.turns import Turns
from tests.hermes_state.turns.conftest import GATEWAY, Plugin, frame, silent
from tests.support.bound_threads import bind

Run = Callable[..., str]
GONE = "the plugin process that asked is gone"


@pytest.fixture(name="busy")
def everything_at_once(store: Store, turns: Turns, plugin: Plugin, run: Run) -> dict[str, int]:
    """Threads in every condition; gives the ids of their questions."""
    for name in ("asking", "crashed", "decided", "idle", "no ids", "stopped", "stopping", "elsewhere's", "unused"):
        bind(store, name, "gateway-2" if name == "elsewhere's" else GATEWAY, f"session of {name}")
    turns.open_thread("no ids", turn_ids=False)
    questions = {}
    for name in ("asking", "crashed", "decided", "idle", "no ids", "stopped", "stopping"):
        run(f"turn of {name}", thread=name)
        about = {"thread": name, "session_id": f"session of {name}"}
        if name in ("asking", "decided"):
            got = turns.receive(
                frame(FrameKind.APPROVAL, f"turn of {name}", request_id=name, **about), boot_id="boot-1"
            )
            assert got.interaction is not None
            questions[name] = got.interaction.id
        if name == "idle":
            turns.receive(frame(FrameKind.TURN_COMPLETED, "turn of idle", state="completed", **about))
            plugin.active.pop(name)
        if name == "crashed":
            turns.receive(frame(FrameKind.SESSION_EXITED, exit_kind="error", **about))
        if name == "stopped":
            turns.stop(name)
            plugin.hear()
    turns.answer(questions["decided"], "accept")
    stop = turns.stop("stopping")
    assert stop is not None
    return questions


def planned(turns: Turns, boot_id: str, *, changed: bool = False) -> RecoveryPlan:
    return turns.plan(GATEWAY, boot_id=boot_id, boot_id_changed=changed)


def ensure(name: str, turn_id: str | None, rows: int = 0) -> Ensure:
    return Ensure(
        thread_id=name, session_id=f"session of {name}", turn_id=turn_id, history_rows=rows, number=1, outstanding=False
    )


def test_the_plan_of_a_dropped_socket_is_exactly_what_runs(turns: Turns, busy: dict[str, int]) -> None:
    """T1.34, R23: nothing is cancelled, nothing is settled, and what is idle is not asked for."""
    plan = planned(turns, "boot-1")
    assert plan.ensures == (
        ensure("asking", "turn of asking"), ensure("decided", "turn of decided"),
        ensure("no ids", "turn of no ids"),
    )
    assert (plan.settlements, plan.cancellations, len(plan.stops)) == ((), (), 1)


def test_the_plan_of_a_restarted_plugin_is_exactly_what_it_never_heard_of(
    turns: Turns, busy: dict[str, int]
) -> None:
    """T1.34, T1.30, T1.37."""
    active = turns.active("no ids")
    assert active is not None
    assert planned(turns, "boot-2", changed=True) == RecoveryPlan(
        instance_id=GATEWAY, boot_id="boot-2",
        ensures=(
            ensure("asking", "turn of asking"), ensure("decided", "turn of decided"), ensure("idle", None, 1),
            ensure("no ids", None),
        ),
        settlements=(
            Settlement(
                thread_id="no ids", turn_id=active.turn_id, event=TurnEvent.ABSENT,
                why="its gateway restarted, and its provider cannot say what became of it",
            ),
        ),
        cancellations=(
            Cancellation(interaction_id=busy["asking"], thread_id="asking", decided=False, why=GONE),
            Cancellation(interaction_id=busy["decided"], thread_id="decided", decided=True, why=GONE),
        ),
        stops=planned(turns, "boot-1").stops,
    )


@pytest.mark.parametrize(("boot_id", "changed"), [("boot-1", False), ("boot-2", True)])
def test_applying_a_plan_twice_changes_nothing(
    store: Store, turns: Turns, busy: dict[str, int], boot_id: str, changed: bool
) -> None:
    plan = planned(turns, boot_id, changed=changed)
    turns.recover(plan)
    before, rows = store.changes.position(), turns.questions(only_open=False)
    store.core.write(lambda tx: apply_recovery(tx, plan, at=store.core.clock.now()))
    turns.recover(planned(turns, boot_id, changed=changed))
    assert store.changes.position() == before
    assert turns.questions(only_open=False) == rows
    later = planned(turns, boot_id, changed=changed)
    assert {one.outstanding for one in later.ensures} == {True}
    assert [one.number for one in later.ensures] == [one.number for one in plan.ensures]


def test_an_ensure_stays_owed_through_further_drops_until_it_is_answered(
    turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.34: three reconnects, one ensure."""
    run("t1")
    for _ in range(3):
        turns.recover(planned(turns, "boot-1"))
    assert plugin.hear() == ["ensure"]
    assert planned(turns, "boot-1").ensures[0].number == 2  # of the next reconnect


def test_a_plan_that_was_overtaken_changes_nothing(store: Store, turns: Turns, plugin: Plugin, run: Run) -> None:
    run("t1")
    old = planned(turns, "boot-2", changed=True)
    plugin.reconnect(boot_id="boot-2")
    turns.start("thread", silent, turn_id="t2", boot_id="boot-2")
    before = store.changes.position()
    store.core.write(lambda tx: apply_recovery(tx, old, at=store.core.clock.now()))
    assert store.changes.position() == before
    active = turns.active("thread")
    assert active is not None
    assert active.turn_id == "t2"


def test_a_refused_ensure_settles_its_turn_with_the_reason(turns: Turns, run: Run) -> None:
    """1.9: on failure the previous turn is settled as failed."""
    run("t1")
    turns.recover(planned(turns, "boot-1"))
    turns.send(GATEWAY, lambda claim: Refused(why="session-not-found"))
    turn = turns.get("t1")
    assert turn is not None
    assert (turn.state, turn.error) == (TurnState.FAILED, "session-not-found")
    assert turns.thread("thread").status is ThreadStatus.READY


def test_a_refused_ensure_from_before_a_turn_leaves_the_questions_of_that_turn(turns: Turns, run: Run) -> None:
    """It says nothing about the turn, which goes on and waits for the answer."""
    turns.ensure("thread")
    run("t1")
    asked = turns.receive(frame(FrameKind.APPROVAL, "t1", request_id="r1"), boot_id="boot-1").interaction
    assert asked is not None
    turns.send(GATEWAY, lambda claim: Refused(why="session-not-found"))
    assert turns.thread("thread").status is ThreadStatus.RUNNING
    assert turns.questions() == [asked]
    assert turns.answer(asked.id, "accept").decision == "once"


def test_an_answer_for_a_thread_that_vanished_meanwhile_changes_nothing(store: Store, turns: Turns, run: Run) -> None:
    """1.9."""
    run("t1")
    turns.recover(planned(turns, "boot-1"))
    (claim,) = turns.claim(GATEWAY)
    store.core.write(lambda tx: tx.execute("DELETE FROM thread_bindings WHERE thread_id = 'thread'"))
    turns.settle(claim, Accepted(result={"session_id": "s", "active_turn_id": "t1"}))
    assert turns.get("t1") is None
    assert planned(turns, "boot-1").ensures == ()


def test_an_ensure_that_cannot_be_sent_is_tried_again_and_the_turn_waits(turns: Turns, run: Run) -> None:
    def broken(claim: object) -> None:
        raise NotSent("no route")

    run("t1")
    turns.recover(planned(turns, "boot-1"))
    turns.send(GATEWAY, broken)
    assert turns.thread("thread").status is ThreadStatus.RUNNING
    assert planned(turns, "boot-1").ensures[0].outstanding


def test_a_plan_is_made_by_a_read_and_an_empty_one_costs_no_write(store: Store, turns: Turns) -> None:
    turns.open_thread("thread")
    before = store.changes.position()
    with store.core.reader() as reader:
        plan = plan_recovery(reader, GATEWAY, boot_id="boot-1", boot_id_changed=False)
        version = reader.rows("PRAGMA data_version")
        turns.recover(plan)
        assert reader.rows("PRAGMA data_version") == version
    assert plan == RecoveryPlan(
        instance_id=GATEWAY, boot_id="boot-1", ensures=(), settlements=(), cancellations=(), stops=()
    )
    assert store.changes.position() == before
