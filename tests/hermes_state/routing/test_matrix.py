"""Who takes an event in and who answers it: the matrix of the facts, live, restored and without a known bot.

Tests under T4.2, T4.3 and R88: the adapters themselves are an agent's; what is tested is what we say of them, from the
rows that we kept.
"""

from __future__ import annotations

import itertools
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.routing import (
    Because,
    Home,
    Inbound,
    ProfileRoute,
    Route,
    RoutingIdentity,
    Source,
    Transport,
    Unserved,
    delivery,
    intake,
    restore,
)
from tests.hermes_state.routing.conftest import PROFILES, Host

ROUTE = ProfileRoute(profile="work", platform="telegram", chat_id="-100")

# Topology: (receiving bot, route, runs as, other bots that are up, where it runs)
TOPOLOGIES = {
    "its own bot, no route": ("work", False, None, ("default",), "work"),
    "a shared bot, routed": ("default", True, None, (), "work"),
    "a shared bot, routed to a profile with a bot": ("default", True, None, ("work",), "work"),
    "a secondary's bot, run as the default": ("work", False, "default", ("default",), "default"),
}


def staged(host: Host, topology: str) -> tuple[Transport, Inbound]:
    """The bots of a topology, and an event that one of them received."""
    receiver, routed, runs_as, others, runtime = TOPOLOGIES[topology]
    for profile in others:
        host.bot(profile)
    bot = host.bot(receiver, runs_as=runs_as)
    host.routes = [ROUTE] if routed else []
    event = host.event(bot)
    assert event.identity.runtime_profile == runtime
    return bot, event


def restored(host: Host, route: Route) -> Inbound:
    """The conversation of a row, as the next process has it."""
    found = restore(route, host.served, multiplexed=True)
    assert isinstance(found, Inbound)
    return found


def reread(host: Host, route: Route) -> Route:
    """The row as it stands in its store."""
    found = host.stores[route.runtime_profile].routing.get(route.session_key)
    assert found is not None
    return found


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_t4_3_a_live_event_is_taken_in_and_answered_by_the_bot_that_received_it(host: Host, topology: str) -> None:
    bot, event = staged(host, topology)
    for choice in (intake(event, host.live), delivery(event, host.live)):
        assert (choice.transport, choice.because) == (bot, Because.RECEIVER)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_t4_3_a_restored_row_is_answered_by_the_bot_it_names_and_taken_in_by_none(host: Host, topology: str) -> None:
    bot, event = staged(host, topology)
    again = restored(host, reread(host, host.bound(event)))
    assert again.identity == event.identity  # the connection does not count
    assert again.identity.restored
    assert intake(again, host.live).transport is None
    assert intake(again, host.live).because is Because.NOT_RECEIVED
    assert delivery(again, host.live).transport is bot
    assert delivery(again, host.live).because is Because.STORED_BOT


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_t4_2_a_restored_row_whose_bot_is_down_is_answered_by_nobody_and_never_by_the_default(
    host: Host, topology: str
) -> None:
    bot, event = staged(host, topology)
    route = reread(host, host.bound(event))
    host.gone(bot)
    for profile in set(PROFILES) - {bot.profile}:
        host.bot(profile)  # everybody else is up
    for of in (route, restored(host, route)):
        assert delivery(of, host.live).transport is None
        assert delivery(of, host.live).because is Because.BOT_DOWN


@pytest.mark.parametrize("runtime", ["default", "work"])
def test_t4_3_a_row_without_a_bot_is_answered_by_the_only_bot_of_its_profile_or_nobody(
    host: Host, runtime: str
) -> None:
    store = host.stores[runtime]
    session = store.sessions.create(source="telegram").id
    namespace = "main" if runtime == "default" else runtime
    route = store.routing.take_in(
        {
            "session_key": f"agent:{namespace}:telegram:group:-100", "session_id": session,
            "origin": {"platform": "telegram", "chat_type": "group", "chat_id": "-100"},
        },
        host.home(runtime),
    )
    assert route.transport_profile is None
    assert restore(route, host.served, multiplexed=True) is None
    others = [host.bot(profile) for profile in PROFILES if profile != runtime]
    assert delivery(route, host.live).transport is None
    assert delivery(route, host.live).because is Because.NO_OWNER
    own = host.bot(runtime)
    assert delivery(route, host.live).transport is own
    assert delivery(route, host.live).because is Because.ONLY_OWNER
    host.bot(runtime)
    assert delivery(route, host.live).transport is None
    assert delivery(route, host.live).because is Because.OWNERS
    host.live = others
    host.bot(runtime, "discord")  # another platform is no bot of this one
    assert delivery(route, host.live).transport is None


def test_a_bot_that_connected_anew_takes_a_live_event_in_but_two_of_it_do_not(host: Host) -> None:
    bot, event = staged(host, "a shared bot, routed")
    host.gone(bot)
    assert intake(event, host.live).because is Because.BOT_DOWN
    anew = host.bot("default")
    assert (intake(event, host.live).transport, intake(event, host.live).because) == (anew, Because.RECONNECTED)
    host.bot("default")
    assert intake(event, host.live).because is Because.BOT_TWICE
    assert delivery(event, host.live).transport is None


