"""`hermes routing list`: what people read of chats and of what is not served."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_state.routing import Inbound, RoutingIdentity, Source, State
from hermes_state.store import open_store
from maintenance.commands.routing.list import STATES
from tests.support.cli import RunCli

pytestmark = pytest.mark.slow


@pytest.fixture(name="db")
def db_with_chats(tmp_path: Path, fake_clock: object) -> Path:
    path = tmp_path / "state.db"
    with open_store(path=path) as store:
        home = store.routing.home
        identity = RoutingIdentity(
            transport_profile="work", runtime_profile="default", authorization_home=home, runtime_home=home,
            multiplexed=True,
        )
        for chat in ("1", "2\x1b[31m"):
            source = Source(platform="telegram", chat_type="dm", chat_id=chat)
            session = store.sessions.create(id=f"session {chat[0]}", source="telegram").id
            route = store.routing.bind(Inbound(source=source, identity=identity), session)
        store.routing.suspend(route, home, reason="stuck")
        session = store.sessions.create(id="session 3", source="telegram").id
        store.routing.take_in(
            {
                "session_key": "agent:main:telegram:dm:3", "session_id": session,
                "origin": {"platform": "telegram", "chat_type": "dm", "chat_id": "3"},
            },
            home,
        )
        store.routing.refuse("whatsapp", "side", home, reason="the bridge serves the default profile only")
    return path


def test_the_list_says_where_a_chat_goes_on_and_who_answers_it(db: Path, run_cli: RunCli) -> None:
    ran = run_cli("routing", "list", "--db", db)
    assert (ran.exit_code, ran.stderr) == (0, "")
    first, second, third, unserved = ran.stdout.splitlines()
    assert first == "agent:main:telegram:dm:1  active  session 1  generation 1  answered by the bot of work"
    assert "\x1b" not in second
    assert second.endswith("suspended (stuck, 0.0 s ago)  session 2  generation 1  answered by the bot of work")
    assert third == "agent:main:telegram:dm:3  active  session 3  generation 1  answered by the only bot of its profile"
    assert unserved == (
        "NOT SERVED: Profile 'side' is not served on whatsapp: the bridge serves the default profile only. What it is"
        " sent is dropped until a process serves it. (0 dropped)"
    )


def test_pages_filters_and_documents(db: Path, run_cli: RunCli) -> None:
    page = run_cli("routing", "list", "--db", db, "--limit", "1")
    assert page.stderr == "There may be more: --after 'agent:main:telegram:dm:1' goes on.\n"
    found = run_cli("routing", "list", "--db", db, "--state", "suspended", "--json").json
    assert [one["session_id"] for one in found["routes"]] == ["session 2"]
    assert (found["routes"][0]["state_reason"], found["next_after"]) == ("stuck", None)
    assert [one["profile"] for one in found["attention"]] == ["side"]
    only = run_cli("routing", "list", "--db", db, "--session", "session 3", "--json").json
    assert [one["transport_profile"] for one in only["routes"]] == [None]
    none = run_cli("routing", "list", "--db", db, "--platform", "discord")
    assert none.stdout.startswith(f"There is no such chat in {db}.\n")


def test_the_states_of_the_help_are_those_of_the_table() -> None:
    assert list(State) == list(STATES)
