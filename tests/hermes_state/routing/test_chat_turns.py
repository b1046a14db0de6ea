"""One message of a chat at a time, in the session that the chat has then: nothing is lost, nothing goes elsewhere.

Two first messages at once, a reset while a message waits, a compaction, a deletion, a restart in the middle of a turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from hermes_state.clock import FakeClock, SystemClock
from hermes_state.conversation.chats import for_chat, tip_id
from hermes_state.conversation.messages import Messages
from hermes_state.errors import HomeRemoved, LeaseHeld, LeaseLost, RouteNotFound, WrongHome
from hermes_state.leases import Leases
from hermes_state.owners import Presence
from hermes_state.routing import ChatTurn, Home, Inbound, KeyRules, ProfileRoute, Route, State, key_of
from hermes_state.routing.chats import Making, begin_chat, lease_name
from hermes_state.store import Store, open_store
from tests.hermes_state.routing.conftest import Host

SECONDS = 60


@pytest.fixture(name="event")
def message(host: Host) -> Inbound:
    return host.event(host.bot("default"))


def said(store: Store, session: str) -> list[object]:
    return [one["content"] for one in store.messages.context(session)]


def say(store: Store, of: Inbound | Route, text: str) -> Route:
    with store.chat_turn(of, wait_seconds=0) as turn:
        turn.messages.append(turn.session_id, role="user", content=text)
        return turn.route


def other_process(store: Store, of: Inbound, *, leases: Leases | None = None, wait: float = 0) -> ChatTurn[Messages]:
    mine = leases or Leases(store.core, presence=Presence(store.path.parent, clock=store.core.clock))
    making = Making(make=lambda tx, key, at: for_chat(tx, key, source=None, at=at), tip=tip_id)
    return begin_chat(lambda: store.core, mine, of, Messages, making=making, wait_seconds=wait)


def test_a_first_message_makes_the_session_and_the_entry_of_its_chat_at_once(
    host: Host, store: Store, event: Inbound
) -> None:
    route = say(store, event, "hi")
    assert store.routing.find(event) == route
    session = store.sessions.get(route.session_id)
    assert (session.source, session.session_key, session.chat_id, session.user_id) == (
        "telegram", route.session_key, "-100", "7"
    )
    assert (route.transport_profile, route.generation, route.version) == ("default", 1, 1)
    assert say(store, event, "again") == route  # nothing of the entry is written for a message
    assert say(store, host.event(host.live[0], chat_id="9"), "x").session_id != route.session_id
    with store.chat_turn(host.event(host.live[0], chat_id="10"), source="web") as turn:
        assert store.sessions.get(turn.session_id).source == "web"


def test_of_two_first_messages_at_once_none_is_lost(host: Host) -> None:
    """On the machine's own clock: they really wait for each other."""
    home = host.home("default").path
    host.stores["default"].close()
    with open_store(home, clock=SystemClock()) as store:
        host.stores["default"] = store
        bot, chats = host.bot("default"), 5
        begin = threading.Barrier(2 * chats)

        def received(number: int) -> str:
            event = host.event(bot, chat_id=str(number % chats))
            begin.wait(SECONDS)
            with store.chat_turn(event) as turn:
                turn.messages.append(turn.session_id, role="user", content=str(number))
                return turn.session_id

        with ThreadPoolExecutor(2 * chats) as threads:
            sessions = list(threads.map(received, range(2 * chats)))
        for chat in range(chats):
            assert sessions[chat] == sessions[chat + chats]
            assert sorted(said(store, sessions[chat])) == sorted([str(chat), str(chat + chats)])  # type: ignore[type-var]
        assert store.sessions.count() == chats


