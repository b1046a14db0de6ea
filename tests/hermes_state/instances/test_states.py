"""R42: every pair of a state and an event of instances and tokens, and that the file itself knows no others."""

from __future__ import annotations

import itertools

import pytest

from hermes_state.engine import Transaction
from hermes_state.errors import StatementFailed
from hermes_state.instances.states import (
    TOKEN_TRANSITIONS,
    TRANSITIONS,
    Event,
    Gone,
    Refusal,
    State,
    TokenEvent,
    TokenState,
    expired,
    to_event,
    token_to_event,
)
from hermes_state.store import Store

C, E, V, X = State.CONFIGURED, State.ENROLLED, State.REVOKED, State.REMOVED


@pytest.mark.parametrize(
    ("event", "outcomes"),
    [
        (Event.MINT, (C, E, V, Refusal.REMOVED)),
        (Event.ENROLL, (E, E, E, Refusal.REMOVED)),
        (Event.CHANGE, (C, E, V, Refusal.REMOVED)),
        (Event.BIND, (Refusal.NOT_ENROLLED, E, Refusal.REVOKED, Refusal.REMOVED)),
        (Event.REVOKE, (V, V, V, Refusal.REMOVED)),
        (Event.REMOVE, (Gone.GONE, Refusal.NOT_REVOKED, X, X)),
    ],
)
def test_each_event_has_an_outcome_in_each_state(event: Event, outcomes: tuple[object, ...]) -> None:
    assert tuple(to_event(state, event) for state in State) == outcomes


def test_the_table_of_instances_has_every_pair_and_no_other() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Event))


def test_only_a_pending_token_goes_anywhere() -> None:
    assert set(TOKEN_TRANSITIONS) == set(itertools.product(TokenState, TokenEvent))
    assert [token_to_event(TokenState.PENDING, event) for event in TokenEvent] == [
        TokenState.CONSUMED, TokenState.SUPERSEDED, TokenState.FORGOTTEN, TokenState.EXPIRED,
    ]
    terminal = [state for state in TokenState if state is not TokenState.PENDING]
    assert {token_to_event(state, event) for state in terminal for event in TokenEvent} == {None}


def test_a_token_is_still_good_at_the_very_moment_of_its_expiry() -> None:
    assert [expired(100.0, now) for now in (99.9, 100.0, 100.001)] == [False, False, True]


def test_the_file_itself_allows_the_changes_of_the_table_and_no_others(registry_store: Store) -> None:
    allowed = {(state, outcome) for (state, _event), outcome in TRANSITIONS.items() if isinstance(outcome, State)}
    allowed -= {(X, X)}  # removing a removed one again writes nothing
    with_times = "CASE WHEN ?1 = 'enrolled' THEN 1.0 END, CASE WHEN ?1 = 'removed' THEN 1.0 END"

    def move(before: State, after: State) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(
                "INSERT INTO gateway_instances (instance_id, nickname, nickname_key, state, state_at, state_actor,"
                f" created_at, enrolled_at, removed_at) SELECT 'x', 'X', 'x', ?1, 1.0, 'test', 1.0, {with_times}",
                (str(before),),
            )
            tx.execute(
                f"UPDATE gateway_instances SET (state, enrolled_at, removed_at) = (SELECT ?1, {with_times})",
                (str(after),),
            )
            raise _Taken

        registry_store.core.write(work)

    for before, after in itertools.product(State, State):
        with pytest.raises(_Taken if (before, after) in allowed else StatementFailed) as caught:
            move(before, after)
        if caught.type is StatementFailed:
            assert "an instance does not change so" in str(caught.value)


class _Taken(Exception):
    """The change was allowed; it is rolled back."""


def test_a_state_that_is_none_is_refused_by_the_file(registry_store: Store) -> None:
    with pytest.raises(StatementFailed, match="CHECK constraint failed"):
        registry_store.core.write(
            lambda tx: tx.execute(
                "INSERT INTO gateway_instances (instance_id, nickname, nickname_key, state, state_at, state_actor,"
                " created_at) VALUES ('x', 'X', 'x', 'enrolling', 1.0, 'test', 1.0)"
            )
        )
