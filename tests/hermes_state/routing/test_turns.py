"""The turn of a conversation is one process's at a time. T4.8 and R98 under their numbers; see also tests/processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.conversation.messages import Messages
from hermes_state.errors import (
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    SessionDeleted,
    SessionGuarded,
    SessionNotFound,
    StaleFence,
    StateError,
)
from hermes_state.leases import Leases
from hermes_state.owners import Presence
from hermes_state.routing import Turn, begin
from hermes_state.store import Store
from tests.hermes_state.routing.conftest import Host


@pytest.fixture(name="session")
def new_session(store: Store) -> str:
    return store.sessions.create(source="cli").id


class Other:
    """Another process with the same store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.presence = Presence(store.path.parent, clock=store.core.clock)
        self.leases = Leases(store.core, presence=self.presence)

    def turn(self, session: str, **options: Any) -> Turn[Messages]:
        return begin(lambda: self.store.core, self.leases, session, Messages, **options)


@pytest.fixture(name="other")
def other_process(store: Store) -> Other:
    return Other(store)


def texts(store: Store, session: str) -> list[Any]:
    return [one["content"] for one in store.messages.context(session)]


def test_t4_8_a_second_one_waits_and_is_refused_with_the_holder_named(
    store: Store, other: Other, session: str, fake_clock: FakeClock
) -> None:
    with store.turn(session) as turn:
        began = fake_clock.monotonic()
        with pytest.raises(LeaseHeld) as caught:
            other.turn(session, wait_seconds=30)
        assert fake_clock.monotonic() - began == pytest.approx(30)
        assert caught.value.message == (
            f"Lease 'turn:{session}' in {store.path} is held by {turn.lease.owner}, not proven dead (it is this"
            " process); it runs out in 570.0 s unless it is renewed."
        )
        assert (caught.value.exit_code, caught.value.retryable) == (75, True)
        turn.messages.append(session, role="user", content="mine")
    with other.turn(session, wait_seconds=0) as turn:
        turn.messages.append(session, role="assistant", content="theirs")
    assert texts(store, session) == ["mine", "theirs"]


def test_t4_8_a_dead_holder_is_replaced_at_once_and_a_stale_fence_commits_nothing(
    store: Store, other: Other, session: str
) -> None:
    dead = other.turn(session)
    other.presence.end()  # what the kernel does at kill -9
    with store.turn(session, wait_seconds=0) as turn:
        assert turn.lease.fence == dead.lease.fence + 1
        writes: list[Callable[[], object]] = [
            lambda: dead.messages.append(session, role="assistant", content="late"),
            lambda: dead.messages.append_many(session, [{"role": "user", "content": "late"}]),
            lambda: dead.messages.rewind(session, 1),
            lambda: dead.write(lambda tx: tx.execute("DELETE FROM sessions")),
        ]
        for write in writes:
            with pytest.raises((StaleFence, LeaseLost)):
                write()
        turn.messages.append(session, role="user", content="on time")
    assert texts(store, session) == ["on time"]


def test_a_holder_that_slept_past_its_term_commits_only_if_nobody_took_the_turn(
    store: Store, other: Other, session: str, fake_clock: FakeClock
) -> None:
    slept = other.turn(session, term_seconds=60)
    fake_clock.advance(1000)
    slept.messages.append(session, role="user", content="back")  # which renews
    fake_clock.advance(1000)
    with store.turn(session, wait_seconds=0), pytest.raises(LeaseLost) as caught:
        slept.messages.append(session, role="user", content="late")
    assert caught.value.hint == "Stop this work: somebody else does it now."
    assert texts(store, session) == ["back"]


def test_writing_keeps_the_turn_and_so_does_renewing(store: Store, session: str, fake_clock: FakeClock) -> None:
    with store.turn(session, term_seconds=100) as turn:
        for _ in range(5):
            fake_clock.advance(60)
            turn.messages.append(session, role="user", content="x")
        fake_clock.advance(60)
        turn.renew()
        assert turn.lease.expires_in_seconds() == 100
    assert turn.lease.expires_in_seconds() == 0


def test_a_guard_that_fails_after_the_look_still_stops_the_commit(
    store: Store, other: Other, session: str, fake_clock: FakeClock
) -> None:
    """The turn goes to another one between the renewal and the transaction."""
    turn = other.turn(session, term_seconds=60)

    def too_late(tx: Any) -> None:
        raise AssertionError("not reached")

    original = turn.keep

    def keep() -> None:
        original()
        fake_clock.advance(61)
        store.turn(session, wait_seconds=0)

    turn.keep = keep  # type: ignore[method-assign]
    with pytest.raises(StaleFence) as caught:
        turn.write(too_late)
    assert caught.value.facts["current"] == 2


def test_a_compaction_within_a_turn_leaves_the_turn_to_its_holder(store: Store, other: Other, session: str) -> None:
    with store.turn(session) as turn:
        turn.messages.append(session, role="user", content="x")
        tip = store.sessions.continue_as(session).id
        with pytest.raises(LeaseHeld):
            other.turn(tip, wait_seconds=0)
        turn.messages.append(tip, role="user", content="y")
    with other.turn(tip, wait_seconds=0), pytest.raises(LeaseHeld):
        store.turn(session, wait_seconds=0)


def test_a_session_at_work_is_not_deleted(store: Store, session: str) -> None:
    tip = store.sessions.continue_as(session).id
    with store.turn(tip):
        for one in (session, tip):
            with pytest.raises(SessionGuarded):
                store.sessions.delete([one], actor="test", reason="test")
    store.sessions.delete([tip], actor="test", reason="test")
    with pytest.raises(SessionDeleted):
        store.turn(tip)