def test_a_connection_that_nobody_keeps_is_gone(host: Host) -> None:
    event = host.event(host.bot("default"))
    host.live = []
    assert event.identity.transport is not None
    assert event.identity.transport() is None
    assert delivery(event, host.live).because is Because.BOT_DOWN


def test_r88_a_process_with_one_profile_restores_nothing_and_answers_by_what_the_row_names(host: Host) -> None:
    bot, event = staged(host, "its own bot, no route")
    route = host.bound(event)
    assert restore(route, {"work": host.home("work")}, multiplexed=False) is None
    assert delivery(route, [bot]).transport is bot


def test_a_row_of_a_home_or_a_bot_that_is_not_served_restores_as_unserved(host: Host) -> None:
    _bot, event = staged(host, "a shared bot, routed")
    route = host.bound(event)
    host.unserved = {"work"}
    found = restore(route, host.served, multiplexed=True)
    assert isinstance(found, Unserved)
    assert found.reason == "the conversation runs in 'work', which this process does not serve"
    host.unserved = {"default"}
    found = restore(route, host.served, multiplexed=True)
    assert isinstance(found, Unserved)
    assert found.reason == "the conversation is answered by 'default', which this process does not serve"
    host.unserved = set()
    remade = host.served | {"work": host.home("side")}
    found = restore(route, remade, multiplexed=True)
    assert isinstance(found, Unserved)
    assert found.reason == "the conversation runs in 'work', whose home is another one now"


def test_a_live_message_fills_in_the_bot_of_an_old_row_and_nothing_else_does(host: Host) -> None:
    bot, event = staged(host, "a shared bot, routed")
    store, home = host.stores["work"], host.home("work")
    session = store.sessions.create(source="telegram").id
    route = store.routing.take_in(
        {
            "session_key": "agent:work:telegram:group:-100:7", "session_id": session,
            "origin": {"platform": "telegram", "chat_type": "group", "chat_id": "-100", "user_id": "7"},
        },
        home,
    )
    route = store.routing.resume_later(route, home, reason="restart")
    route = store.routing.choose_model(route, home, {"model": "small"})
    assert route.transport_profile is None
    route = store.routing.go_on(route, event)
    assert route.transport_profile == bot.profile


# --- whatever is up -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["default", "work", "side", None])
@pytest.mark.parametrize("runtime", ["default", "work"])
def test_every_set_of_bots_gives_the_named_one_or_the_only_owner_or_nobody(
    host: Host, stored: str | None, runtime: str
) -> None:
    """All sets of up to two bots of each profile on two platforms: 729."""
    route = host.bound(host.event(host.bot(runtime)))
    route = Route(**{name: getattr(route, name) for name in route.__dataclass_fields__} | {"transport_profile": stored})
    host.live = []
    kinds = list(itertools.product(("default", "work", "side"), ("telegram", "discord")))
    bots = {kind: [Transport(platform=kind[1], profile=kind[0], home=host.home(kind[0])) for _ in (1, 2)]
            for kind in kinds}
    for counts in itertools.product((0, 1, 2), repeat=len(kinds)):
        live = [bot for kind, many in zip(kinds, counts, strict=True) for bot in bots[kind][:many]]
        right = [bot for bot in live if bot.platform == "telegram" and bot.profile == (stored or runtime)]
        assert delivery(route, live).transport is (right[0] if len(right) == 1 else None)


@given(data=st.data())
def test_nobody_answers_or_takes_in_who_is_not_the_bot_that_received_it_or_the_only_owner(data: st.DataObject) -> None:
    """Any events, bots and connections: what is chosen is up, of the platform, and of the profile it must be of."""
    homes = {
        profile: Home(path=Path("/h") if profile == "default" else Path("/h/profiles") / profile, store_id=profile)
        for profile in ("default", "work", "side")
    }
    names, platforms = st.sampled_from(sorted(homes)), st.sampled_from(["telegram", "discord"])
    live = [
        Transport(platform=data.draw(platforms), profile=profile, home=homes[profile])
        for profile in data.draw(st.lists(names, max_size=6))
    ]
    gone = Transport(platform="telegram", profile=data.draw(names), home=homes["default"])
    receiver = data.draw(st.sampled_from([*live, gone, None]))
    transport, runtime = receiver.profile if receiver else data.draw(names), data.draw(names)
    event = Inbound(
        source=Source(platform=receiver.platform if receiver else data.draw(platforms), chat_type="dm", chat_id="1"),
        identity=RoutingIdentity(
            transport_profile=transport, runtime_profile=runtime, authorization_home=homes[transport],
            runtime_home=homes[runtime], multiplexed=True,
            transport=None if receiver is None else weakref.ref(receiver),
        ),
    )
    answers, takes = delivery(event, live).transport, intake(event, live).transport
    if answers is not None:
        assert any(answers is one for one in live)
        assert (answers.platform, answers.profile) == (event.source.platform, transport)
    assert takes in (None, answers)
    if receiver is None:
        assert takes is None
    if receiver in live:
        assert takes is answers is receiver
