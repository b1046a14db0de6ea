"""Rows of hermes-agent's async_delegations: what was delivered there is not owed here, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.routing import Home
from hermes_state.store import Store
from hermes_state.work.background import Delegation
from hermes_state.work.states import DelegationState
from tests.hermes_state.work.background.conftest import TURN, Admitting, obligations

AT = 1_800_000_000.0


def old(delegation_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "delegation_id": delegation_id, "origin_session": "agent:main:telegram:group:-100",
        "origin_ui_session_id": "", "parent_session_id": "up", "state": "completed", "dispatched_at": AT - 100,
        "completed_at": AT - 50, "updated_at": AT - 50, "event_json": '{"type":"done"}',
        "result_json": '{"summary":"found"}', "delivery_state": "pending", "delivery_attempts": 2,
        "delivered_at": None, "owner_pid": 7, "owner_started_at": 1, "task_json": '{"goal":"look"}',
        "delivery_claim": None, "delivery_claimed_at": None,
    } | fields


@pytest.mark.parametrize(
    ("fields", "state", "delivery"),
    [
        ({}, "completed", "pending"),
        ({"delivery_state": "delivered", "delivered_at": AT - 10}, "completed", "accepted"),
        ({"delivery_state": "dropped"}, "completed", "dropped"),
        ({"completed_at": AT - 48 * 3600 - 1}, "completed", "suppressed"),
        ({"state": "error"}, "error", "pending"),
        ({"state": "running", "completed_at": None, "result_json": None}, "unknown", "pending"),
    ],
)
def test_what_is_pending_and_young_is_owed_and_nothing_else(
    store: Store, home: Home, chat: Admitting, fields: dict[str, Any], state: str, delivery: str
) -> None:
    row = old("d", **fields)
    taken = store.work.delegations.take_in(row, home, tell=TURN)
    assert (taken.state, str(taken.delivery)) == (state, delivery)
    assert taken.result == (None if row["result_json"] is None else {"summary": "found"})
    assert store.work.delegations.take_in(row, home, tell=TURN) == taken
    assert obligations(store) == ({"delegation/d": "pending"} if delivery == "pending" else {})
    assert chat.deliver() == (["delegation/d"] if delivery == "pending" else [])
    with store.core.reader() as reader:
        ((kept,),) = reader.rows("SELECT described FROM background_work")
    assert json.loads(kept)["was"] == row


@pytest.mark.parametrize("text", ["NaN", "[1e400]", '{"a": -Infinity}', "[" * 900 + "]" * 900, "{oops"])
def test_a_result_that_is_no_json_here_is_kept_as_its_text(
    store: Store, home: Home, chat: Admitting, text: str
) -> None:
    taken = store.work.delegations.take_in(old("d", result_json=text), home, tell=TURN)
    assert taken.result == text
    assert [one.result for one in store.work.delegations.page()] == [text]
    assert chat.deliver() == ["delegation/d"]


def test_what_is_taken_in_is_forgotten_only_after_its_time(
    store: Store, home: Home, fake_clock: FakeClock
) -> None:
    store.work.delegations.take_in(old("told", delivery_state="delivered", delivered_at=AT), home, tell=TURN)
    store.work.delegations.take_in(old("too old", completed_at=AT - 1e6), home, tell=TURN)
    assert store.work.notices.sweep(home).forgotten == 0
    fake_clock.advance(7 * 86_400.0 + 1)
    assert store.work.notices.sweep(home).forgotten == 2


def test_a_text_that_is_no_json_is_kept_as_a_text(store: Store, home: Home) -> None:
    taken = store.work.delegations.take_in(old("d", result_json="{half", task_json=None), home, tell=TURN)
    assert isinstance(taken, Delegation)
    assert (taken.result, taken.task, taken.state) == ("{half", None, DelegationState.COMPLETED)


def test_a_row_that_nothing_writes_is_refused(store: Store, home: Home) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.work.delegations.take_in(old("d", state="dancing"), home, tell=TURN)
    assert f"{caught.value} {caught.value.hint}" == (
        "Delegation 'd' of hermes-agent is 'dancing' and 'pending', which no release of it writes. Leave it out, or"
        " mend its state and delivery_state."
    )
