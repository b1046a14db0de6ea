"""The identity of an event: resolved once, before any key, and never by guessing. T4.4 and R90 under their numbers."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hermes_state.errors import InvalidInput
from hermes_state.routing import (
    Home,
    Inbound,
    ProfileRoute,
    RoutingIdentity,
    Source,
    Transport,
    Unserved,
    canonicalize,
    key_of,
    resolve,
    route_for,
    served_homes,
)
from tests.hermes_state.routing.conftest import Host, source


def test_an_event_is_resolved_once_however_many_ways_in_it_passes(host: Host) -> None:
    bot, asked = host.bot("default"), []

    def resolver(given: Source) -> RoutingIdentity | Unserved:
        asked.append(given)
        return host.identity(given, bot)

    first = canonicalize(source(), resolver)
    assert isinstance(first, Inbound)
    host.routes = [ProfileRoute(profile="work", platform="telegram")]  # a later look would answer differently
    assert canonicalize(first, resolver) is first
    moved = first.replace_source(thread_id="5")
    again = canonicalize(moved, resolver)
    assert again is moved
    assert moved.identity is first.identity
    assert asked == [source()]
    assert key_of(moved).text == "agent:main:telegram:group:-100:5"


def test_a_key_needs_an_identity() -> None:
    with pytest.raises(InvalidInput) as caught:
        Inbound(source=source(), identity=None)  # type: ignore[arg-type]
    assert caught.value.message == "An inbound event is a Source and its RoutingIdentity; one of them is missing."


def test_an_identity_is_frozen_and_equal_whatever_connection_it_came_by(host: Host) -> None:
    first = host.event(host.bot("default")).identity
    second = host.event(host.bot("default")).identity
    assert first.transport is not second.transport
    assert first == second
    assert hash(first) == hash(second)
    assert "Transport" not in repr(first)
    with pytest.raises(AttributeError):
        first.runtime_profile = "work"  # type: ignore[misc]


def test_an_inbound_event_shows_and_compares_its_source_alone(host: Host) -> None:
    event = host.event(host.bot("default"))
    assert repr(event) == f"Inbound(source={source()!r})"
    assert pickle.loads(pickle.dumps(event.source)) == event.source


@pytest.mark.parametrize(
    ("route", "of", "matches"),
    [
        ({"chat_id": "-100"}, {}, True),
        ({"chat_id": "-100"}, {"chat_id": "9", "parent_chat_id": "-100"}, True),
        ({"chat_id": "-100"}, {"chat_id": "9"}, False),
        ({"guild_id": "g", "chat_id": "-100"}, {}, False),
        ({"guild_id": "g", "chat_id": "-100"}, {"guild_id": "g"}, True),
        ({"thread_id": "5"}, {"thread_id": "5"}, True),
        ({"thread_id": "5"}, {"thread_id": "6"}, False),
        ({}, {}, True),
    ],
)
def test_every_declared_part_of_a_route_must_match(route: dict[str, str], of: dict[str, str], matches: bool) -> None:
    declared = ProfileRoute(profile="work", platform="telegram", **route)
    assert declared.matches(source(**of)) is matches
    assert not declared.matches(source(**{**of, "platform": "discord"}))


def test_the_most_specific_route_applies_and_of_equal_ones_the_first() -> None:
    guild = ProfileRoute(profile="a", platform="telegram", guild_id="g")
    chat = ProfileRoute(profile="b", platform="telegram", chat_id="-100")
    both = ProfileRoute(profile="c", platform="telegram", guild_id="g", chat_id="-100")
    thread = ProfileRoute(profile="d", platform="telegram", thread_id="5")
    assert [one.specificity for one in (guild, chat, both, thread)] == [2, 4, 6, 8]
    event = source(guild_id="g", thread_id="5")
    assert route_for([guild, chat, both, thread], event) is thread
    assert route_for([guild, chat, both], event) is both
    assert route_for([guild, chat], event) is chat
    twin = ProfileRoute(profile="e", platform="telegram", chat_id="-100")
    assert route_for([chat, twin], event) is chat
    assert route_for([guild], source()) is None


def test_t4_4_a_route_to_a_profile_that_is_not_served_gets_no_identity_and_no_key(host: Host) -> None:
    host.routes = [ProfileRoute(profile="gone", platform="telegram")]
    bot = host.bot("default")
    found = canonicalize(source(), lambda given: host.identity(given, bot))
    assert isinstance(found, Unserved)
    assert (found.profile, found.home) == ("gone", host.home("default"))
    assert found.reason == "the route of its chat is of profile 'gone', which this process does not serve"
    noted = [host.stores["default"].routing.drop(found) for _ in range(50)]
    assert [one.warning for one in noted if one.warning is not None] == [
        "Profile 'gone' is not served on telegram: the route of its chat is of profile 'gone', which this process does"
        " not serve. What it is sent is dropped until a process serves it."
    ]
    for store in host.stores.values():
        assert store.routing.page() == []  # 0 rows keyed


def test_a_bot_whose_profile_is_not_served_or_was_made_anew_gets_no_identity(host: Host) -> None:
    bot = host.bot("work")
    host.unserved = {"work"}
    found = host.identity(source(), bot)
    assert isinstance(found, Unserved)
    assert found.reason == "the bot that received it is of profile 'work', which this process does not serve"
    other = Transport(platform="telegram", profile="work", home=host.home("side"))
    host.unserved = set()
    found = host.identity(source(), other)
    assert isinstance(found, Unserved)
    assert found.reason == (
        f"the bot that received it is of {host.home('side')}, and profile 'work' is {host.home('work')} now"
    )


def test_a_way_in_that_does_not_know_the_bot_takes_the_only_one_that_is_up(host: Host) -> None:
    bot = host.bot("work")
    host.bot("default", "discord")
    found = host.identity(source(), None)
    assert isinstance(found, RoutingIdentity)
    assert (found.transport_profile, found.transport_inferred) == ("work", True)
    assert found.transport is not None and found.transport() is bot
    assert not host.event(bot).identity.transport_inferred
    host.bot("default")
    unclear = host.identity(source(), None)
    assert isinstance(unclear, Unserved)
    assert unclear.reason == "nothing says which bot received it, and 2 bots of telegram are up"


def test_r90_nothing_of_the_environment_decides(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent's scoped reads of its environment are its own; ours has none to read."""
    bot = host.bot("work")
    host.bot("default")
    before, route = host.event(bot), host.bound(host.event(bot))
    for name in ("HERMES_HOME", "HERMES_PROFILE", "TELEGRAM_ALLOWED_USERS"):
        monkeypatch.setenv(name, str(host.home("side").path))
    assert host.event(bot).identity == before.identity
    assert host.stores["work"].routing.go_on(route, host.event(bot)) == route


def test_arguments_that_contradict_each_other_are_refused(host: Host) -> None:
    with pytest.raises(InvalidInput) as caught:
        host.identity(source(), host.bot("default", "discord"))
    assert caught.value.message == "A connection of discord cannot have received a message of telegram."
    with pytest.raises(InvalidInput) as caught:
        resolve(source(), receiver=None, live=[], served={}, multiplexed=False)
    assert caught.value.message == "A process that is not multiplexed serves one profile, not 0."


@pytest.mark.parametrize("profile", ["", " ", "main", "a/b", "a:b", ".hidden", "a\0b", "\udc80", 7, None])
def test_a_profile_is_one_word_and_never_the_default_namespace(profile: object) -> None:
    with pytest.raises(InvalidInput):
        ProfileRoute(profile=profile, platform="telegram")  # type: ignore[arg-type]


def test_two_homes_of_one_profile_are_not_served_together() -> None:
    one = Home(path=Path("/a/profiles/work"), store_id="1")
    other = Home(path=Path("/b/profiles/work"), store_id="2")
    with pytest.raises(InvalidInput) as caught:
        served_homes([one, other])
    assert caught.value.message == "/a/profiles/work and /b/profiles/work are both profile 'work'."
