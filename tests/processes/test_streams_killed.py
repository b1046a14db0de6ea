"""kill -9 at every statement of sealing a reply, of logging in and of a lane, right before each COMMIT and right after.

A reply has one seal, one final that counts, and one message of its platform, or a second one that says so where the
first may be there without anybody knowing (R100: the outbox at least once; report 155: nothing is lost between the end
of a turn and the answer of its platform). A login that the server granted is completed, every attempt ends once with
one notice, and no byte of the store has a code or a link. What a lane took in is in one message or waits, in order
(R82).

A few of the places in the default suite, from HERMES_STATE_SEED; all of them in the campaign.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hermes_state.store import open_store
from tests.support.children import Children

SEED = int(os.environ.get("HERMES_STATE_SEED", "9000"))
STRIDE = 37  # the default suite takes every 37th place, beginning with one that the seed picks

COMMON = """
import json, os, sys
from pathlib import Path
import hermes_state.work.logins, hermes_state.work.streams, hermes_state.work.lanes, hermes_state.conversation.messages
from hermes_state.outbox import Accepted
from hermes_state.routing import Inbound, Source, Transport, resolve
from hermes_state.store import open_store
from tests.support.forked_kills import every_statement, step

folder, first, stride = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
home = folder / "home"

def write_line(name, *said):
    out = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(out, (json.dumps(said) + "\\n").encode())
    os.close(out)

def lines(name):
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
"""

SEALING = COMMON + """
def messages(turn_id):
    found, marked = {}, set()
    for act, turn, message_id, text, again in lines("platform"):
        if turn == turn_id:
            found[message_id] = text
            if again:
                marked.add(message_id)
    return found, marked

def post(turn_id, text, again=False):
    message_id = f"m{len(lines('platform'))}"
    step()
    write_line("platform", "post", turn_id, message_id, text, again)
    step()
    return message_id

def handler(sending):
    if sending.edit is None:
        return Accepted(result={"message_id": post(sending.turn_id, sending.text, sending.may_be_shown)})
    step()
    write_line("platform", "edit", sending.turn_id, sending.edit, sending.text, False)
    step()
    return Accepted(result={"message_id": sending.edit})

def run(number):
    turn_id, plain = f"turn {number}", f"plain {number}"
    with open_store(home) as store:
        at_home, streams = store.routing.home, store.work.streams
        streams.begin(turn_id, at_home, transport="slack", target="C1")
        streams.message(turn_id, at_home, post(turn_id, "Hel"))
        streams.finish(turn_id, "Hello.", at_home)
        streams.deliver(handler, ["slack"])
        streams.finish(turn_id, "Hello. (verified)", at_home)
        streams.deliver(handler, ["slack"])
        streams.finish(plain, "Plain.", at_home, transport="slack", target="C1")
        streams.deliver(handler, ["slack"])
        write_line("ended", number)

def check(number):
    turn_id, plain = f"turn {number}", f"plain {number}"
    with open_store(home) as store:
        at_home, streams = store.routing.home, store.work.streams
        was = {one.turn_id: (one.sealed_digest, one.sealed_at) for one in streams.page(limit=1000)}
        for one in streams.page(limit=1000):
            if one.finals == 0:
                streams.finish(one.turn_id, "Interrupted.", at_home)  # as a gateway does at its start
        for _ in range(10):
            if not streams.deliver(handler, ["slack"], limit=10):
                break
        assert streams.page() == [], streams.page()
        for name in (turn_id, plain):
            reply = streams.get(name)
            shown, marked = messages(name)
            if reply is None:
                assert not shown, (name, shown)  # nothing of it was begun
                continue
            assert str(reply.state) == "sealed", reply
            assert reply.message_id in shown
            assert was.get(name, (None, None))[0] in (None, reply.sealed_digest), "sealed twice"
            assert was.get(name, (None, None))[1] in (None, reply.sealed_at), "sealed twice"
            if name == turn_id:
                wanted = {1: ("Hello.", "Interrupted."), 2: ("Hello. (verified)",)}[reply.finals]
            else:
                wanted = ("Plain.",)
            assert shown[reply.message_id] in wanted, (name, shown, reply)
            # One message; or two, when the first came to be without anybody knowing, and then the second says so.
            assert len(shown) - len(marked) <= 1, (name, shown, marked)
            assert len(shown) <= 2, (name, shown)
            if len(shown) == 2:
                write_line("doubled", name)
            with store.core.reader() as reader:
                owed = reader.rows(
                    "SELECT state FROM outbox WHERE kind = 'final' AND lane = ?", (f"reply/{name}",)
                )
            assert len(owed) == reply.finals, owed
            assert {state for (state,) in owed} <= {"accepted", "suppressed"}, owed

