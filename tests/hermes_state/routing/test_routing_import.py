"""`hermes routing import`: the index that hermes-agent 0.19.0 wrote, and what cannot be placed of one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hermes_state.errors import InvalidInput
from hermes_state.routing import Inbound, RoutingIdentity, Source
from hermes_state.store import open_store
from tests.maintenance.backups.making import tidy
from tests.support.cli import RunCli
from tests.support.hermes_index import FILE
from tests.support.peers import DIRECTORY_VARIABLE

pytestmark = pytest.mark.slow
WRITTEN: dict[str, Any] = json.loads(FILE.read_text())


def make(db: Path, index: dict[str, Any], *, without: str = "") -> Path:
    """A store with the sessions of an index, and the index where a home has it."""
    with open_store(path=db) as store:
        for key, entry in index.items():
            if not key.startswith("_") and key != without:
                store.sessions.create(id=entry["session_id"], source=entry["platform"])
    file = db.parent / "sessions" / "sessions.json"
    file.parent.mkdir()
    file.write_text(json.dumps(index))
    return db


@pytest.fixture(name="home")
def root(tmp_path: Path) -> Path:
    return tmp_path / "hermes"


def test_what_hermes_agent_wrote_goes_on_where_it_was(home: Path, run_cli: RunCli) -> None:
    db = make(home / "state.db", WRITTEN)
    before = db.read_bytes()
    asked = run_cli("routing", "import", "--dry-run", "--db", db, "--json")
    assert asked.exit_code == 3 and db.read_bytes() == before
    ran = run_cli("routing", "import", "--db", db, "--json")
    assert ran.json == asked.json | {"dry_run": False} and ran.exit_code == 3
    assert ran.json["problems"] == [{
        "entry": "agent:work:telegram:dm:6",
        "why": "The conversation runs in profile 'work', and this is the home of 'default'.",
    }]
    assert ran.json["unknown"] == [] and ran.json["present"] == []
    with open_store(path=db) as store:
        found = {one.session_key: one for one in store.routing.page()}
        keys = [key for key in WRITTEN if key.startswith("agent:main:")]
        assert sorted(found) == sorted(keys) and len(keys) == 10
        assert {key: one.session_id for key, one in found.items()} == {key: WRITTEN[key]["session_id"] for key in keys}
        assert {one.transport_profile for one in found.values()} == {None}
        assert {one.key.chat_id: str(one.state) for one in found.values() if one.state != "active"} == {
            "2": "suspended", "3": "resuming", "4": "expired",
        }
        assert found["agent:main:telegram:group:-100:5"].model_override == {"model": "m", "provider": "p"}
        person = found["agent:main:whatsapp:dm:60123456789"]
        assert (person.key.chat_id, person.origin.chat_id) == ("60123456789", "60123456789@s.whatsapp.net")
        home_of = store.routing.home
        identity = RoutingIdentity(
            transport_profile="default", runtime_profile="default", authorization_home=home_of, runtime_home=home_of,
            multiplexed=False,
        )
        source = Source(platform="matrix", chat_type="group", chat_id="!room:server", user_id="@ann:server")
        route = store.routing.find(Inbound(source=source, identity=identity))
        assert route is not None and route.session_id == WRITTEN[route.session_key]["session_id"]
    assert b"sk-secret" not in tidy(db).read_bytes()
    again = run_cli("routing", "import", "--db", db, "--json").json
    assert again["routes"] == [] and sorted(again["present"]) == sorted(keys)


def test_a_gateway_of_one_profile_names_none_in_its_keys_and_they_get_its_name(home: Path, run_cli: RunCli) -> None:
    alone = {key: entry for key, entry in WRITTEN.items() if key.startswith("agent:main:telegram:dm:1")}
    db = make(home / "profiles" / "work" / "state.db", alone | {
        "agent:work:telegram:dm:6": WRITTEN["agent:work:telegram:dm:6"]
    })
    ran = run_cli("routing", "import", "--db", db)
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout == (
        f"agent:work:telegram:dm:1  active  goes on in {alone['agent:main:telegram:dm:1']['session_id']}\n"
        f"agent:work:telegram:dm:6  active  goes on in {WRITTEN['agent:work:telegram:dm:6']['session_id']}\n"
        "2 chats brought in.\n"
    )
    with open_store(path=db) as store:
        assert [one.runtime_profile for one in store.routing.page()] == ["work", "work"]


def test_what_cannot_be_placed_is_refused_by_itself_and_unknown_fields_are_named(home: Path, run_cli: RunCli) -> None:
    one = WRITTEN["agent:main:telegram:dm:1"]
    index = {
        "agent:main:telegram:dm:1": one | {"shiny": 1, "origin": one["origin"] | {"topic_icon": "x"}},
        "agent:main:telegram:dm:2": WRITTEN["agent:main:telegram:dm:2"],
        "moved": WRITTEN["agent:main:telegram:dm:3"], "agent:main:telegram:dm:9": True,
        "agent:main:telegram:dm:4": WRITTEN["agent:main:telegram:dm:4"] | {"origin": one["origin"]},
        "agent:main:telegram:dm:5": {
            key: value for key, value in WRITTEN["agent:main:telegram:dm:5"].items() if key != "origin"
        },
    }
    made = {key: entry for key, entry in index.items() if isinstance(entry, dict)}
    db = make(home / "state.db", made, without="agent:main:telegram:dm:2")
    (home / "sessions" / "sessions.json").write_text(json.dumps(index))
    ran = run_cli("routing", "import", "--db", db)
    assert ran.exit_code == 3
    assert ran.stdout == f"agent:main:telegram:dm:1  active  goes on in {one['session_id']}\n1 chat brought in.\n"
    assert ran.stderr.splitlines() == [
        "agent:main:telegram:dm:1: not known and not kept: shiny, origin.topic_icon",
        f"agent:main:telegram:dm:2: There is no session {index['agent:main:telegram:dm:2']['session_id']!r} in {db}.",
        "moved: The index has it under 'moved', and it says 'agent:main:telegram:dm:3'.",
        "agent:main:telegram:dm:9: An entry of hermes-agent's index is an object with an origin.",
        "agent:main:telegram:dm:4: The key 'agent:main:telegram:dm:4' of hermes-agent's index is not that of its origin"
        " in profile 'default'.",
        "agent:main:telegram:dm:5: An entry of hermes-agent's index is an object with an origin.",
    ]


def test_a_file_that_is_no_index_and_a_home_that_was_removed_are_refused(home: Path, run_cli: RunCli) -> None:
    db = make(home / "state.db", {"agent:main:telegram:dm:1": WRITTEN["agent:main:telegram:dm:1"]})
    other = home / "other.json"
    missing = run_cli("routing", "import", "--db", db, "--from", other)
    assert (missing.exit_code, missing.stderr.splitlines()[0]) == (1, f"Error: There is no file {other}.")
    for text, said in (("{", f"{other} is no JSON: "), ("[]", f"{other} is no index of sessions: it holds list")):
        other.write_text(text)
        ran = run_cli("routing", "import", "--db", db, "--from", other)
        assert ran.exit_code == 2 and said in ran.stderr
    with open_store(path=db) as store:
        store.routing.remove_home(store.routing.home, actor="test", reason="sold")
    for more in ((), ("--dry-run",)):
        ran = run_cli("routing", "import", "--db", db, *more)
        assert ran.exit_code == 1 and "came too late: it was marked as removed" in ran.stderr


def test_a_profile_called_main_is_refused_with_what_to_do(home: Path) -> None:
    with open_store(path=home / "profiles" / "main" / "state.db") as store, pytest.raises(InvalidInput) as refused:
        store.routing.take_in(WRITTEN["agent:main:telegram:dm:1"], store.routing.home)
    assert refused.value.message == (
        "profile is 'main', which cannot be a profile here: its session keys would be those of another one."
    )
    assert "`hermes profile rename`" in refused.value.hint


PEER = """
from gateway.config import Platform
from gateway.session import SessionSource, SessionStore, build_session_key
from hermes_cli.profiles import validate_profile_name
source = SessionSource(platform=Platform("telegram"), chat_type="dm", chat_id="1")
print(validate_profile_name("main"), *(build_session_key(source, profile=one) for one in ("default", "main")),
      SessionStore._profile_from_session_key("agent:main:telegram:dm:1"))
"""


@pytest.mark.campaign
def test_hermes_agent_itself_takes_a_profile_called_main_for_the_default_one(tmp_path: Path) -> None:
    """Needs HERMES_PEERS: 0.19.0 lets a profile be called so, and gives both the same keys. So it is refused here."""
    python = Path(os.environ[DIRECTORY_VARIABLE]) / "0.19.0" / "bin" / "python"
    done = subprocess.run(
        [python, "-c", PEER], capture_output=True, text=True, check=True,
        env={"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )
    assert done.stdout == "None agent:main:telegram:dm:1 agent:main:telegram:dm:1 default\n"
