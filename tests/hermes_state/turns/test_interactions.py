"""Approvals and requests for input: T1.30 to T1.33 of the facts on gateways, with the store alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput, RequestNotFound, StatementFailed
from hermes_state.outbox import NotSent, Refused
from hermes_state.outbox import State as Owed
from hermes_state.store import Store
from hermes_state.turns import (
    Decision,
    FrameKind,
    Interaction,
    InteractionEvent,
    InteractionState,
    TurnState,
    interactions,
)
from hermes_state.turns.turns import Turns
from tests.hermes_state.turns.conftest import GATEWAY, Plugin, frame

Run = Callable[..., str]
COMMAND = {"command": "rm -r build", "cwd": "/home/u", "env": {"deep": {"token": "sk-very-secret"}}}


def ask(
    turns: Turns, request_id: str, turn_id: str = "t1", *, boot_id: str = "boot-1", **fields: object
) -> Interaction:
    given: dict[str, Any] = {
        "request_id": request_id, "request_type": "exec_command_approval", "args": COMMAND,
    } | fields
    got = turns.receive(frame(FrameKind.APPROVAL, turn_id, **given), boot_id=boot_id).interaction
    assert got is not None
    return got


def test_t1_30_after_a_kill_of_the_plugin_nothing_is_open_and_the_turn_settles(
    turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.30, R25: the process that asked is gone; its question is cancelled, its turn fails within one ensure."""
    run("t1")
    one = ask(turns, "r1")
    plugin.reconnect(boot_id="boot-2")
    now = turns.question(one.id)
    assert (now.state, now.decision, now.reason) == (
        InteractionState.CANCELLED, None, "the plugin process that asked is gone",
    )
    turn = turns.get("t1")
    assert turn is not None
    assert turn.state is TurnState.FAILED
    assert turns.questions() == []