with open_store(home):
    pass
killed = every_statement(run, check, first=first, stride=stride)
print(json.dumps({"killed": killed, "doubled": len(lines("doubled"))}))
"""


def sealing(child: Children, folder: Path, *, first: int, stride: int) -> dict[str, int]:
    said = child(SEALING, folder, first, stride).finish(600)
    found: dict[str, int] = json.loads(said.splitlines()[-1])
    print(f"sealing, every {stride}. place from {first}: {found}")
    return found


@pytest.mark.slow
def test_a_few_places_of_sealing(child: Children, tmp_path: Path) -> None:
    assert sealing(child, tmp_path, first=1 + SEED % STRIDE, stride=STRIDE)["killed"] >= 3


@pytest.mark.campaign
def test_every_statement_of_sealing(child: Children, tmp_path: Path) -> None:
    found = sealing(child, tmp_path, first=1, stride=1)
    assert found["killed"] > 60
    # After a post and before its commit: a stream's message, a plain send.
    assert found["doubled"] > 0


LOGIN = COMMON + """
from hermes_state.work.login_states import TERMINAL, LoginState
from hermes_state.work.sweeping import CachedAgent, GuestModel

GUEST = GuestModel(provider="nous", model="welcome")
ANN = Source(platform="telegram", chat_type="dm", chat_id="7", user_id="ann")
KEY = "agent:main:telegram:dm:7"

def secret(attempt_id):
    # What the server gave for it: in the caller's file, and shown in the chat.
    return f"CODE-{attempt_id[::-1]}", f"https://sign.in.example/{attempt_id[::-1]}"

def ask(attempt):
    return [attempt.attempt_id] in lines("server")

def persist(attempt):
    step()
    write_line("account", attempt.attempt_id)
    step()

def evict(key):
    step()
    write_line("evicted", key)
    step()

def finish(store, attempt_id):
    cached = [CachedAgent(session_key=KEY, provider="nous", model="welcome")]
    return store.work.logins.finish(
        attempt_id, store.routing.home, persist=persist, guest=GUEST, cached=cached, evict=evict
    )

def pin(store):
    home = store.routing.home
    bot = Transport(platform="telegram", profile="default", home=home)
    identity = resolve(ANN, receiver=bot, live=[bot], served={"default": home}, multiplexed=False)
    given = Inbound(source=ANN, identity=identity)
    route = store.routing.find(given) or store.routing.bind(given, store.sessions.create(source="telegram").id)
    store.routing.choose_model(route, home, {"provider": "nous", "model": "welcome"})

def begin(store):
    group, home = store.work.logins, store.routing.home
    attempt_id = group.begin(ANN, home).attempt_id
    step()
    write_line("codes", attempt_id, *secret(attempt_id))  # the chat has them; nothing here does
    group.code_shown(attempt_id, home, expires_at=store.core.clock.now() + 900.0)
    group.waiting(attempt_id, home)
    return attempt_id