def test_what_a_conversation_at_work_made_is_not_deleted_and_so_it_stays_one(
    store: Store, other: Other, session: str
) -> None:
    """Two compactions within a turn: with the one in the middle gone, the last would be a conversation of its own."""
    with store.turn(session) as turn:
        turn.messages.append(session, role="user", content="x")
        middle = store.sessions.continue_as(session).id
        tip = store.sessions.continue_as(middle).id
        helper = store.sessions.create(source="cli", parent_id=tip, relation="delegate").id
        for one in (session, middle, tip, helper):
            with pytest.raises(SessionGuarded) as caught:
                store.sessions.delete([one], actor="retention", reason="old")
            refused = helper if one == tip else one  # what goes with it is asked first
            assert caught.value.message == (
                f"Session {refused!r} of {store.path} is in use (lease turn:{session} of {turn.lease.owner}); it was"
                " not deleted."
            )
            assert not store.sessions.delete_if_empty(one, actor="retention", reason="empty")
        with pytest.raises(LeaseHeld):
            other.turn(tip, wait_seconds=0)
    store.sessions.delete([middle], actor="retention", reason="old")
    with store.turn(session), other.turn(tip, wait_seconds=0):
        pass  # two conversations now, none of which was at work


def test_a_turn_is_of_the_conversation_that_there_is_once_it_is_had(store: Store, other: Other, session: str) -> None:
    """What the session continued is deleted while its turn is being taken."""
    tip = store.sessions.continue_as(session).id
    asked: list[str] = []

    class Slow(Leases):
        def acquire(self, name: str, **options: Any) -> Any:
            if not asked:
                store.sessions.delete([session], actor="test", reason="test")
            asked.append(name)
            return super().acquire(name, **options)

    with begin(lambda: store.core, Slow(store.core), tip, Messages) as turn:
        assert turn.lease.name == f"turn:{tip}"
        with pytest.raises(LeaseHeld):
            other.turn(tip, wait_seconds=0)
    assert asked == [f"turn:{session}", f"turn:{tip}", f"turn:{tip}"]
    gone = store.leases.look(f"turn:{session}")
    assert gone is not None and gone.is_free


def test_what_the_block_raised_is_not_hidden_by_the_end_of_its_turn(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="the model is gone") as caught, store.turn(session) as turn:
        monkeypatch.setattr(turn.lease, "release", _refused)
        raise ValueError("the model is gone")
    assert caught.value.__notes__ == ["The turn was not given back, and lasts until its term is over: no"]
    with pytest.raises(StateError, match="no"), store.turn(store.sessions.create(source="cli").id) as turn:
        monkeypatch.setattr(turn.lease, "release", _refused)


def _refused() -> bool:
    raise StateError("no")


def test_a_branch_has_a_turn_of_its_own(store: Store, other: Other, session: str) -> None:
    store.messages.append(session, role="user", content="x")
    branch = store.sessions.branch(session).id
    with store.turn(session), other.turn(branch, wait_seconds=0):
        pass


def test_a_stream_of_a_lost_turn_is_not_settled(store: Store, other: Other, session: str) -> None:
    turn = other.turn(session)
    stream = turn.messages.stream(session)
    stream.append("half an answer")
    other.presence.end()
    with store.turn(session, wait_seconds=0), pytest.raises((StaleFence, LeaseLost)):
        stream.settle()
    assert texts(store, session) == []


def test_a_turn_ends_when_its_block_fails_and_twice_is_once(store: Store, other: Other, session: str) -> None:
    with pytest.raises(RuntimeError), store.turn(session) as turn:
        raise RuntimeError("the model is gone")
    turn.end()
    with other.turn(session, wait_seconds=0):
        turn.end()  # nothing of somebody else's
        with pytest.raises(LeaseHeld):
            store.turn(session, wait_seconds=0)


def test_a_refused_second_lease_gives_the_first_one_back(store: Store, session: str, other: Other) -> None:
    tip = store.sessions.continue_as(session).id
    blocker = other.leases.acquire(f"turn:{tip}", term_seconds=60)
    with pytest.raises(LeaseHeld):
        store.turn(tip, wait_seconds=0)
    view = store.leases.look(f"turn:{session}")
    assert view is not None and view.is_free
    blocker.release()


def test_a_turn_needs_a_session_and_sound_numbers(store: Store, session: str) -> None:
    with pytest.raises(SessionNotFound):
        store.turn("nowhere")
    with pytest.raises(InvalidInput):
        store.turn(session, term_seconds=0)


def test_a_turn_of_a_closed_store_writes_nothing(host: Host, fake_clock: FakeClock) -> None:
    store = host.stores["side"]
    session = store.sessions.create(source="cli").id
    turn = store.turn(session)
    store.close()
    with pytest.raises(StateError):
        turn.messages.append(session, role="user", content="late")


def test_a_turn_is_awaited_in_asyncio(store: Store, session: str, other: Other) -> None:
    async def work() -> None:
        async with await store.aio.turn(session) as turn:
            await turn.messages.append(session, role="user", content="x")
            with pytest.raises(LeaseHeld):
                await store.aio.turn(session, wait_seconds=0)
            await turn.renew()
        held = other.turn(session, wait_seconds=0)
        held.end()

    asyncio.run(work())
    assert texts(store, session) == ["x"]


def test_a_turn_whose_await_was_cancelled_is_not_kept(store: Store, session: str, other: Other) -> None:
    """Before it comes, and just when it came."""

    async def work() -> None:
        held = other.turn(session)
        waiting = asyncio.create_task(store.aio.turn(session, wait_seconds=1e6))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        held.end()

    asyncio.run(work())
    other.turn(session, wait_seconds=1e6).end()
