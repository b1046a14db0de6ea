"""Lanes at their bounds: many late items, many mirrors, items that no message could hold, chats that were stopped."""

from __future__ import annotations

from typing import Any

import pytest

from hermes_state.errors import InvalidInput
from hermes_state.routing import Home, Route
from hermes_state.store import Store
from hermes_state.work import lane_rows
from hermes_state.work.lane_rows import ItemKind, ItemState
from hermes_state.work.lanes import Taken
from hermes_state.work.mirroring import Provenance, mirror
from hermes_state.work.targets import SendFailure

from .conftest import Chats


def fill(store: Store, home: Home, lane: str, kind: ItemKind, count: int) -> None:
    """So many items in one commit."""
    store.core.write(lambda tx: [
        lane_rows.add(
            tx, lane, f"{kind}/{number}", f"Text {number}", home, kind=kind,
            label="[Cron]" if kind is ItemKind.MIRROR else None, details=None, at=1_800_000_000.0,
        ) for number in range(count)
    ] and None)


def answered(store: Store, home: Home, route: Route) -> list[Taken]:
    """What the loop of docs/streams.md takes."""
    found = []
    with store.turn(route.session_id) as turn:
        while True:
            taken = store.work.lanes.take(turn, route, home)
            if taken.message_id is None and taken.unanswered is None:
                return found
            found.append(taken)
            turn.messages.append(route.session_id, role="assistant", content="Answer")


def test_what_came_after_a_reset_is_taken_however_much_came_before(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes
    fill(store, home, route.session_key, ItemKind.FOLLOW_UP, 1_200)
    route = store.routing.reset(route, home, store.sessions.create(source="telegram").id, reason="/new")
    lanes.add(route.session_key, "new", "The new question", home)
    (taken,) = answered(store, home, route)
    assert [one.content for one in taken.items] == ["The new question"]
    assert (len(taken.late), taken.late[0].state) == (1_000, ItemState.WAITING)
    assert lanes.lanes() == []  # the second call dropped the rest


def test_a_question_behind_many_mirrors_is_answered_in_one_turn(store: Store, home: Home, chats: Chats) -> None:
    route = chats.bound()
    fill(store, home, route.session_key, ItemKind.MIRROR, 1_200)
    store.work.lanes.add(route.session_key, "q", "My question", home)
    (taken,) = answered(store, home, route)
    assert (len(taken.items), taken.items[-1].content) == (1_201, "My question")


def deep(levels: int) -> Any:
    value: Any = "a"
    for _ in range(levels):
        value = [value]
    return value


def test_what_no_message_could_hold_is_refused_when_it_comes(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes
    with pytest.raises(InvalidInput) as caught:
        lanes.add(route.session_key, "1", "x", home, details=deep(98))
    assert str(caught.value) == "The details of an item cannot be written as JSON: it is more than 97 levels deep."
    lanes.add(route.session_key, "2", "x", home, details=deep(97))
    lanes.add(route.session_key, "3", deep(100), home)
    (taken,) = answered(store, home, route)
    assert len(taken.items) == 2


def test_details_count_towards_the_size_of_a_message(store: Store, home: Home, chats: Chats) -> None:
    route = chats.bound()
    for number in range(3):
        store.work.lanes.add(route.session_key, str(number), "x", home, details={"raw": "z" * 900_000})
    assert [len(one.items) for one in answered(store, home, route)] == [1, 1, 1]


def test_what_comes_after_a_stop_is_not_taken_into_the_stopped_session(store: Store, home: Home, chats: Chats) -> None:
    route, lanes = chats.bound(), store.work.lanes
    with store.turn(route.session_id) as turn:
        lanes.add(route.session_key, "1", "First", home)
        lanes.take(turn, route, home)
        turn.messages.append(route.session_id, role="assistant", content="Answer")
        lanes.add(route.session_key, "2", "Before the stop", home)
        stopped = store.routing.suspend(store.routing.get(route.session_key) or route, home, reason="/stop")
        lanes.add(route.session_key, "3", "After the stop", home)
        taken = lanes.take(turn, stopped, home)
        assert (taken.message_id, taken.unanswered, taken.more) == (None, None, True)
    new = store.routing.reset(stopped, home, store.sessions.create(source="telegram").id, reason="/new")
    (taken,) = answered(store, home, new)
    assert ([one.content for one in taken.items], [one.content for one in taken.late]) == (
        ["After the stop"], ["Before the stop"]
    )


def test_no_text_of_a_job_stops_the_settlement_of_its_delivery(store: Store, home: Home, chats: Chats) -> None:
    route = chats.bound()
    for number, (content, job, begins) in enumerate((
        ("Brief \udcff", "j", "[Cron delivery: j]\nBrief \\udcff"),
        ("x" * 1_100_000, "j", "[Cron delivery: j]\nxxx"),
        ("x", "j" * 600, f"[Cron delivery: {'j' * 200}... (600 characters)]\nx"),
        ("x", "a\0\nb", "[Cron delivery: a\\0 b]\nx"),
    )):
        assert store.core.write(lambda tx, n=number, c=content, j=job: mirror(  # type: ignore[misc]
            tx, route.session_key, c, home, delivery_id=f"d{n}", job=j, provenance=Provenance.ORIGIN, attach=True,
            default=False, at=1_800_000_000.0,
        )).new
        store.work.lanes.add(route.session_key, f"q{number}", "And?", home)
        answered(store, home, route)
        said = store.messages.context(route.session_id)[-2]["content"]
        assert said.startswith(begins)
        assert len(said) < 132_000


def test_no_word_of_a_platform_stops_the_settlement_of_what_was_sent(store: Store, home: Home) -> None:
    reasons: tuple[tuple[Any, str], ...] = (
        ("Forbidden: \udcff", r"Forbidden: \udcff"), ("a\0b", r"a\0b"), (None, ""), (b"x", "b'x'"),
        ("x" * 300, "x" * 200),
    )
    for reason, kept in reasons:
        dead = store.work.targets.failed("telegram", 7, home, SendFailure.FORBIDDEN, reason=reason)
        assert dead is not None
        assert (dead.chat_id, dead.reason) == ("7", kept)
    assert store.work.targets.succeeded("telegram", 7, home)
