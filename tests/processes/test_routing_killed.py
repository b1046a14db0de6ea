"""kill -9 at any statement of a change of routing: it is whole or not there, and no generation falls.

A process that changes one chat's entry, takes its turns, and changes what is not served and pairing, dies before a
statement that chance picks; the next one goes on. 5 rounds in the default suite, HERMES_STATE_ROUNDS in the campaign.
Beside it: two processes that bind, reset and mark one chat at once, by compare-and-set.
"""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from hermes_state.routing import Inbound, Source, State, Transport, Unserved, resolve
from hermes_state.store import Store, open_store
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "7000"))
ROUNDS = int(os.environ.get("HERMES_STATE_ROUNDS", "200"))
KEY = "agent:main:telegram:group:-100"

# What both programs begin with: an event of the one chat, and acts on its entry.
COMMON = """
import json, os, random, signal, sys
from hermes_state.engine.transaction import Transaction
from hermes_state.errors import PairingRefused, RouteMoved, RouteNotFound, RouteStopped
from hermes_state.routing import Inbound, Source, Transport, resolve
from hermes_state.store import open_store

def event(store):
    home = store.routing.home
    bot = Transport(platform="telegram", profile="default", home=home)
    source = Source(platform="telegram", chat_type="group", chat_id="-100")
    identity = resolve(source, receiver=bot, live=[bot], served={"default": home}, multiplexed=False)
    return bot, Inbound(source=source, identity=identity)

def act(store, given, chance):
    route = store.routing.find(given)
    return route, changed(store, given, chance, route)

def changed(store, given, chance, route):
    routing, home = store.routing, store.routing.home
    if route is None:
        return routing.bind(given, store.sessions.create(source="telegram").id)
    what = chance.choice(["go on", "later", "suspend", "expire", "reset", "reset", "model", "forget"])
    try:
        if what == "go on":
            return routing.go_on(route, given)
        if what in ("later", "suspend", "expire"):
            mark = {"later": routing.resume_later, "suspend": routing.suspend, "expire": routing.expire}[what]
            return mark(route, home, reason=what)
        if what == "reset":
            return routing.reset(route, home, store.sessions.create(source="telegram").id, reason="new")
        if what == "model":
            return routing.choose_model(route, home, {"model": f"m{chance.random()}"})
        routing.forget(route, home, actor="test", reason="test")
        return None
    except RouteStopped:
        return route
"""

DYING = COMMON + """
home, seed, dies_at, log = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
count = 0

def counting(name):
    plain = getattr(Transaction, name)
    def call(self, *given, **named):
        global count
        count += 1
        if count == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, *given, **named)
    setattr(Transaction, name, call)

def tell(*said):
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(out, (json.dumps(said) + "\\n").encode())
    os.close(out)

with open_store(home) as store:
    bot, given = event(store)
    for name in ("execute", "rows", "row"):
        counting(name)
    chance = random.Random(seed)
    for number in range(40):
        _before, route = act(store, given, chance)
        tell("route", None if route is None else [route.version, route.generation, route.session_id])
        with store.chat_turn(given) as turn:
            turn.messages.append(turn.session_id, role="user", content=f"{seed}.{number}")
            tell("said", turn.session_id, f"{seed}.{number}")
        now = store.routing.find(given)
        tell("route", [now.version, now.generation, now.session_id])
        noted = store.routing.refuse("whatsapp", "work", store.routing.home, reason="test")
        if noted.warning is not None:
            tell("warned")
        if chance.random() < 0.3:
            store.routing.connected("whatsapp", "work", store.routing.home)
            tell("connected")
        try:
            code = store.routing.pairing.request("telegram", f"{seed}.{number}", store.routing.home)
            store.routing.pairing.approve("telegram", code, store.routing.home, by="test")
            tell("paired", f"{seed}.{number}")
        except PairingRefused:
            pass
"""


BOTS: list[Transport] = []


def event_of(store: Store) -> Inbound:
    """A message of the one chat, taken in here."""
    BOTS[:] = [Transport(platform="telegram", profile="default", home=store.routing.home)]
    source = Source(platform="telegram", chat_type="group", chat_id="-100")
    identity = resolve(
        source, receiver=BOTS[0], live=BOTS, served={"default": store.routing.home}, multiplexed=False
    )
    assert not isinstance(identity, Unserved)
    return Inbound(source=source, identity=identity)


