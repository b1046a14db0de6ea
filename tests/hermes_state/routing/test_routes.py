"""Routing entries: one transaction a change, by compare-and-set, with a generation that never falls. T4.9."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_state.clock import FakeClock
from hermes_state.errors import (
    InvalidInput,
    RouteMoved,
    RouteNotFound,
    RouteStopped,
    SessionDeleted,
    SessionNotFound,
    SessionReplaced,
    StatementFailed,
)
from hermes_state.routing import Act, Home, Route, State, highest_generation, raise_generations, without_secrets
from hermes_state.routing.states import TABLE, Outcome
from hermes_state.store import Store, open_store
from tests.hermes_state.routing.conftest import Host

SECRET = "sk-live-0123456789abcdef"


@pytest.fixture(name="route")
def bound_route(host: Host) -> Route:
    return host.bound(host.event(host.bot("default")))


def new_session(store: Store) -> str:
    return store.sessions.create(source="telegram").id


def test_every_state_and_act_has_its_outcome() -> None:
    assert TABLE.keys() == set(itertools.product(State, Act))


def test_nothing_but_a_reset_brings_back_what_is_suspended_or_expired() -> None:
    stopped = (State.SUSPENDED, State.EXPIRED)
    back = {
        act for (state, act), out in TABLE.items() if state in stopped and out in (State.ACTIVE, State.RESUMING)
    }
    assert back == {Act.RESET}


@pytest.mark.parametrize(("state", "act"), TABLE)
def test_each_act_does_what_the_table_says(host: Host, home: Home, route: Route, state: State, act: Act) -> None:
    store = host.stores["default"]
    routing = store.routing
    acts: dict[Act, Callable[[Route], Route]] = {
        Act.RECEIVE: lambda one: routing.receive(one, host.event(host.live[0])),
        Act.GO_ON: lambda one: routing.go_on(one, host.event(host.live[0])),
        Act.RESUME_LATER: lambda one: routing.resume_later(one, home, reason="restart"),
        Act.SUSPEND: lambda one: routing.suspend(one, home, reason="stuck"),
        Act.EXPIRE: lambda one: routing.expire(one, home, reason="idle"),
        Act.RESET: lambda one: routing.reset(one, home, new_session(store), reason="new"),
        Act.FOLLOW: lambda one: routing.follow(one, home, store.sessions.continue_as(one.session_id).id),
        Act.CHOOSE_MODEL: lambda one: routing.choose_model(one, home, {"model": "small"}),
    }
    to = {State.RESUMING: Act.RESUME_LATER, State.SUSPENDED: Act.SUSPEND, State.EXPIRED: Act.EXPIRE}
    before = acts[to[state]](route) if state in to else route
    assert before.state is state
    if TABLE[state, act] is Outcome.STOPPED:
        with pytest.raises(RouteStopped) as caught:
            acts[act](before)
        assert caught.value.message == (
            f"The routing entry 'agent:main:telegram:group:-100:7' of {store.path} is {state} ({before.state_reason}):"
            f" it cannot {act}."
        )
        assert routing.get(before.session_key) == before
        return
    after = acts[act](before)
    assert after == routing.get(before.session_key)
    if TABLE[state, act] is Outcome.SAME:
        assert after == before  # the first mark and its reason stay
        return
    assert after.state is TABLE[state, act]
    changed = act is not Act.RECEIVE and (act is not Act.GO_ON or state is not State.ACTIVE)
    assert after.version == before.version + int(changed)
    assert after.generation == before.generation + int(act is Act.RESET)


def test_going_on_without_news_writes_nothing(host: Host, store: Store, route: Route) -> None:
    position = store.changes.position()
    assert store.routing.go_on(route, host.event(host.live[0], message_id="77")) == route
    assert store.changes.since(position).changes == ()


def test_going_on_keeps_who_received_it_last(host: Host, store: Store, route: Route) -> None:
    other = host.bot("work", runs_as="default")
    moved = store.routing.go_on(route, host.event(other, user_name="Ann"))
    assert (moved.transport_profile, moved.origin.user_name, moved.version) == ("work", "Ann", 2)


def test_a_second_one_that_read_the_same_row_is_told_and_changes_nothing(
    host: Host, store: Store, home: Home, route: Route
) -> None:
    mine = store.routing.reset(route, home, new_session(store), reason="new")
    with pytest.raises(RouteMoved) as caught:
        store.routing.resume_later(route, home, reason="restart")
    assert caught.value.message == (
        f"The routing entry 'agent:main:telegram:group:-100:7' of {store.path} changed since it was read: it is of"
        f" version 2, in session {mine.session_id!r}, generation 2."
    )
    assert caught.value.route == mine  # type: ignore[attr-defined]
    assert store.routing.get(route.session_key) == mine


def test_of_two_that_bind_one_chat_the_second_gets_what_the_first_bound(host: Host, store: Store, route: Route) -> None:
    event = host.event(host.live[0])
    assert store.routing.bind(event, route.session_id) == route
    with pytest.raises(RouteMoved) as caught:
        store.routing.bind(event, new_session(store))
    assert caught.value.route == route  # type: ignore[attr-defined]


def test_a_reset_says_why_and_whether_anything_was_said_and_is_fresh_until_a_message(
    host: Host, store: Store, home: Home, route: Route
) -> None:
    store.messages.append(route.session_id, role="user", content="hi")
    fresh = store.routing.reset(route, home, new_session(store), reason="daily")
    assert (fresh.reset_reason, fresh.reset_had_activity, fresh.fresh, fresh.generation) == ("daily", True, True, 2)
    again = store.routing.go_on(fresh, host.event(host.live[0]))
    assert (again.fresh, again.generation) == (False, 2)
    empty = store.routing.reset(again, home, new_session(store), reason="new")
    assert (empty.reset_had_activity, empty.generation) == (False, 3)


def test_a_message_that_came_leaves_a_mark_to_resume_until_its_turn_ended(
    host: Host, store: Store, home: Home, route: Route
) -> None:
    marked = store.routing.resume_later(route, home, reason="restart")
    taken = store.routing.receive(marked, host.event(host.bot("work", runs_as="default")))
    assert (taken.state, taken.state_reason, taken.transport_profile) == (State.RESUMING, "restart", "work")
    assert store.routing.go_on(taken, host.event(host.live[1])).state is State.ACTIVE


def test_a_reset_for_an_event_is_answered_by_who_received_that(
    host: Host, store: Store, home: Home, route: Route
) -> None:
    """Also where the row named nobody, as one that hermes-agent wrote."""
    event = host.event(host.bot("work", runs_as="default"), user_name="Ann")
    stopped = store.routing.suspend(route, home, reason="stuck")
    anew = store.routing.reset(stopped, home, new_session(store), reason="stuck", inbound=event)
    assert (anew.transport_profile, anew.origin.user_name, anew.generation) == ("work", "Ann", 2)
    store.core.write(lambda tx: tx.execute(
        "UPDATE routing_entries SET transport_profile = NULL, version = version + 1"
    ))
    unsaid = store.routing.get(route.session_key)
    assert unsaid is not None and unsaid.transport_profile is None
    assert store.routing.reset(unsaid, home, new_session(store), reason="x").transport_profile is None
    unsaid = store.routing.get(route.session_key)
    assert unsaid is not None
    assert store.routing.reset(
        unsaid, home, new_session(store), reason="x", inbound=event
    ).transport_profile == "work"


def test_an_event_of_another_chat_says_nothing_of_an_entry(host: Host, store: Store, home: Home, route: Route) -> None:
    """Not of its chat, its platform, its thread, its person."""
    bot, signal = host.live[0], host.bot("default", "signal")
    others = [
        host.event(bot, chat_id="-200"), host.event(bot, chat_type="dm"), host.event(bot, thread_id="4"),
        host.event(bot, user_id="8"), host.event(signal, platform="signal"),
    ]
    for event in others:
        for wrong in (
            lambda event=event: store.routing.go_on(route, event),
            lambda event=event: store.routing.receive(route, event),
            lambda event=event: store.routing.reset(route, home, new_session(store), reason="x", inbound=event),
        ):
            with pytest.raises(InvalidInput) as caught:
                wrong()
            assert caught.value.argument == "inbound"  # type: ignore[attr-defined]
            assert caught.value.message.endswith(" says nothing of 'agent:main:telegram:group:-100:7'.")
    assert store.routing.get(route.session_key) == route


def test_a_compaction_is_followed_in_the_same_generation_and_nothing_else_is(
    store: Store, home: Home, route: Route
) -> None:
    other = new_session(store)
    with pytest.raises(InvalidInput) as caught:
        store.routing.follow(route, home, other)
    assert caught.value.message == f"Session {other!r} of {store.path} does not continue {route.session_id!r}."
    tip = store.sessions.continue_as(route.session_id).id
    followed = store.routing.follow(route, home, tip)
    assert (followed.session_id, followed.generation) == (tip, 1)


def test_a_chat_is_bound_to_a_session_that_can_go_on(host: Host, store: Store, home: Home, route: Route) -> None:
    event = host.event(host.live[0], chat_id="other")
    with pytest.raises(SessionNotFound):
        store.routing.bind(event, "nowhere")
    gone = new_session(store)
    store.sessions.delete([gone], actor="test", reason="test")
    with pytest.raises(SessionDeleted):
        store.routing.bind(event, gone)
    store.sessions.continue_as(route.session_id)
    with pytest.raises(SessionReplaced):
        store.routing.reset(route, home, route.session_id, reason="x")
    assert store.routing.find(event) is None


def test_an_entry_outlives_its_deleted_session(host: Host, store: Store, home: Home, route: Route) -> None:
    store.sessions.delete([route.session_id], actor="test", reason="test")
    assert store.routing.get(route.session_key) == route
    anew = store.routing.reset(route, home, new_session(store), reason="deleted")
    assert (anew.transport_profile, anew.generation, anew.reset_had_activity) == ("default", 2, False)


def test_the_generation_does_not_fall_when_an_entry_is_forgotten(host: Host, store: Store, home: Home) -> None:
    route = host.bound(host.event(host.bot("default")))
    for _ in range(4):
        route = store.routing.reset(route, home, new_session(store), reason="new")
    store.routing.forget(route, home, actor="test", reason="asked")
    assert store.routing.get(route.session_key) is None
    with pytest.raises(RouteNotFound):
        store.routing.suspend(route, home, reason="late")
    anew = host.bound(host.event(host.live[0]))
    assert (route.generation, anew.generation) == (5, 6)
    with store.core.reader() as reader:
        assert highest_generation(reader) == 6
        assert reader.rows("SELECT actor, reason, kind, keys FROM deletions ORDER BY id DESC LIMIT 1") == [
            ("test", "asked", "route", '["agent:main:telegram:group:-100:7"]')
        ]


def test_a_row_that_was_read_before_its_entry_was_forgotten_and_bound_again_is_an_old_one(
    host: Host, store: Store, home: Home, route: Route
) -> None:
    """Both are of version 1: found by the machine of `test_routes_machine`."""
    store.routing.forget(route, home, actor="test", reason="test")
    anew = host.bound(host.event(host.live[0]))
    assert anew.version == route.version
    with pytest.raises(RouteMoved):
        store.routing.suspend(route, home, reason="late")
    assert store.routing.get(route.session_key) == anew


def test_after_older_content_came_back_every_conversation_is_of_a_higher_generation(
    host: Host, store: Store, route: Route
) -> None:
    store.core.write(lambda tx: raise_generations(tx, 40))
    now = store.routing.get(route.session_key)
    assert now is not None and now.generation == 41
    assert host.bound(host.event(host.live[0], chat_id="new")).generation == 41


def test_the_file_itself_refuses_a_falling_generation_and_another_home(store: Store, route: Route) -> None:
    for change, why in (
        ("generation = 0, version = version + 1", "the generation and the version of a routing entry only rise"),
        ("generation = 1, version = version", "the generation and the version of a routing entry only rise"),
        ("home = 'x', version = version + 1", "a routing entry keeps its key and its home"),
        ("runtime_profile = 'work', version = version + 1", "a routing entry keeps its key and its home"),
    ):
        with pytest.raises(StatementFailed, match=why):
            store.core.write(lambda tx, change=change: tx.execute(f"UPDATE routing_entries SET {change}"))  # type: ignore[misc]


def test_each_change_is_in_the_feed(store: Store, home: Home, host: Host) -> None:
    position = store.changes.position()
    route = host.bound(host.event(host.bot("default")))
    route = store.routing.suspend(route, home, reason="stuck")
    store.routing.forget(route, home, actor="test", reason="test")
    told = [
        (change.table_name, change.operation) for change in store.changes.since(position).changes
        if change.table_name == "routing_entries"
    ]
    assert told == [("routing_entries", "insert"), ("routing_entries", "update"), ("routing_entries", "delete")]


def test_pages_are_in_the_order_of_keys_and_filtered(host: Host, store: Store, home: Home) -> None:
    bot = host.bot("default")
    routes = [host.bound(host.event(bot, chat_id=str(chat))) for chat in range(5)]
    store.routing.suspend(routes[3], home, reason="stuck")
    first = store.routing.page(limit=2)
    assert [one.key.chat_id for one in first] == ["0", "1"]
    assert [one.key.chat_id for one in store.routing.page(after=first[-1].session_key)] == ["2", "3", "4"]
    assert [one.key.chat_id for one in store.routing.page(states=[State.SUSPENDED])] == ["3"]
    assert [one.key.chat_id for one in store.routing.page(session_id=routes[2].session_id)] == ["2"]
    assert store.routing.page(platform="discord") == []
    for wrong in ({"limit": 0}, {"states": ["open"]}, {"after": 7}):
        with pytest.raises(InvalidInput):
            store.routing.page(**wrong)  # type: ignore[arg-type]


# --- model override -----------------------------------------------------------------------------------------------


def test_t4_9_a_credential_of_a_model_override_is_in_no_byte_of_the_store(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    path = tmp_path / "home" / "state.db"
    with open_store(path=path, clock=fake_clock) as store:
        session = new_session(store)
        route = store.routing.take_in(
            {
                "session_key": "agent:main:telegram:dm:1", "session_id": session,
                "origin": {"platform": "telegram", "chat_type": "dm", "chat_id": "1", "api_key": SECRET},
                "model_override": {"model": "m", "api_key": SECRET},
            },
            store.routing.home,
        )
        route = store.routing.choose_model(
            route, store.routing.home,
            {
                "model": "small", "provider": "local", "api_key": SECRET, "api_mode": SECRET, "headers": SECRET,
                "base_url": f"https://user:{SECRET}@model.example:8443/v1?key={SECRET}#{SECRET}",
            },
        )
        assert route.model_override == {
            "model": "small", "provider": "local", "base_url": "https://model.example:8443/v1"
        }
        assert SECRET.encode() not in _bytes_by_child(path)
    everything = b"".join(one.read_bytes() for one in path.parent.rglob("*") if one.is_file())
    assert b"model.example" in everything
    assert SECRET.encode() not in everything


def _bytes_by_child(path: Path) -> bytes:
    """The store's files as another process reads them: this one has them open."""
    return subprocess.run(["cat", *map(str, path.parent.glob("state.db*"))], capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    ("override", "kept"),
    [
        (None, None), ({}, None), ({"api_key": "x"}, None), ({"model": ""}, None), ({"model": "a"}, {"model": "a"}),
        ({"base_url": "http://[::1]:8080/v1"}, {"base_url": "http://[::1]:8080/v1"}),
    ],
)
def test_what_is_kept_of_a_model_override(override: Any, kept: Any) -> None:
    assert without_secrets(override) == kept


@pytest.mark.parametrize("override", ["m", 7, {"model": 7}, {"base_url": "ftp://x"}, {"base_url": "http://x:y"}])
def test_a_model_override_that_is_none_is_refused_without_being_repeated(override: Any) -> None:
    with pytest.raises(InvalidInput):
        without_secrets(override)
