"""Lanes (R82) and mirrors of cron (R80): kept in order, taken once, and roles alternate."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import (
    HomeRemoved,
    IdempotencyConflict,
    InvalidInput,
    LeaseLost,
    RouteMoved,
    RouteNotFound,
    StatementFailed,
)
from hermes_state.routing import Home
from hermes_state.store import Store, open_store
from hermes_state.work.lane_rows import ItemKind, ItemState
from hermes_state.work.mirroring import ELIGIBLE, Provenance, is_mirrored, mirror, strongest

from .conftest import Chats


def add_mirror(store: Store, home: Home, lane: str, number: int) -> None:
    store.work.lanes.mirror(
        lane, f"Brief {number}.", home, delivery_id=f"d{number}", job="daily brief", provenance=Provenance.ORIGIN,
        attach=True, default=False,
    )


def roles(store: Store, session_id: str) -> list[str]:
    return [message["role"] for message in store.messages.context(session_id)]


def test_what_comes_while_a_turn_runs_is_the_next_turns_message_in_order(
    store: Store, home: Home, chats: Chats
) -> None:
    """R82."""
    route, lanes = chats.bound(), store.work.lanes
    lanes.add(route.session_key, "1", "First", home, details={"user": "ann"})
    with store.turn(route.session_id) as turn:
        taken = lanes.take(turn, route, home)
        assert [one.key for one in taken.items] == ["message/1"]
        for number in (2, 3, 4):
            lanes.add(route.session_key, str(number), f"Text {number}", home)
        assert lanes.take(turn, route, home).unanswered == taken.message_id
        turn.messages.append(route.session_id, role="assistant", content="Answer")
        again = lanes.take(turn, route, home)
        assert [one.key for one in again.items] == ["message/2", "message/3", "message/4"]
        turn.messages.append(route.session_id, role="assistant", content="Answer")
        assert lanes.take(turn, route, home).message_id is None
    said = [(one["role"], one["content"]) for one in store.messages.context(route.session_id)]
    assert said == [
        ("user", "First"), ("assistant", "Answer"), ("user", "Text 2\n\nText 3\n\nText 4"), ("assistant", "Answer"),
    ]
    assert taken.message_id is not None
    assert store.messages.get(taken.message_id).extra == {
        "lane": [{"key": "message/1", "kind": "follow_up", "came_at": 1_800_000_000.0, "details": {"user": "ann"}}]
    }
    assert lanes.waiting(route.session_key) == []
    item = lanes.get(1)
    assert item is not None
    assert (item.state, item.content, item.message_id) == (ItemState.TAKEN, None, taken.message_id)


def test_what_waits_survives_a_restart(tmp_path: Path, fake_clock: FakeClock) -> None:
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        for number in range(3):
            store.work.lanes.add("lane", str(number), f"Text {number}", store.routing.home)
    with open_store(tmp_path / "home", clock=fake_clock) as store:
        (lane,) = store.work.lanes.lanes()
        assert (lane.lane, lane.follow_ups, lane.mirrors) == ("lane", 3, 0)
        assert [one.content for one in store.work.lanes.waiting("lane")] == ["Text 0", "Text 1", "Text 2"]


def test_a_repeat_is_the_same_item_also_after_it_was_taken(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes
    first = lanes.add(route.session_key, "1", "First", home)
    assert lanes.add(route.session_key, "1", "First", home) == first
    with pytest.raises(IdempotencyConflict) as caught:
        lanes.add(route.session_key, "1", "Second", home)
    assert str(caught.value) == (
        f"Item 'message/1' of lane {route.session_key!r} is in {store.path} with other content."
    )
    with store.turn(route.session_id) as turn:
        lanes.take(turn, route, home)
    assert lanes.add(route.session_key, "1", "First", home).state is ItemState.TAKEN
    assert lanes.waiting(route.session_key) == []


def test_roles_alternate_after_100_mirrors(store: Store, home: Home, chats: Chats) -> None:
    """R80: alone, between turns and while a turn runs."""
    route, lanes = chats.bound(), store.work.lanes
    numbers = itertools.count()
    for turn_number, many in enumerate((40, 1, 0, 25, 34)):
        for _ in range(many):
            add_mirror(store, home, route.session_key, next(numbers))
        with store.turn(route.session_id) as turn:
            assert lanes.take(turn, route, home).message_id is None  # mirrors alone wake nobody
            lanes.add(route.session_key, str(turn_number), f"Question {turn_number}?", home)
            taken = lanes.take(turn, route, home)
            assert len(taken.items) == many + 1
            turn.messages.append(
                route.session_id, role="assistant", tool_calls=[{"id": "c", "function": {"name": "f"}}]
            )
            assert lanes.take(turn, route, home).message_id is None  # between a call and its result
            turn.messages.append(route.session_id, role="tool", tool_call_id="c", content="result")
            assert lanes.take(turn, route, home).message_id is None
            turn.messages.append(route.session_id, role="assistant", content="Answer")
    assert next(numbers) == 100
    said = roles(store, route.session_id)
    assert said == ["user", "assistant", "tool", "assistant"] * 5
    first = store.messages.context(route.session_id)[0]["content"]
    assert first.startswith("[Cron delivery: daily brief]\nBrief 0.\n\n[Cron delivery: daily brief]\nBrief 1.\n\n")
    assert first.endswith("\n\nQuestion 0?")


def test_mirrors_make_a_turn_by_themselves_only_when_asked_to(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes
    add_mirror(store, home, route.session_key, 1)
    with store.turn(route.session_id) as turn:
        asleep = lanes.take(turn, route, home)
        assert (asleep.message_id, asleep.more) == (None, True)
        assert len(lanes.take(turn, route, home, wake=True).items) == 1


def test_a_mirror_waits_for_a_chat_that_has_no_session_yet(store: Store, home: Home, chats: Chats) -> None:
    """The lane is the chat's, so a home chat that nobody wrote in yet has its brief when somebody does."""
    key = "agent:main:telegram:dm:7"
    add_mirror(store, home, key, 1)
    route = chats.bound()
    assert route.session_key == key
    store.work.lanes.add(key, "1", "What is task 2?", home)
    with store.turn(route.session_id) as turn:
        store.work.lanes.take(turn, route, home)
    (message,) = store.messages.context(route.session_id)
    assert message["content"] == "[Cron delivery: daily brief]\nBrief 1.\n\nWhat is task 2?"


