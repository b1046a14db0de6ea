"""Delegations: their states, their results, and that none of them is taken away undelivered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import IdempotencyConflict, InvalidInput, StatementFailed
from hermes_state.errors.work import BackgroundWorkFull
from hermes_state.outbox import Failed, State
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work import delegations
from hermes_state.work.background import NOBODY, Delegation
from hermes_state.work.states import DelegationState
from tests.hermes_state.work.background.conftest import Admitting, obligations


def test_a_delegation_completes_with_its_result_and_one_notice(
    store: Store, home: Home, dispatch: Callable[..., Delegation], chat: Admitting
) -> None:
    given = dispatch("d", parent_session_id="up", child_session_id="down")
    assert (given.state, given.parent_session_id, given.child_session_id) == (DelegationState.RUNNING, "up", "down")
    group = store.work.delegations
    assert group.stalling(given, home).state is DelegationState.STALLING
    assert group.goes_on(given, home).state is DelegationState.RUNNING
    assert group.finalizing(given, home).state is DelegationState.FINALIZING
    assert group.stalling(given, home).state is DelegationState.FINALIZING
    ended = group.completed(given, home, {"answer": 42})
    assert group.failed(given, home, "late") == ended
    assert obligations(store) == {"delegation/d": "pending"}
    assert chat.deliver() == ["delegation/d"]
    assert chat.seen[0].text == 'Delegation d (look) is completed.\n{"answer": 42}'
    assert group.get("d").delivered  # type: ignore[union-attr]


def test_an_error_and_a_stall_are_told_too(
    store: Store, home: Home, dispatch: Callable[..., Delegation], chat: Admitting
) -> None:
    store.work.delegations.failed(dispatch("a"), home, "no model", result="half")
    stalling = store.work.delegations.stalling(dispatch("b"), home)
    store.work.delegations.stalled(stalling, home, "silent for 10 min")
    assert store.work.delegations.stalled(dispatch("c"), home, "too soon").state is DelegationState.RUNNING
    chat.deliver()
    assert chat.seen[0].text == (
        "Delegation a (look) is error: no model.\nhalf\n\nDelegation b (look) is stalled: silent for 10 min."
    )


def test_t5_7_sixty_undelivered_results_and_one_more_dispatch_are_all_there(
    store: Store, home: Home, dispatch: Callable[..., Delegation], fake_clock: FakeClock
) -> None:
    """The first row of section 11 of the facts: hermes-agent 0.19.0 has 50 of 60 left."""
    for number in range(60):
        store.work.delegations.completed(dispatch(f"d{number}"), home, number)
    dispatch("one more")
    fake_clock.advance(30 * 86_400.0)
    store.work.notices.sweep(home)
    store.outbox.upkeep()
    left = store.work.notices.undelivered(limit=1000)
    assert sorted(one.result for one in left if isinstance(one, Delegation)) == list(range(60))
    assert len(store.work.delegations.page(limit=1000)) == 61


def test_t5_7_the_file_itself_keeps_what_is_owed(
    store: Store, home: Home, dispatch: Callable[..., Delegation]
) -> None:
    store.work.delegations.completed(dispatch("d"), home, 1)
    dispatch("running", NOBODY)
    for key in ("delegation/d", "delegation/running"):
        with pytest.raises(StatementFailed) as caught:
            store.core.write(lambda tx: tx.execute("DELETE FROM background_work WHERE key = ?", (key,)))  # noqa: B023
        assert "background work that is not told of is never deleted" in str(caught.value)
    with pytest.raises(StatementFailed) as caught:
        store.core.write(lambda tx: tx.execute("UPDATE background_work SET result = '2' WHERE ended_at IS NOT NULL"))
    assert "background work ends once" in str(caught.value)


def test_a_thousand_owed_refuse_the_next_dispatch_and_lose_none(
    store: Store, home: Home, dispatch: Callable[..., Delegation], chat: Admitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert delegations.MOST_OWED == 1000
    monkeypatch.setattr(delegations, "MOST_OWED", 3)
    ended = [store.work.delegations.completed(dispatch(f"d{number}"), home, number) for number in range(2)]
    dispatch("running")
    with pytest.raises(BackgroundWorkFull) as caught:
        dispatch("more")
    assert f"{caught.value} {caught.value.hint}" == (
        f"3 delegations of {store.path} run or are not delivered; that is the most. Deliver what is owed"
        " (store.work.notices.deliver); nothing undelivered is ever taken away."
    )
    assert chat.deliver() == [one.key for one in ended]
    dispatch("more")


def test_t5_4_after_eight_errors_the_notice_is_dropped_and_the_result_readable(
    store: Store, home: Home, dispatch: Callable[..., Delegation], chat: Admitting, fake_clock: FakeClock
) -> None:
    store.work.delegations.completed(dispatch("d"), home, "what it found")
    chat.verdict = Failed(why="no")
    for attempt in range(8):
        assert chat.deliver() == ["delegation/d"], attempt
        fake_clock.advance(1_801.0)
    assert chat.deliver() == []
    (left,) = store.work.notices.undelivered()
    assert isinstance(left, Delegation)
    assert (left.result, str(left.delivery)) == ("what it found", "dropped")


def test_a_retry_by_a_person_delivers_it_after_all_and_that_is_remembered(
    store: Store, home: Home, dispatch: Callable[..., Delegation], chat: Admitting, fake_clock: FakeClock
) -> None:
    store.work.delegations.completed(dispatch("d"), home, "r")
    store.outbox.drop("delegation/d", reason="by mistake")
    store.outbox.retry("delegation/d")
    store.outbox.upkeep(horizon_seconds=1e9)
    assert chat.deliver() == ["delegation/d"]
    assert chat.seen[0].again
    assert store.work.delegations.get("d").delivered  # type: ignore[union-attr]
    fake_clock.advance(8 * 86_400.0)
    store.outbox.upkeep()
    assert obligations(store) == {}
    assert store.work.delegations.get("d").delivered  # type: ignore[union-attr]
    assert store.work.notices.undelivered() == []


def test_the_same_dispatch_is_found_and_another_one_refused(store: Store, dispatch: Callable[..., Delegation]) -> None:
    assert dispatch("d") == dispatch("d")
    with pytest.raises(IdempotencyConflict):
        dispatch("d", task={"goal": "something else"})


def test_a_task_that_is_too_large_is_refused_by_its_size(dispatch: Callable[..., Delegation]) -> None:
    with pytest.raises(InvalidInput) as caught:
        dispatch("d", task="x" * 1_048_576)
    assert f"{caught.value} {caught.value.hint}" == (
        "The task of a delegation has 1,048,578 bytes; 1,048,576 is the most. Keep the whole text in the session of"
        " the sub-agent, and name that here."
    )


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_no_result_leaves_its_delegation_running(
    store: Store, home: Home, dispatch: Callable[..., Delegation]
) -> None:
    results: tuple[tuple[Any, str, int], ...] = (
        ("x" * 1_100_000, "xxx", 1_100_002), (["\1" * 200_000], '["\\u0001', 1_200_004),
        ("\1" * 200_000, "\1\1", 1_200_002), (float("nan"), "nan", 5), ({1: object}, "{1: <class 'object'>}", 23),
        (nested(150), "[[[[", 304), (nested(100_000), "(a result of type list that cannot be shown)", 46),
    )
    for number, (result, begins, size) in enumerate(results):
        done = store.work.delegations.completed(dispatch(f"d{number}"), home, result)
        assert (done.state, done.result[: len(begins)], done.result_chars) == (DelegationState.COMPLETED, begins, size)
        assert store.outbox.get(done.key).state is State.PENDING


def test_what_no_file_can_hold_comes_back_as_it_was(
    store: Store, home: Home, dispatch: Callable[..., Delegation]
) -> None:
    assert store.work.delegations.completed(dispatch("d"), home, "a\udcff\0").result == "a\udcff\0"