def run(number):
    with open_store(home) as store:
        group, at_home = store.work.logins, store.routing.home
        first = begin(store)
        second = begin(store)
        group.ended(first, at_home)
        step()
        write_line("server", second)  # it is granted, and nobody here knows
        step()
        group.transferred(second, at_home)
        finish(store, second)
        third = begin(store)
        group.shutdown(at_home)
        group.ended(third, at_home)

def check(number):
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        scan(home / name)
    with open_store(home) as store:
        group = store.work.logins
        for attempt in group.recover(store.routing.home, ask):
            finish(store, attempt.attempt_id)
        attempts = group.page(limit=1000)
        granted = {attempt_id for (attempt_id,) in lines("server")}
        for one in attempts:
            assert one.state in TERMINAL, one
            assert (one.state is LoginState.COMPLETED) == (one.attempt_id in granted), one
            with store.core.reader() as reader:
                owed = reader.rows("SELECT dedupe_id FROM outbox WHERE dedupe_id = ?", (f"login/{one.attempt_id}",))
            assert len(owed) == (0 if one.quiet else 1), (one, owed)
        assert granted <= {one.attempt_id for one in attempts}
        with store.core.reader() as reader:
            assert reader.row("SELECT count(*) FROM outbox WHERE kind = 'login'") == (
                sum(not one.quiet for one in attempts),
            )
        assert {attempt_id for (attempt_id,) in lines("account")} == granted
        if granted and len(lines("server")) > len(lines("pinned")):
            assert store.routing.get(KEY).model_override is None
            write_line("pinned")
            pin(store)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        scan(home / name)

def scan(path):
    data = path.read_bytes() if path.exists() else b""
    for attempt_id, *words in lines("codes"):
        for word in (*words, words[0].removeprefix("CODE-")):
            assert word.encode() not in data, (path, word)

with open_store(home) as store:
    pin(store)
killed = every_statement(run, check, first=first, stride=stride)
print(json.dumps({"killed": killed, "granted": len(lines("server")), "codes": len(lines("codes"))}))
"""


def logging_in(child: Children, folder: Path, *, first: int, stride: int) -> dict[str, int]:
    said = child(LOGIN, folder, first, stride).finish(600)
    found: dict[str, int] = json.loads(said.splitlines()[-1])
    print(f"logging in, every {stride}. place from {first}: {found}")
    return found


@pytest.mark.slow
def test_a_few_places_of_logging_in(child: Children, tmp_path: Path) -> None:
    """T6.3, T6.4."""
    assert logging_in(child, tmp_path, first=1 + SEED % STRIDE, stride=STRIDE)["killed"] >= 3


@pytest.mark.campaign
def test_every_statement_of_logging_in(child: Children, tmp_path: Path) -> None:
    """T6.3, T6.4."""
    found = logging_in(child, tmp_path, first=1, stride=1)
    assert found["killed"] > 100
    assert found["granted"] > 20


LANES = COMMON + """
from hermes_state.work.mirroring import Provenance

def route_of(store):
    at_home = store.routing.home
    bot = Transport(platform="telegram", profile="default", home=at_home)
    source = Source(platform="telegram", chat_type="dm", chat_id="7", user_id="ann")
    identity = resolve(source, receiver=bot, live=[bot], served={"default": at_home}, multiplexed=False)
    given = Inbound(source=source, identity=identity)
    return store.routing.find(given) or store.routing.bind(given, store.sessions.create(source="telegram").id)

def come(store, lane, text, *, mirrored=False):
    if mirrored:
        store.work.lanes.mirror(
            lane, text, store.routing.home, delivery_id=text, job="j", provenance=Provenance.ORIGIN, attach=True,
            default=False,
        )
    else:
        store.work.lanes.add(lane, text, text, store.routing.home)
    write_line("acknowledged", text)

def answer(store, route, turn):
    while True:
        taken = store.work.lanes.take(turn, route, store.routing.home)
        if taken.message_id is None and taken.unanswered is None:
            return
        turn.messages.append(route.session_id, role="assistant", content="Answer")

