"""The tables of replies, items, logins, doors and dead targets: whole, and terminal is terminal."""

from __future__ import annotations

import itertools

import pytest

from hermes_state.routing import Source
from hermes_state.work import login_states as login
from hermes_state.work.lane_rows import TABLE as ITEMS
from hermes_state.work.lane_rows import ItemEvent, ItemState
from hermes_state.work.login_states import LIVE, OPEN, TERMINAL, LoginEvent, LoginRefusal, LoginState, refusal
from hermes_state.work.reply_states import FINAL_DOOR, TABLE, Door, Refusal, ReplyEvent, ReplyState, door
from hermes_state.work.targets import DEADLY, SendFailure

S, E = ReplyState, ReplyEvent


def test_every_pair_of_a_reply_that_can_come_about_has_its_outcome() -> None:
    finals = {S.SEALING, S.SEALED, S.RECONCILING, S.GIVEN_UP}
    wanted = {(S.STREAMING, E.FINAL), (S.ABANDONED, E.FINAL)}
    wanted |= set(itertools.product(S, [E.ABANDON]))
    wanted |= set(itertools.product(finals, set(E) - {E.FINAL, E.ABANDON}))
    assert set(TABLE) == wanted


def test_a_reply_that_is_sealed_stays_sealed_and_one_that_was_abandoned_is_over() -> None:
    finals = {S.SEALING, S.SEALED, S.RECONCILING, S.GIVEN_UP}
    for (state, event), outcome in TABLE.items():
        if state in finals:
            assert outcome in finals or outcome is Refusal.ENDED, (state, event)
        if state is S.ABANDONED:
            assert outcome in (S.ABANDONED, Refusal.ENDED)
    assert {pair for pair, outcome in TABLE.items() if outcome is S.SEALING and pair[0] is not S.SEALING} == {
        (S.STREAMING, E.FINAL), (S.GIVEN_UP, E.SAME_FINAL), (S.GIVEN_UP, E.OTHER_FINAL)
    }


@pytest.mark.parametrize("state", [None, *ReplyState])
def test_an_interim_send_passes_every_door(state: ReplyState | None) -> None:
    """T6.8."""
    assert door(state, interim=True) is Door.PASS


def test_a_final_is_a_message_of_its_own_a_seal_or_an_edit() -> None:
    assert set(FINAL_DOOR) == {None, *ReplyState}
    assert {state: door(state, interim=False) for state in FINAL_DOOR} == {
        None: Door.PASS, S.STREAMING: Door.SEAL, S.SEALING: Door.RECONCILE_BY_EDIT, S.SEALED: Door.RECONCILE_BY_EDIT,
        S.RECONCILING: Door.RECONCILE_BY_EDIT, S.GIVEN_UP: Door.SEAL, S.ABANDONED: Door.PASS,
    }


def test_an_item_ends_once() -> None:
    assert {state for state, _event in ITEMS} == {ItemState.WAITING}
    assert set(ITEMS) == set(itertools.product([ItemState.WAITING], ItemEvent))


def test_every_pair_of_a_login_that_is_not_terminal_has_its_outcome_and_no_other_pair_has() -> None:
    assert set(login.TABLE) == set(itertools.product(OPEN, LoginEvent))
    assert set(LoginState) == set(OPEN) | TERMINAL


def test_nothing_leads_on_from_a_transfer_but_completion() -> None:
    outcomes = {event: login.TABLE[LoginState.TRANSFERRED, event] for event in LoginEvent}
    assert {event for event, to in outcomes.items() if to is LoginState.COMPLETED} == {LoginEvent.COMPLETE}
    assert {to for event, to in outcomes.items() if event is not LoginEvent.COMPLETE} == {
        LoginState.TRANSFERRED, login.Refusal.ENDED
    }
    assert {state for state in OPEN if login.TABLE[state, LoginEvent.TRANSFER] is LoginState.TRANSFERRED} == set(OPEN)
    assert {pair[0] for pair, to in login.TABLE.items() if to is LoginState.COMPLETED} == {LoginState.TRANSFERRED}


def test_what_was_superseded_or_cancelled_ends_as_that_whatever_its_worker_says() -> None:
    for event in (LoginEvent.END, LoginEvent.FAIL, LoginEvent.EXPIRE):
        assert login.TABLE[LoginState.SUPERSEDING, event] is LoginState.SUPERSEDED
        assert login.TABLE[LoginState.CANCELLING, event] is LoginState.CANCELLED
    for state in LIVE:
        assert login.TABLE[state, LoginEvent.SUPERSEDE] is LoginState.SUPERSEDING
        assert login.TABLE[state, LoginEvent.CANCEL] is LoginState.CANCELLING


@pytest.mark.parametrize(
    ("platform", "chat_type", "chat_id", "wanted"),
    [
        ("telegram", "dm", "7", None), ("signal", "private", "7", None),
        ("telegram", "group", "7", LoginRefusal.NOT_A_DM), ("telegram", "channel", "7", LoginRefusal.NOT_A_DM),
        ("telegram", "dm", "", LoginRefusal.NOT_A_DM), ("ntfy", "dm", "7", LoginRefusal.NOT_A_DM),
        ("raft", "dm", "7", LoginRefusal.NOT_A_DM), ("A2A", "dm", "7", LoginRefusal.NOT_A_DM),
    ],
)
def test_a_login_is_begun_in_a_conversation_of_two_people_only(
    platform: str, chat_type: str, chat_id: str, wanted: LoginRefusal | None
) -> None:
    source = Source(platform=platform, chat_type=chat_type, chat_id=chat_id, user_id="9")
    assert refusal(source, None) is wanted
    assert refusal(source, []) is wanted
    assert refusal(source, ["9"]) is wanted
    assert refusal(source, ["8"]) is (wanted or LoginRefusal.NOT_ALLOWED)


def test_only_what_means_the_whole_chat_makes_it_dead() -> None:
    """R101."""
    assert set(DEADLY) == set(SendFailure)
    assert {one for one, dead in DEADLY.items() if dead} == {SendFailure.FORBIDDEN, SendFailure.CHAT_NOT_FOUND}
