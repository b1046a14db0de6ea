"""An open turn renews itself: a long call of a model does not lose its answer to whoever waits."""

from __future__ import annotations

import gc
import threading

import pytest

from hermes_state.clock import FakeClock
from hermes_state.conversation.messages import Messages
from hermes_state.errors import LeaseHeld, LeaseLost, LockTimeout
from hermes_state.leases import Leases
from hermes_state.owners import Presence
from hermes_state.routing import Turn, begin, keeping
from hermes_state.store import Store, open_store


@pytest.fixture(name="session")
def new_session(store: Store) -> str:
    return store.sessions.create(source="cli").id


@pytest.fixture(name="other")
def other_process(store: Store) -> Leases:
    return Leases(store.core, presence=Presence(store.path.parent, clock=store.core.clock))


def second(store: Store, other: Leases, session: str) -> Turn[Messages]:
    return begin(lambda: store.core, other, session, Messages, wait_seconds=0)


def test_an_open_turn_is_kept_for_an_hour_and_then_left_to_run_out(
    store: Store, other: Leases, session: str, fake_clock: FakeClock
) -> None:
    """A call that hangs is over then, and the chat goes on."""
    turn = store.turn(session)
    for _ in range(17):
        fake_clock.advance(200)
        assert keeping.kept(turn)
        assert turn.lease.expires_in_seconds() == 600
        with pytest.raises(LeaseHeld):
            second(store, other, session)
    turn.messages.append(session, role="assistant", content="the answer after 57 minutes")
    fake_clock.advance(200)
    assert keeping.kept(turn)  # it was used
    for _ in range(20):
        fake_clock.advance(200)
        keeping.kept(turn)
    assert not turn.is_kept
    fake_clock.advance(600)
    with second(store, other, session), pytest.raises(LeaseLost):
        turn.messages.append(session, role="assistant", content="late")


def test_a_turn_that_is_not_to_be_kept_is_not(store: Store, session: str, fake_clock: FakeClock) -> None:
    with store.turn(session, keep_seconds=0) as turn:
        fake_clock.advance(200)
        assert not keeping.kept(turn)
        assert turn.lease.expires_in_seconds() == 400


def test_what_ran_out_or_was_taken_is_not_renewed(
    store: Store, other: Leases, session: str, fake_clock: FakeClock
) -> None:
    """The process was away: its next write renews, and finds out whether it may."""
    turn = store.turn(session, term_seconds=60)
    fake_clock.advance(61)
    assert not keeping.kept(turn)
    assert turn.lease.expires_in_seconds() == 0
    with second(store, other, session):
        assert not keeping.kept(turn)


def test_trouble_that_passes_is_tried_again_and_that_of_a_lost_turn_is_not(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.turn(session) as turn:
        for error, further in ((LockTimeout("busy"), True), (LeaseLost("gone"), False)):

            def fails(error: Exception = error) -> None:
                raise error

            monkeypatch.setattr(turn.lease, "renew", fails)
            assert keeping.kept(turn) is further
            assert turn.trouble is error


def test_one_thread_keeps_all_that_are_open_and_ends_with_the_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "KEEPER", keeping.Keeper())
    monkeypatch.setattr(keeping, "SHARE", 1e-5)
    sessions = [store.sessions.create(source="cli").id for _ in range(3)]
    turns = [store.turn(one) for one in sessions]
    for turn in turns:
        renewed = threading.Event()

        def renew(turn: Turn[Messages] = turn, renewed: threading.Event = renewed) -> bool:
            done = Turn.renew_in_time(turn)
            renewed.set()
            return done

        monkeypatch.setattr(turn, "renew_in_time", renew)
        assert renewed.wait(30)
    thread = keeping.KEEPER._thread
    assert thread is not None
    for turn in turns:
        turn.end()
    thread.join(30)
    assert not thread.is_alive()


def test_a_turn_that_nobody_has_any_more_is_not_kept(store: Store, session: str) -> None:
    turn = store.turn(session)
    key = id(turn)
    reference, _every = keeping.KEEPER._turns[key]
    del turn
    gc.collect()
    assert reference() is None


def test_a_turn_of_a_closed_store_is_not_renewed(store: Store, session: str) -> None:
    with open_store(store.path.parent, clock=store.core.clock) as another:
        turn = another.turn(session)
    renewals = turn.lease.renewals
    keeping.kept(turn)
    assert turn.lease.renewals == renewals
    assert turn.trouble is not None and "closed" in turn.trouble.message
