"""Session keys: byte for byte those of hermes-agent, made of an identity, and never one for two chats."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state.errors import InvalidInput, KeyCollision
from hermes_state.routing import Home, Inbound, KeyRules, ProfileRoute, RoutingIdentity, Source, key_of, namespace
from hermes_state.store import Store
from tests.hermes_state.routing.conftest import Host, source
from tests.support.peers import DIRECTORY_VARIABLE

HOME = Home(path=Path("/h"), store_id="1")


def inbound(given: Source, profile: str = "default") -> Inbound:
    identity = RoutingIdentity(
        transport_profile="default", runtime_profile=profile, authorization_home=HOME, runtime_home=HOME,
        multiplexed=True,
    )
    return Inbound(source=given, identity=identity)


# source, group sessions per user, thread sessions per user, profile, key
CASES: list[tuple[dict[str, str], bool, bool, str, str]] = [
    ({"chat_type": "dm", "chat_id": "42", "user_id": "42"}, True, False, "default", "agent:main:telegram:dm:42"),
    ({"chat_type": "dm", "chat_id": "42", "thread_id": "9"}, True, False, "default", "agent:main:telegram:dm:42:9"),
    ({"chat_type": "dm", "chat_id": "", "user_id": "7"}, True, False, "default", "agent:main:telegram:dm:7"),
    ({"chat_type": "dm", "chat_id": "", "user_id": "", "thread_id": "9"}, True, False, "default",
     "agent:main:telegram:dm:9"),
    ({"chat_type": "dm", "chat_id": "", "user_id": ""}, True, False, "default", "agent:main:telegram:dm"),
    ({}, True, False, "default", "agent:main:telegram:group:-100:7"),
    ({}, False, False, "default", "agent:main:telegram:group:-100"),
    ({"thread_id": "5"}, True, False, "default", "agent:main:telegram:group:-100:5"),
    ({"thread_id": "5"}, True, True, "default", "agent:main:telegram:group:-100:5:7"),
    ({"thread_id": "5"}, False, True, "default", "agent:main:telegram:group:-100:5"),
    ({"chat_type": "channel", "user_id": ""}, True, False, "work", "agent:work:telegram:channel:-100"),
    ({"chat_id": "!room:server", "platform": "matrix"}, True, False, "work", "agent:work:matrix:group:!room:server:7"),
]


@pytest.mark.parametrize(("of", "per_user", "in_threads", "profile", "expected"), CASES)
def test_a_key_has_its_parts_in_hermes_agents_order(
    of: dict[str, str], per_user: bool, in_threads: bool, profile: str, expected: str
) -> None:
    rules = KeyRules(group_sessions_per_user=per_user, thread_sessions_per_user=in_threads)
    assert key_of(inbound(source(**of), profile), rules).text == expected


PEER = """
import json, sys
from gateway.config import Platform
from gateway.session import SessionSource, build_session_key
for line in sys.stdin:
    given, per_user, in_threads, profile = json.loads(line)
    given["platform"] = Platform(given["platform"])
    given = {name: value or None for name, value in given.items()}
    print(json.dumps(build_session_key(SessionSource(**given), per_user, in_threads, profile)))
"""


@pytest.mark.campaign
def test_the_keys_are_those_that_hermes_agent_makes(tmp_path: Path) -> None:
    """Needs HERMES_PEERS (see `tests/support/peers.py`): 0.19.0 itself is asked for every combination."""
    python = Path(os.environ[DIRECTORY_VARIABLE]) / "0.19.0" / "bin" / "python"
    asked = [
        ({"platform": platform, "chat_type": kind, "chat_id": chat, "thread_id": thread, "user_id": user},
         per_user, in_threads, profile)
        for platform in ("telegram", "discord", "matrix") for kind in ("dm", "group", "channel", "thread")
        for chat in ("", "42", "!room:server") for thread in ("", "5") for user in ("", "7")
        for per_user in (True, False) for in_threads in (True, False) for profile in ("default", "work")
    ]
    done = subprocess.run(
        [python, "-c", PEER], input="\n".join(map(json.dumps, asked)), capture_output=True, text=True, check=True,
        env={"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    ours = [
        key_of(
            inbound(Source(**given), profile),
            KeyRules(group_sessions_per_user=per_user, thread_sessions_per_user=in_threads),
        ).text
        for given, per_user, in_threads, profile in asked
    ]
    assert len(ours) == 1152
    assert ours == theirs


def test_the_namespace_is_where_it_runs_and_not_who_received_it(host: Host) -> None:
    host.routes = [ProfileRoute(profile="work", platform="telegram")]
    event = host.event(host.bot("default"))
    assert event.identity.transport_profile == "default"
    assert key_of(event).text == "agent:work:telegram:group:-100:7"
    assert [namespace(one) for one in ("default", "work")] == ["agent:main", "agent:work"]


def test_two_chats_whose_keys_read_the_same_are_not_one_conversation(host: Host, store: Store) -> None:
    bot = host.bot("default", "matrix")
    first = host.bound(host.event(bot, platform="matrix", chat_id="a:b", user_id=""))
    other = host.event(bot, platform="matrix", chat_id="a", thread_id="b")
    for act in (lambda: host.bound(other), lambda: store.routing.find(other)):
        with pytest.raises(KeyCollision) as caught:
            act()
        assert caught.value.message == (
            f"Two chats would have the session key 'agent:main:matrix:group:a:b' in {store.path}: profile 'default',"
            " platform 'matrix', chat_type 'group', chat_id 'a:b', and now profile 'default', platform 'matrix',"
            " chat_type 'group', chat_id 'a', thread_id 'b'."
        )
    assert store.routing.page() == [first]


@given(
    chat=st.text(max_size=8), thread=st.text(max_size=8), user=st.text(max_size=8),
    profiles=st.lists(st.sampled_from(["default", "work", "side"]), min_size=2, max_size=2, unique=True),
)
def test_two_profiles_never_share_a_key(chat: str, thread: str, user: str, profiles: list[str]) -> None:
    try:
        given_source = source(chat_id=chat, thread_id=thread, user_id=user)
    except InvalidInput:
        return  # no text that can be stored
    first, second = (key_of(inbound(given_source, profile)).text for profile in profiles)
    assert first != second