def test_a_second_message_waits_for_the_first_and_is_refused_with_the_holder_named(
    store: Store, event: Inbound
) -> None:
    with store.chat_turn(event) as turn:
        with pytest.raises(LeaseHeld) as caught:
            other_process(store, event)
        assert caught.value.name == lease_name(store.core, key_of(event))  # type: ignore[attr-defined]
        assert "-100" not in caught.value.message  # no id of a chat or a person
        with pytest.raises(LeaseHeld):  # the command line, in the same conversation
            store.turn(turn.session_id, wait_seconds=0)
    other_process(store, event).end()


class WhileWaiting(Leases):
    """The leases of somebody in whose first wait for a turn something happens."""

    def __init__(self, store: Store, happens: Callable[[], object]) -> None:
        super().__init__(store.core)
        self._happens: list[Callable[[], object]] = [happens]

    def acquire(self, name: str, **options: object) -> object:  # type: ignore[override]
        if name.startswith("turn:") and self._happens:
            self._happens.pop()()
        return super().acquire(name, **options)  # type: ignore[arg-type]


def test_a_message_that_waits_while_the_chat_is_reset_goes_into_the_new_session(
    host: Host, store: Store, home: Home, event: Inbound
) -> None:
    route = say(store, event, "first")
    new = store.sessions.create(source="telegram").id

    def reset() -> None:
        store.routing.reset(route, home, new, reason="/new")

    with other_process(store, event, leases=WhileWaiting(store, reset)) as turn:
        turn.messages.append(turn.session_id, role="user", content="second")
        assert (turn.session_id, turn.route.generation) == (new, 2)
        store.turn(route.session_id, wait_seconds=0).end()  # the old conversation's was given back
    assert (said(store, route.session_id), said(store, new)) == (["first"], ["second"])


def test_the_new_session_of_a_reset_waits_for_the_turn_of_the_old_one(
    store: Store, home: Home, event: Inbound
) -> None:
    """The turn is the chat's, whatever session it was begun in."""
    with store.chat_turn(event) as turn:
        store.routing.reset(turn.route, home, store.sessions.create(source="telegram").id, reason="/new")
        with pytest.raises(LeaseHeld):
            other_process(store, event)
        turn.messages.append(turn.session_id, role="assistant", content="the old answer")
    with other_process(store, event) as after:
        assert (after.route.reset_reason, after.route.fresh) == ("/new", True)
    again = store.routing.find(event)
    assert again is not None and not again.fresh


def test_a_compaction_is_followed_before_a_turn_and_at_its_end(store: Store, event: Inbound) -> None:
    first = say(store, event, "one")
    second = store.sessions.continue_as(first.session_id).id
    with store.chat_turn(event) as turn:
        assert (turn.session_id, turn.route.generation) == (second, 1)
        third = store.sessions.continue_as(second).id
        turn.messages.append(third, role="assistant", content="two")
    now = store.routing.find(event)
    assert now is not None and (now.session_id, now.generation) == (third, 1)
    assert say(store, event, "three").session_id == third


@pytest.mark.parametrize("what", ["its session", "what continued its session"])
def test_a_chat_whose_session_was_deleted_goes_on_in_a_new_one(store: Store, event: Inbound, what: str) -> None:
    route = say(store, event, "one")
    gone = route.session_id if what == "its session" else store.sessions.continue_as(route.session_id).id
    store.sessions.delete([gone], actor="test", reason="test")
    anew = say(store, event, "two")
    assert (anew.generation, anew.reset_reason) == (2, f"{what} was deleted")
    assert said(store, anew.session_id) == ["two"]


@pytest.mark.parametrize("state", [State.SUSPENDED, State.EXPIRED])
def test_what_is_not_to_go_on_is_reset_and_answered_by_who_received_the_message(
    host: Host, store: Store, home: Home, event: Inbound, state: State
) -> None:
    route = say(store, event, "one")
    mark = store.routing.suspend if state is State.SUSPENDED else store.routing.expire
    mark(route, home, reason="stuck")
    anew = say(store, host.event(host.bot("work", runs_as="default")), "two")
    assert (anew.generation, anew.reset_reason, anew.transport_profile) == (2, "stuck", "work")
    now = store.routing.find(event)
    assert now is not None and (now.state, now.fresh, now.transport_profile) == (State.ACTIVE, False, "work")