def test_t1_31_a_dropped_socket_keeps_the_question_and_the_decision_arrives_once(
    turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.31, R25."""
    run("t1")
    one = ask(turns, "r1")
    plugin.reconnect()
    assert turns.question(one.id).state is InteractionState.OPEN
    assert ask(turns, "r1").id == one.id  # asked again after the reconnect
    assert turns.answer(one.id, "accept").decision is Decision.ONCE
    assert plugin.hear() == ["approval"]
    plugin.reconnect()
    told = [payload for kind, payload in plugin.heard if kind == "approval"]
    assert [(payload["request_id"], payload["decision"]) for payload in told] == [("r1", "once")]
    assert turns.question(one.id).sent_at is not None


def test_t1_32_two_approvals_answered_in_reverse_order_get_their_own_decision(
    turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.32, R25."""
    run("t1")
    first, second = ask(turns, "r1"), ask(turns, "r2")
    turns.answer(second.id, "acceptForSession")
    turns.answer(first.id, "decline")
    plugin.hear()
    assert {payload["request_id"]: payload["decision"] for _kind, payload in plugin.heard} == {
        "r1": "deny", "r2": "session",
    }


def test_t1_33_a_decision_whose_connection_died_is_sent_again_under_one_id(
    turns: Turns, plugin: Plugin, run: Run, fake_clock: FakeClock
) -> None:
    """T1.33, R25."""
    run("t1")
    one = ask(turns, "r1")
    turns.answer(one.id, "accept")

    def dies(claim: object) -> None:
        raise NotSent("the connection died before the send")

    turns.send(GATEWAY, dies)
    assert turns.question(one.id).sent_at is None
    fake_clock.advance(5.0)
    assert plugin.reconnect() == ["ensure", "approval"]
    assert plugin.reconnect() == ["ensure"]
    assert [payload["interaction"] for kind, payload in plugin.heard if kind == "approval"] == [one.id]


def test_t1_33_the_same_answer_again_counts_and_owes_nothing_more(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    """T1.33: idempotent on our side too."""
    run("t1")
    one = ask(turns, "r1")
    assert turns.answer(one.id, "accept") == turns.answer(one.id, "accept")
    assert plugin.hear() == ["approval"]


def test_a_decision_for_a_plugin_that_is_gone_is_taken_back(
    store: Store, turns: Turns, plugin: Plugin, run: Run
) -> None:
    run("t1")
    one = ask(turns, "r1")
    turns.answer(one.id, "accept")
    assert plugin.reconnect(boot_id="boot-2") == ["ensure"]
    assert store.outbox.get(f"approval/{one.id}").state is Owed.SUPPRESSED
    assert turns.question(one.id).state is InteractionState.RESOLVED


def test_an_id_that_a_restarted_plugin_uses_again_is_another_question(turns: Turns, plugin: Plugin, run: Run) -> None:
    """An answer to the old one never permits the new one."""
    run("t1")
    old = ask(turns, "1")
    plugin.reconnect(boot_id="boot-2")
    run("t2")
    new = ask(turns, "1", "t2", boot_id="boot-2")
    assert new.id != old.id
    with pytest.raises(RequestNotFound):
        turns.answer(old.id, "accept")
    assert turns.question(new.id).state is InteractionState.OPEN


def test_a_late_answer_is_named_and_counted(store: Store, turns: Turns, run: Run) -> None:
    """1.8: request-not-found, with what became of it."""
    run("t1")
    one = ask(turns, "r1")
    turns.receive(frame(FrameKind.TURN_COMPLETED, "t1", state="completed"))
    with pytest.raises(RequestNotFound) as caught:
        turns.answer(one.id, "accept")
    assert str(caught.value) == (
        f"Interaction {one.id} of thread 'thread' in {store.path} was cancelled before (its turn ended: completed)."
    )
    assert (caught.value.code, caught.value.facts["state"]) == ("request_not_found", "cancelled")
    assert turns.question(one.id).late == 1
    with pytest.raises(RequestNotFound) as unknown:
        turns.answer(999, "accept")
    assert str(unknown.value) == f"There is no interaction 999 in {store.path}."


def test_a_reason_is_kept_as_a_row_can_have_it(store: Store, turns: Turns, run: Run) -> None:
    """It may be what a gateway said of its session: bounded, and without half characters."""
    run("t1")
    one = ask(turns, "r1")
    event, why = InteractionEvent.TURN_ENDED, "\ud800" * 5000
    store.core.write(lambda tx: interactions.end_of_turn(tx, "thread", None, event, why, at=1.0))
    assert turns.question(one.id).reason == "\ufffd" * 4096


def test_another_answer_after_the_first_does_not_count(turns: Turns, run: Run) -> None:
    run("t1")
    one = ask(turns, "r1")
    turns.answer(one.id, "decline")
    with pytest.raises(RequestNotFound, match="was resolved before"):
        turns.answer(one.id, "accept")
    assert turns.question(one.id).decision is Decision.DENY


def test_a_word_that_is_not_known_denies(turns: Turns, plugin: Plugin, run: Run) -> None:
    run("t1")
    assert turns.answer(ask(turns, "r1").id, "sure, go on").decision is Decision.DENY
    plugin.hear()
    assert plugin.heard[0][1]["decision"] == "deny"


def test_a_question_whose_time_ran_out_expires_and_its_gateway_is_told_no(
    turns: Turns, plugin: Plugin, run: Run, fake_clock: FakeClock
) -> None:
    run("t1")
    one = ask(turns, "r1", expires_at=fake_clock.now() + 60.0)
    assert turns.sweep().expired == ()
    fake_clock.advance(60.0)
    assert turns.sweep().expired == (one.id,)
    assert turns.question(one.id).state is InteractionState.EXPIRED
    plugin.hear()
    assert [payload["decision"] for _kind, payload in plugin.heard] == ["deny"]
    assert turns.sweep().expired == ()


def test_answers_to_a_request_for_input_go_as_they_were_given(turns: Turns, plugin: Plugin, run: Run) -> None:
    run("t1")
    got = turns.receive(
        frame(FrameKind.USER_INPUT, "t1", request_id="q1", questions=[{"id": "name", "text": "Which?"}]),
        boot_id="boot-1",
    ).interaction
    assert got is not None
    assert (got.kind, got.questions) == ("user_input", ({"id": "name", "text": "Which?"},))
    now = turns.answer(got.id, answers={"name": "the first"})
    assert (now.decision, now.answers) == (None, {"name": "the first"})
    plugin.hear()
    assert plugin.heard[0][1]["answers"] == {"name": "the first"}
    with pytest.raises(InvalidInput, match=r"^answers of an interaction has 70,012 bytes; 65,536 is the most\.$"):
        turns.answer(
            ask_input(turns), answers={"name": "x" * 70_000}  # nothing is stored of it, and it stays open
        )


def ask_input(turns: Turns) -> int:
    got = turns.receive(frame(FrameKind.USER_INPUT, "t1", request_id="q2"), boot_id="boot-1").interaction
    assert got is not None
    return got.id


def test_only_whitelisted_arguments_reach_the_file(store: Store, turns: Turns, run: Run) -> None:
    """T1.53 for questions."""
    run("t1")
    assert dict(ask(turns, "r1").args) == {"command": "rm -r build", "cwd": "/home/u"}
    turns.receive(frame(FrameKind.ITEM, "t1", item_type="mcp_tool_call", server="s", result="sk-very-secret"))
    secret = "sk-very-secret"
    hidden = {"id": "q", "text": "Which?", "meta": {"t": secret}, "options": [{"label": "a", "key": secret}]}
    asked = turns.receive(
        frame(FrameKind.USER_INPUT, "t1", request_id="q1", questions=[hidden], args=COMMAND), boot_id="boot-1"
    ).interaction
    assert asked is not None
    assert asked.questions == ({"id": "q", "text": "Which?", "options": [{"label": "a"}]},)
    path = Path(store.path)
    store.close()
    for one in (path, path.with_name(path.name + "-wal")):
        assert not one.exists() or b"sk-very-secret" not in one.read_bytes()


def test_a_gateway_takes_its_own_question_back(turns: Turns, run: Run) -> None:
    run("t1")
    one = ask(turns, "r1")
    got = turns.receive(frame(FrameKind.WITHDRAWN, "t1", request_id="r1"), boot_id="boot-1")
    assert got.interaction is not None
    assert got.interaction.state is InteractionState.CANCELLED
    assert turns.question(one.id).reason == "its gateway took it back"
    assert turns.receive(frame(FrameKind.WITHDRAWN, "t1", request_id="none"), boot_id="boot-1").interaction is None


def test_a_decision_that_the_gateway_refuses_stays_resolved_and_unsent(turns: Turns, run: Run) -> None:
    run("t1")
    one = ask(turns, "r1")
    turns.answer(one.id, "accept")
    turns.send(GATEWAY, lambda claim: Refused(why="request-not-found"))
    now = turns.question(one.id)
    assert (now.state, now.sent_at) == (InteractionState.RESOLVED, None)


def test_text_that_no_row_can_have_is_made_one_or_refused(turns: Turns, run: Run) -> None:
    run("t1")
    one = ask(turns, "r1", detail="half \ud800", expires_at="soon")
    assert (one.detail, one.expires_at) == ("half \ufffd", None)
    done = turns.receive(frame(FrameKind.TURN_ABORTED, "t1", reason="\udfff"))
    assert done.turn is not None
    assert done.turn.error == "\ufffd"
    with pytest.raises(InvalidInput) as caught:
        frame(FrameKind.TURN_STARTED, "\ud800")
    assert str(caught.value) == (
        "turn_id of a frame is a text of at most 512 characters that UTF-8 can say, not '\\ud800'."
    )
    with pytest.raises(InvalidInput):
        frame(FrameKind.TURN_STARTED, "t" * 513)


def test_a_settled_question_never_changes(store: Store, turns: Turns, run: Run) -> None:
    run("t1")
    turns.answer(ask(turns, "r1").id, "decline")
    with pytest.raises(StatementFailed, match="a settled interaction never changes"):
        store.core.write(lambda tx: tx.execute("UPDATE interactions SET decision = 'once'"))
