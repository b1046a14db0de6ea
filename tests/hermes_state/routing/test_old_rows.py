"""What is from before: stores without routing, and entries that do not name their bot. T4.6 under its number."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from hermes_state.errors import InvalidInput, SessionNotFound, WrongHome
from hermes_state.routing import Home, State, Transport, delivery, restore
from hermes_state.store import Store, open_store
from tests.hermes_state.routing.conftest import Host
from tests.support.children import PROJECT

OLD = PROJECT / "tests" / "fixtures" / "native" / "0.5.0-filled.db.gz"


@pytest.fixture(name="old")
def store_from_before(tmp_path: Path) -> Path:
    path = tmp_path / "old" / "state.db"
    path.parent.mkdir()
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    return path


def test_t4_6_a_store_from_before_routing_is_read_as_one_without_and_not_rewritten(old: Path) -> None:
    before = old.read_bytes()
    with open_store(path=old, read_only=True) as store:
        assert store.routing.get("agent:main:telegram:dm:1") is None
        assert store.routing.page() == []
        assert store.routing.attention() == []
        assert store.routing.pairing.pending() == store.routing.pairing.paired() == []
        assert not store.routing.pairing.is_paired("telegram", "7")
    assert old.read_bytes() == before


def test_t4_6_it_is_brought_up_by_an_open_for_writing_and_what_was_in_it_stays(old: Path) -> None:
    with open_store(path=old, read_only=True) as store:
        sessions = store.sessions.list(limit=100)
    with open_store(path=old) as store:
        assert store.sessions.list(limit=100) == sessions
        store.routing.refuse("telegram", "work", store.routing.home, reason="test")
        assert len(store.routing.attention()) == 1


def entry(session: str, **fields: Any) -> dict[str, Any]:
    """An entry of hermes-agent's index; `origin` as 0.19 writes it."""
    return {
        "session_key": "agent:main:telegram:dm:42", "session_id": session, "platform": "telegram", "chat_type": "dm",
        "created_at": "2026-01-01T00:00:00", "input_tokens": 7, "display_name": "Ann",
        "origin": {
            "platform": "telegram", "chat_type": "dm", "chat_id": "42", "chat_name": "Ann", "user_id": "42",
            "user_name": "ann", "thread_id": None, "is_bot": False, "message_id": "9", "profile": None,
        },
    } | fields


def test_t4_6_an_entry_without_its_bot_stays_without_and_the_only_owner_answers(
    host: Host, store: Store, home: Home
) -> None:
    session = store.sessions.create(source="telegram").id
    route = store.routing.take_in(entry(session), home)
    assert (route.transport_profile, route.state, route.generation) == (None, State.ACTIVE, 1)
    assert (route.origin.chat_name, route.origin.message_id) == ("Ann", "")
    assert restore(route, host.served, multiplexed=True) is None
    bot = host.bot("default")
    assert delivery(route, host.live).transport is bot
    assert store.routing.get(route.session_key) == route  # looking changed nothing
    assert store.routing.take_in(entry(session, suspended=True), home) == route  # what is here stays


def test_an_entry_that_names_its_bot_keeps_it(host: Host, store: Store, home: Home) -> None:
    session = store.sessions.create(source="telegram").id
    route = store.routing.take_in(entry(session, transport_profile="work"), home)
    bots = [Transport(platform="telegram", profile=one, home=host.home(one)) for one in ("default", "work")]
    assert delivery(route, bots).transport is bots[1]
    assert delivery(route, bots[:1]).transport is None


@pytest.mark.parametrize(
    ("marks", "state"),
    [
        ({}, State.ACTIVE), ({"resume_pending": True, "resume_reason": "restart_timeout"}, State.RESUMING),
        ({"suspended": True, "resume_pending": True}, State.SUSPENDED),
        ({"expiry_finalized": True, "suspended": True, "resume_pending": True}, State.EXPIRED),
    ],
)
def test_of_several_marks_the_one_that_ends_a_session_counts(
    store: Store, home: Home, marks: dict[str, Any], state: State
) -> None:
    session = store.sessions.create(source="telegram").id
    route = store.routing.take_in(entry(session, **marks), home)
    assert route.state is state
    assert (route.state_reason == "") is (state is State.ACTIVE)


def test_an_entry_of_a_named_profile_runs_in_it(host: Host) -> None:
    store, home = host.stores["work"], host.home("work")
    session = store.sessions.create(source="telegram").id
    given = entry(session, session_key="agent:work:telegram:group:-1:7:3")
    given["origin"] |= {"chat_type": "group", "chat_id": "-1", "thread_id": "7", "user_id": "3", "profile": "work"}
    route = store.routing.take_in(given, home)
    assert (route.runtime_profile, route.key.user_id) == ("work", "3")


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_key": "agent:work:telegram:dm:42"}, {"session_key": "agent:main:telegram:dm:43"},
        {"session_key": ""}, {"origin": None}, {"session_id": ""}, {"transport_profile": "main"},
        {"model_override": "m"},
    ],
)
def test_an_entry_whose_key_is_not_its_own_is_refused(store: Store, home: Home, wrong: dict[str, Any]) -> None:
    session = store.sessions.create(source="telegram").id
    with pytest.raises(InvalidInput):
        store.routing.take_in(entry(session) | wrong, home)
    assert store.routing.page() == []


def test_an_entry_without_its_session_or_for_another_home_is_refused(host: Host, store: Store, home: Home) -> None:
    with pytest.raises(SessionNotFound):
        store.routing.take_in(entry("nowhere"), home)
    with pytest.raises(WrongHome):
        store.routing.take_in(entry("nowhere"), host.home("work"))