def run(number):
    with open_store(home) as store:
        route = route_of(store)
        come(store, route.session_key, f"{number}.1")
        with store.turn(route.session_id) as turn:
            answer(store, route, turn)
            come(store, route.session_key, f"{number}.2")
            come(store, route.session_key, f"{number}.3", mirrored=True)
            come(store, route.session_key, f"{number}.4")
            answer(store, route, turn)
            come(store, route.session_key, f"{number}.5", mirrored=True)

def check(number):
    with open_store(home) as store:
        route = route_of(store)
        with store.turn(route.session_id) as turn:
            answer(store, route, turn)
        there, roles = [], []
        for message in store.messages.context(route.session_id):
            roles.append(message["role"])
            if message["role"] == "user":
                there += message["content"].replace("[Cron delivery: j]\\n", "").split("\\n\\n")
        there += [one.content for one in store.work.lanes.waiting(route.session_key, limit=1000)]
        told = [text for (text,) in lines("acknowledged")]
        assert len(set(there)) == len(there), "doubled"
        assert set(told) <= set(there), set(told) - set(there)
        # What was committed and not acknowledged before the kill is there as well: at most one each time.
        assert [text for text in there if text in set(told)] == told, "out of order"
        assert len(set(there) - set(told)) <= number
        assert roles == ["user", "assistant"] * (len(roles) // 2), roles

with open_store(home) as store:
    route_of(store)
killed = every_statement(run, check, first=first, stride=stride)
print(json.dumps({"killed": killed, "acknowledged": len(lines("acknowledged"))}))
"""


def lanes(child: Children, folder: Path, *, first: int, stride: int) -> dict[str, int]:
    said = child(LANES, folder, first, stride).finish(600)
    found: dict[str, int] = json.loads(said.splitlines()[-1])
    print(f"lanes, every {stride}. place from {first}: {found}")
    return found


@pytest.mark.slow
def test_a_few_places_of_a_lane(child: Children, tmp_path: Path) -> None:
    """R82."""
    assert lanes(child, tmp_path, first=1 + SEED % STRIDE, stride=STRIDE)["killed"] >= 3


@pytest.mark.campaign
def test_every_statement_of_a_lane(child: Children, tmp_path: Path) -> None:
    """R82."""
    assert lanes(child, tmp_path, first=1, stride=1)["killed"] > 60


RACING = """
import gates, sys
from hermes_state.errors import LoginRefused
from hermes_state.routing import Source
from hermes_state.store import open_store

with open_store(sys.argv[1]) as store:
    logins, home = store.work.logins, store.routing.home
    source = Source(platform="telegram", chat_type="dm", chat_id=sys.argv[2], user_id=sys.argv[2])
    gates.reach("open")
    said = []
    for number in range(int(sys.argv[3])):
        gates.wait(f"go {number}")
        try:
            said.append(logins.begin(source, home).attempt_id)
        except LoginRefused as refused:
            said.append(str(refused.reason))
        gates.reach(f"done {number}")
        gates.wait(f"end {number}")
        if len(said[-1]) == 16:
            logins.ended(said[-1], home)
        gates.reach(f"ended {number}")
    print(" ".join(said))
"""


@pytest.mark.slow
def test_of_two_processes_that_begin_a_login_one_has_it(child: Children, tmp_path: Path) -> None:
    """T6.1, in two gateways of one home."""
    rounds = 10
    with open_store(tmp_path / "home"):
        pass
    both = [child(RACING, tmp_path / "home", name, rounds) for name in ("ann", "bob")]
    for one in both:
        one.wait_for("open")
    for number in range(rounds):
        for word, reached in (("go", "done"), ("end", "ended")):
            for one in both:
                one.release(f"{word} {number}")
            for one in both:
                one.wait_for(f"{reached} {number}")
    for said in zip(*(one.finish().split() for one in both), strict=True):
        assert sorted(len(one) == 16 for one in said) == [False, True], said
        assert "busy" in said