def test_a_mark_to_resume_is_there_until_a_turn_ended_well(store: Store, home: Home, event: Inbound) -> None:
    """A process that is killed while it takes the turn up leaves it to be taken up again."""
    marked = store.routing.resume_later(say(store, event, "one"), home, reason="restart")
    with pytest.raises(RuntimeError), store.chat_turn(event) as turn:
        assert turn.resumes
        raise RuntimeError("the model is gone")
    assert store.routing.find(event) == marked
    with store.chat_turn(marked) as turn:  # by its row: nobody wrote
        assert turn.resumes
    now = store.routing.find(event)
    assert now is not None and (now.state, now.state_reason, now.transport_profile) == (State.ACTIVE, "", "default")
    with store.chat_turn(event) as turn:
        assert not turn.resumes


def test_the_end_of_a_turn_leaves_a_chat_alone_that_went_another_way(store: Store, home: Home, event: Inbound) -> None:
    with store.chat_turn(event) as turn:
        suspended = store.routing.suspend(turn.route, home, reason="stuck")
        assert turn.ended_well() is None
    assert store.routing.find(event) == suspended
    with store.chat_turn(event) as turn:
        store.routing.forget(turn.route, home, actor="test", reason="test")
    assert store.routing.find(event) is None
    with pytest.raises(RouteNotFound):
        store.chat_turn(turn.route)


def test_a_turn_that_was_lost_does_not_end_well_and_gives_its_chat_back(
    store: Store, home: Home, event: Inbound, fake_clock: FakeClock
) -> None:
    marked = store.routing.resume_later(say(store, event, "one"), home, reason="restart")
    with pytest.raises(LeaseLost), store.chat_turn(event, term_seconds=60):
        fake_clock.advance(61)
        other_process(store, event).end()
    assert store.routing.find(event) == marked
    other_process(store, event).end()


def test_a_turn_of_another_home_or_a_removed_one_is_refused_and_holds_nothing(
    host: Host, store: Store, home: Home, event: Inbound
) -> None:
    host.routes = [ProfileRoute(profile="work", platform="telegram", chat_id="5")]
    with pytest.raises(WrongHome):
        store.chat_turn(host.event(host.live[0], chat_id="5"))
    with pytest.raises(HomeRemoved), store.chat_turn(event):
        store.routing.resume_later(say_nothing(store, event), home, reason="restart")
        store.routing.remove_home(home, actor="test", reason="test")
    with store.core.reader() as reader:
        assert reader.rows("SELECT name FROM leases WHERE owner IS NOT NULL") == []


def say_nothing(store: Store, event: Inbound) -> Route:
    route = store.routing.find(event)
    assert route is not None
    return route


def test_people_of_one_group_share_a_turn_where_the_rules_say_so(host: Host, store: Store, event: Inbound) -> None:
    together = KeyRules(group_sessions_per_user=False)
    with store.chat_turn(event, rules=together) as turn:
        assert turn.route.session_key == "agent:main:telegram:group:-100"
        with pytest.raises(LeaseHeld):
            store.chat_turn(host.event(host.live[0], user_id="8"), rules=together, wait_seconds=0)
        store.chat_turn(host.event(host.live[0], user_id="8"), wait_seconds=0).end()


def test_a_turn_of_a_chat_is_awaited_in_asyncio(store: Store, event: Inbound) -> None:
    async def work() -> str:
        async with await store.aio.chat_turn(event) as turn:
            await turn.messages.append(turn.session_id, role="user", content="x")
            with pytest.raises(LeaseHeld):
                await store.aio.chat_turn(event, wait_seconds=0)
        return str(turn.session_id)

    session = asyncio.run(work())
    assert said(store, session) == ["x"]
    store.chat_turn(event, wait_seconds=0).end()