def lines(log: Path) -> list[list[Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def rounds(child: Children, tmp_path: Path, many: int) -> None:
    home, log = tmp_path / "home", tmp_path / "log"
    with open_store(home):
        pass
    chance, highest, killed = random.Random(SEED), 0, 0
    for number in range(many):
        log.unlink(missing_ok=True)
        dying = child(DYING, home, SEED + number, chance.randint(1, 900), log)
        status = dying.wait(120)
        assert status in (0, -signal.SIGKILL), dying.output
        killed += status != 0
        said = lines(log)
        with open_store(home) as store:
            route = store.routing.get(KEY)
            with store.core.reader() as reader:
                assert reader.rows("PRAGMA quick_check") == [("ok",)]
                (floor,) = reader.row("SELECT coalesce(max(generation_floor), 0) FROM routing_home") or (0,)
                versions = reader.rows(
                    "SELECT operation FROM changes WHERE table_name = 'routing_entries' AND key = ? ORDER BY id DESC",
                    (KEY,),
                )
                sessions = {one for (one,) in reader.rows("SELECT id FROM sessions")}
            if route is not None:
                # One entry in the feed for each version since the row was made.
                since = [operation for (operation,) in versions][: route.version]
                assert since == ["update"] * (route.version - 1) + ["insert"]
                assert route.session_id in sessions
                assert (route.state is State.ACTIVE) == (route.state_reason == "")
            for _said, session, content in (one for one in said if one[0] == "said"):
                assert content in [one["content"] for one in store.messages.context(session)]
            with store.chat_turn(event_of(store), wait_seconds=0) as turn:  # a killed one holds no chat
                assert turn.session_id in sessions or route is None or not route.goes_on
            route = store.routing.get(KEY)
            told = [one[1] for one in said if one[0] == "route" and one[1] is not None]
            generations = [generation for _version, generation, _session in told]
            assert generations == sorted(generations)
            now = max(floor, 0 if route is None else route.generation)
            assert now >= max([highest, *generations])
            highest = now
            paired = {one.user_id for one in store.routing.pairing.paired("telegram", limit=100_000)}
            assert paired >= {one[1] for one in said if one[0] == "paired"}
            (attention,) = store.routing.attention(served_too=True) or [None]
            if attention is not None:
                assert attention.warnings >= 1
    print(f"{many} rounds, {killed} killed, generation {highest}")
    assert killed


@pytest.mark.slow
def test_a_change_of_routing_is_whole_or_not_there(child: Children, tmp_path: Path) -> None:
    rounds(child, tmp_path, 5)


@pytest.mark.campaign
def test_it_is_so_at_any_statement(child: Children, tmp_path: Path) -> None:
    rounds(child, tmp_path, ROUNDS)


# Acts on one chat beside another process; says every change that it made.
RIVAL = COMMON + """
import gates
home, seed, many = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open_store(home) as store:
    bot, given = event(store)
    chance, made, moved = random.Random(seed), [], 0
    gates.reach("open")
    gates.wait("begin")
    for _ in range(many):
        try:
            before, after = act(store, given, chance)
        except (RouteMoved, RouteNotFound):
            moved += 1
            continue
        if after is not None and after != before:
            made.append([after.generation, after.version, after.created_at])
    print(json.dumps([made, moved]))
"""


@pytest.mark.slow
def test_two_processes_never_make_the_same_version_of_an_entry(child: Children, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with open_store(home):
        pass
    both = [child(RIVAL, home, SEED + number, 120) for number in range(2)]
    for one in both:
        one.wait_for("open")
    for one in both:
        one.release("begin")
    (made_a, moved_a), (made_b, moved_b) = (json.loads(one.finish(300)) for one in both)
    changes = [tuple(one) for one in [*made_a, *made_b]]
    assert len(set(changes)) == len(changes), "two changes gave one version"
    assert len(changes) > 20
    print(f"{len(changes)} changes, {moved_a + moved_b} told that it moved")
