"""Which failures end a plugin's attempts, and when the others are tried again (T1.55)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import InvalidInput
from hermes_state.instances import failures
from hermes_state.instances.close_codes import CLOSINGS, CloseCode
from hermes_state.instances.failures import (
    CLASSES,
    CLOSED_AS,
    Attempts,
    Event,
    FailureClass,
    State,
    attended,
    attention,
    classify,
    code_of_close,
    delay_seconds,
    need_attention,
)
from hermes_state.store import Store
from hermes_state.testing import temporary_store

FATAL = sorted(code for code, kind in CLASSES.items() if kind is FailureClass.FATAL)
TRANSIENT = [
    *sorted(code for code, kind in CLASSES.items() if kind is FailureClass.TRANSIENT), "connection_refused",
    "not_answering", "a code of a newer server", "",
]


@pytest.fixture(name="store")
def gateway_store(tmp_path: Path, fake_clock: FakeClock) -> Iterator[Store]:
    with temporary_store(tmp_path, clock=fake_clock) as opened:
        yield opened


def test_every_state_and_event_has_its_outcome() -> None:
    """R42."""
    connecting, connected, waiting, needs = State
    outcomes = {pair: failures.to_event(*pair) for pair in product(State, Event)}
    assert {pair: after for pair, after in outcomes.items() if after is not None} == {
        (connecting, Event.ACCEPTED): connected, (connecting, Event.FAILED): waiting,
        (connecting, Event.FAILED_FATALLY): needs,
        (connected, Event.FAILED): waiting, (connected, Event.FAILED_FATALLY): needs,
        (waiting, Event.DUE): connecting, (waiting, Event.ATTENDED): connecting,
        (needs, Event.ATTENDED): connecting,
    }
    assert len(outcomes) == 20


def test_fatal_and_transient_codes_are_these() -> None:
    assert FATAL == [
        "connection_replaced", "instance_removed", "instance_revoked", "invalid_authentication", "version_incompatible",
    ]
    assert TRANSIENT[:2] == ["enrollment_expired", "internal_error"]


@pytest.mark.parametrize("code", FATAL)
def test_fatal_failure_is_exactly_one_attempt(code: str) -> None:
    """T1.55, R13: whatever the time, until a person acts."""
    stopped = Attempts().failed(code, 0.0)
    assert (stopped.state, stopped.attempts, stopped.code) == (State.NEEDS_ATTENTION, 1, code)
    for now in (1.0, 30.0, 86_400.0):
        assert stopped.tick(now) == stopped
    assert stopped.failed("internal_error", 5.0) == stopped.accepted() == stopped
    assert stopped.attended() == Attempts()


@pytest.mark.parametrize("code", TRANSIENT)
def test_transient_failure_is_tried_again_after_1_2_4_to_30_seconds(code: str) -> None:
    """T1.55, R13."""
    one, now, delays = Attempts(), 100.0, []
    for _ in range(8):
        one = one.failed(code, now)
        assert one.state is State.WAITING
        failed_at = now
        while one.state is State.WAITING:
            now += 0.5
            one = one.tick(now)
        delays.append(now - failed_at)
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert (one.state, one.attempts) == (State.CONNECTING, 9)


def test_success_starts_the_delays_anew() -> None:
    """T1.55."""
    one = Attempts()
    for _ in range(6):
        one = one.failed("internal_error", 0.0).tick(1e9)
    one = one.accepted()
    assert (one.state, one.attempts, one.failures, one.code) == (State.CONNECTED, 0, 0, None)
    lost = one.failed("connection_lost", 50.0)
    assert (lost.state, lost.due_at, lost.code) == (State.WAITING, 51.0, "connection_lost")


def test_connection_that_is_refused_later_ends_it_too() -> None:
    """A revoke while it was connected: the close code says it."""
    stopped = Attempts().accepted().failed(code_of_close(CloseCode.REFUSED), 0.0)
    assert (stopped.state, stopped.code) == (State.NEEDS_ATTENTION, "invalid_authentication")


def test_delay_of_the_hundredth_failure_is_still_thirty_seconds() -> None:
    assert [delay_seconds(count) for count in (1, 5, 6, 100, 10_000)] == [1.0, 16.0, 30.0, 30.0, 30.0]


def test_close_codes_and_failures_agree_on_who_connects_again() -> None:
    assert set(CLOSED_AS) == set(CloseCode)
    for code, one in CLOSINGS.items():
        assert one.reconnects == (classify(code_of_close(code)) is FailureClass.TRANSIENT)
    assert [code_of_close(code) for code in (1000, 1006, 4005, 4999)] == ["connection_lost"] * 4


def test_fatal_failure_is_seen_by_a_person_until_somebody_attended_to_it(store: Store) -> None:
    """T1.55, R13: it outlives the process, and the first reason stays."""
    core = store.core
    core.write(lambda tx: need_attention(tx, "mac", "instance_revoked", detail="by ann", at=5.0), durability="power")
    core.write(lambda tx: need_attention(tx, "mac", "version_incompatible", at=6.0), durability="power")
    with core.reader() as reader:
        found = attention(reader, "mac")
        assert found is not None
        assert (found.code, found.since, found.detail) == ("instance_revoked", 5.0, "by ann")
        assert attention(reader, "phone") is None
    assert core.write(lambda tx: attended(tx, "mac"), durability="power")
    assert not core.write(lambda tx: attended(tx, "mac"), durability="power")
    with core.reader() as reader:
        assert attention(reader, "mac") is None


def test_transient_failure_needs_nobody(store: Store) -> None:
    with pytest.raises(InvalidInput) as error:
        store.core.write(lambda tx: need_attention(tx, "mac", "internal_error", at=5.0))
    assert str(error.value) == "'internal_error' is not a fatal failure: it is tried again."