def test_many_mirrors_before_a_follow_up_do_not_hide_it(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes

    def fill(tx: object) -> None:
        for number in range(700):
            mirror(
                tx, route.session_key, "x" * 1000, home, delivery_id=str(number), job="j",  # type: ignore[arg-type]
                provenance=Provenance.ORIGIN, attach=True, default=False, at=1.0,
            )

    store.core.write(fill)
    lanes.add(route.session_key, "1", "Question?", home)
    counts = []
    with store.turn(route.session_id) as turn:
        while (taken := lanes.take(turn, route, home)).message_id is not None:
            counts.append(len(taken.items))
            turn.messages.append(route.session_id, role="assistant", content="Answer")
    assert sum(counts) == 701
    assert counts[0] == 262  # 262,144 characters
    assert roles(store, route.session_id) == ["user", "assistant"] * len(counts)


def test_parts_stay_parts(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes
    image = {"type": "image_url", "image_url": {"url": "file.png"}}
    lanes.add(route.session_key, "1", [image], home)
    lanes.add(route.session_key, "2", "What is it?", home)
    with store.turn(route.session_id) as turn:
        lanes.take(turn, route, home)
    (message,) = store.messages.context(route.session_id)
    assert message["content"] == [image, {"type": "text", "text": "What is it?"}]


def test_after_a_reset_follow_ups_of_before_are_dropped_and_mirrors_stay(
    store: Store, home: Home, chats: Chats
) -> None:
    route, lanes = chats.bound(), store.work.lanes
    lanes.add(route.session_key, "1", "Old", home)
    add_mirror(store, home, route.session_key, 1)
    route = store.routing.reset(route, home, store.sessions.create(source="telegram").id, reason="new")
    lanes.add(route.session_key, "2", "New", home)
    with store.turn(route.session_id) as turn:
        taken = lanes.take(turn, route, home)
    assert [one.key for one in taken.items] == ["mirror/d1", "message/2"]
    (late,) = taken.late
    item = lanes.get(late.no)
    assert item is not None
    assert (item.state, item.reason, item.content) == (
        ItemState.DROPPED, "its conversation was reset before it was taken", "Old"
    )


def test_what_comes_for_a_chat_that_does_not_go_on_is_for_its_next_conversation(
    store: Store, home: Home, chats: Chats
) -> None:
    """Whoever writes after a night makes the reset that would else drop what they wrote."""
    route, lanes = chats.bound(), store.work.lanes
    route = store.routing.expire(route, home, reason="a night")
    lanes.add(route.session_key, "1", "Good morning", home)
    route = store.routing.reset(route, home, store.sessions.create(source="telegram").id, reason="expired")
    with store.turn(route.session_id) as turn:
        assert [one.key for one in lanes.take(turn, route, home).items] == ["message/1"]


def test_nothing_is_taken_into_a_session_that_the_chat_left(store: Store, home: Home, chats: Chats) -> None:
    before, lanes = chats.bound(), store.work.lanes
    now = store.routing.reset(before, home, store.sessions.create(source="telegram").id, reason="new")
    lanes.add(before.session_key, "1", "For the new one", home)
    with store.turn(before.session_id) as turn, pytest.raises(RouteMoved) as caught:
        lanes.take(turn, before, home)
    assert str(caught.value) == (
        f"The chat {before.session_key!r} of {store.path} is in session {now.session_id!r}, generation 2, by now;"
        f" nothing was taken for {before.session_id!r}."
    )
    store.routing.forget(now, home, actor="test", reason="test")
    with store.turn(now.session_id) as turn, pytest.raises(RouteNotFound):
        lanes.take(turn, now, home)
    assert len(lanes.waiting(before.session_key)) == 1


def test_a_person_can_drop_what_waits(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes
    lanes.add(route.session_key, "1", "Old", home)
    add_mirror(store, home, route.session_key, 1)
    assert [one.key for one in lanes.drop(route.session_key, home, reason="/stop")] == ["message/1"]
    assert [one.kind for one in lanes.waiting(route.session_key)] == [ItemKind.MIRROR]
    assert len(lanes.drop(route.session_key, home, reason="/stop", mirrors=True)) == 1
    assert lanes.lanes() == []


def test_only_who_has_the_turn_takes(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes
    lanes.add(route.session_key, "1", "First", home)
    turn = store.turn(route.session_id)
    turn.end()
    with pytest.raises(LeaseLost):
        lanes.take(turn, route, home)
    with store.turn(store.sessions.create(source="telegram").id) as other, pytest.raises(InvalidInput) as caught:
        lanes.take(other, route, home)
    assert str(caught.value) == (
        f"The turn is of session {other.session_id!r}, the chat {route.session_key!r} is in {route.session_id!r}."
    )
    assert len(lanes.waiting(route.session_key)) == 1


def test_what_ended_never_changes_and_is_forgotten_later_than_what_waits(
    store: Store, home: Home, chats: Chats
) -> None:
    route, lanes = chats.bound(), store.work.lanes
    lanes.add(route.session_key, "1", "First", home)
    with store.turn(route.session_id) as turn:
        lanes.take(turn, route, home)
    lanes.add(route.session_key, "2", "Second", home)
    with pytest.raises(StatementFailed):
        store.core.write(lambda tx: tx.execute("UPDATE lane_items SET state = 'waiting', settled_at = NULL"))
    store.core.clock.advance(15 * 86_400.0)  # type: ignore[attr-defined]
    assert lanes.forget() == 1
    assert [one.key for one in lanes.waiting(route.session_key)] == ["message/2"]


def test_it_is_awaited_in_a_loop(store: Store, home: Home, chats: Chats) -> None:
    route = chats.bound()

    async def turn_of() -> list[str]:
        lanes = store.aio.work.lanes
        await lanes.add(route.session_key, "1", "First", home)
        async with await store.aio.turn(route.session_id) as turn:
            taken = await lanes.take(turn.sync, route, home)
            await turn.messages.append(route.session_id, role="assistant", content="Answer")
            return [one.key for one in taken.items]

    assert asyncio.run(turn_of()) == ["message/1"]
    assert roles(store, route.session_id) == ["user", "assistant"]


@pytest.mark.parametrize("content", ["", [], None, 5, "\ud800", [float("nan")]])
def test_an_item_can_be_stored_or_is_refused(store: Store, home: Home, content: str) -> None:
    with pytest.raises(InvalidInput):
        store.work.lanes.add("lane", "1", content, home)
    assert store.work.lanes.lanes() == []


def test_a_removed_home_takes_nothing_in(store: Store, home: Home) -> None:
    store.routing.remove_home(home, actor="test", reason="test")
    with pytest.raises(HomeRemoved):
        store.work.lanes.add("lane", "1", "First", home)
    with pytest.raises(HomeRemoved):
        add_mirror(store, home, "lane", 1)


# --- what is mirrored --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provenance", "opted_in", "wanted"),
    [
        (Provenance.ORIGIN, True, True), (Provenance.ORIGIN, False, True),
        (Provenance.HOME_FALLBACK, True, True), (Provenance.HOME_FALLBACK, False, True),
        (Provenance.PLATFORM_HOME, True, True), (Provenance.PLATFORM_HOME, False, True),
        (Provenance.EXPLICIT, True, True), (Provenance.EXPLICIT, False, False),
        (Provenance.ALL, True, False), (Provenance.ALL, False, False),
    ],
)
def test_the_table_of_what_is_mirrored(provenance: Provenance, opted_in: bool, wanted: bool) -> None:
    """R80: 5 x yes/no."""
    assert ELIGIBLE[provenance, opted_in] is wanted
    assert len(ELIGIBLE) == 10


def test_a_job_that_says_no_is_never_mirrored_and_a_default_opts_no_explicit_target_in() -> None:
    for provenance, default in itertools.product(Provenance, (True, False)):
        assert not is_mirrored(provenance, attach=False, default=default)
        assert is_mirrored(provenance, attach=True, default=default) is (provenance is not Provenance.ALL)
        assert is_mirrored(provenance, attach=None, default=default) is (
            default and provenance not in (Provenance.EXPLICIT, Provenance.ALL)
        )


def test_several_ways_to_a_target_count_as_the_strongest_in_any_order() -> None:
    assert strongest([Provenance.ALL, Provenance.ORIGIN]) is Provenance.ORIGIN
    assert strongest([Provenance.ORIGIN, Provenance.ALL]) is Provenance.ORIGIN
    assert strongest([Provenance.ALL, Provenance.EXPLICIT]) is Provenance.EXPLICIT
    with pytest.raises(InvalidInput) as caught:
        strongest([])
    assert str(caught.value) == "A delivery came to its target in some way."


def test_a_mirror_is_recorded_once_in_the_callers_transaction_or_not_at_all(store: Store, home: Home) -> None:
    def settles(tx: object, *, fails: bool) -> bool:
        found = mirror(
            tx, "lane", " Brief. ", home, delivery_id="d", job="two\nlines", provenance=Provenance.ORIGIN,  # type: ignore[arg-type]
            attach=True, default=False, at=1.0,
        )
        if fails:
            raise KeyError("the delivery was not settled")
        return found.new

    with pytest.raises(KeyError):
        store.core.write(lambda tx: settles(tx, fails=True))
    assert store.work.lanes.lanes() == []
    assert store.core.write(lambda tx: settles(tx, fails=False))
    assert not store.core.write(lambda tx: settles(tx, fails=False))
    (item,) = store.work.lanes.waiting("lane")
    assert (item.content, item.label, item.kind) == ("Brief.", "[Cron delivery: two lines]", ItemKind.MIRROR)


def test_what_is_not_eligible_or_empty_leaves_nothing(store: Store, home: Home) -> None:
    lanes = store.work.lanes
    for provenance, content in ((Provenance.ALL, "Brief."), (Provenance.ORIGIN, " \n ")):
        found = lanes.mirror(
            "lane", content, home, delivery_id="d", job="j", provenance=provenance, attach=True, default=True
        )
        assert (found.item, found.new) == (None, False)
    with pytest.raises(InvalidInput) as caught:
        lanes.mirror(
            "lane", "Brief.", home, delivery_id="d", job="j", provenance="everywhere", attach=True, default=True  # type: ignore[arg-type]
        )
    assert str(caught.value) == "'everywhere' is no way in which a delivery comes to its target."
    assert lanes.lanes() == []
