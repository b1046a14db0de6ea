"""The machines of processes and delegations, every pair of them."""

from __future__ import annotations

import itertools

import pytest

from hermes_state.work.states import (
    DELEGATION,
    ENDED,
    KIND_OF_END,
    PROCESS,
    DelegationEvent,
    DelegationState,
    Mode,
    ProcessEvent,
    ProcessState,
    to_event,
)

WANTED_PROCESS = """
              start    exit    lose
registered    running  exited  lost
running       -        exited  lost
exited        -        -       -
lost          -        -       -
"""
WANTED_DELEGATION = """
              stall     go_on    finalize    complete   fail   give_up  lose
running       stalling  -        finalizing  completed  error  -        unknown
stalling      -         running  finalizing  completed  error  stalled  unknown
finalizing    -         -        -           completed  error  -        unknown
completed     -         -        -           -          -      -        -
error         -         -        -           -          -      -        -
stalled       -         -        -           -          -      -        -
unknown       -         -        -           -          -      -        -
"""


def wanted(text: str) -> dict[tuple[str, str], str | None]:
    head, *rows = [line.split() for line in text.strip().splitlines()]
    return {
        (row[0], event.replace("_", " ")): None if state == "-" else state
        for row in rows for event, state in zip(head, row[1:], strict=True)
    }


@pytest.mark.parametrize(
    ("text", "states", "events"),
    [(WANTED_PROCESS, ProcessState, ProcessEvent), (WANTED_DELEGATION, DelegationState, DelegationEvent)],
)
def test_every_pair_of_state_and_event_has_its_outcome(text: str, states: type, events: type) -> None:
    found = {(str(state), str(event)): to_event(state, event) for state, event in itertools.product(states, events)}
    assert {pair: None if state is None else str(state) for pair, state in found.items()} == wanted(text)


def test_what_has_ended_has_no_events() -> None:
    assert not {state for state, _event in [*PROCESS, *DELEGATION]} & ENDED
    for state in {*PROCESS.values(), *DELEGATION.values()} - ENDED:
        assert {event for one, event in [*PROCESS, *DELEGATION] if one is state}


def test_an_event_of_the_other_machine_changes_nothing() -> None:
    assert to_event(ProcessState.RUNNING, DelegationEvent.LOSE) is None  # type: ignore[call-overload]


def test_only_nobody_is_told_nothing_of_an_end() -> None:
    assert set(Mode) - set(KIND_OF_END) == {Mode.NOBODY}
    assert len(set(KIND_OF_END.values())) == len(KIND_OF_END)
